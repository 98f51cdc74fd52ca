#include "frontend/loader.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "frontend/embedded_stdlib.h"
#include "frontend/parser.h"
#include "frontend/value.h"
#include "ir/support/result.h"

namespace piper::frontend {

namespace {

namespace fs = std::filesystem;
using ir::DiagKind;

constexpr size_t kMaxFiles = 1000;

struct FileText {
  std::string text;
  DiagKind kind = DiagKind::kCannotReadFile;  // of the error, if any
  std::string error;                          // empty: read
};

// Opens without blocking (a FIFO must not hang us) and looks at what was opened, not at the name.
FileText ReadRegularFile(const std::string& path) {
  FileText result;
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    result.error = fmt::format("cannot open '{}': {}", path, std::strerror(errno));
    return result;
  }
  struct stat status = {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    result.error = fmt::format("cannot read '{}': it is not a regular file", path);
  } else if (static_cast<uint64_t>(status.st_size) > kMaxFileBytes) {
    result.kind = DiagKind::kFileTooLarge;
    result.error = fmt::format("'{}' has {} bytes, more than the {} that a source file may have", path,
                               status.st_size, kMaxFileBytes);
  } else {
    char buffer[65536];
    while (result.text.size() <= kMaxFileBytes) {
      ssize_t n = read(fd, buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) result.error = fmt::format("cannot read '{}': {}", path, std::strerror(errno));
      if (n <= 0) break;
      result.text.append(buffer, static_cast<size_t>(n));
    }
  }
  close(fd);
  return result;
}

bool IsBelow(const fs::path& path, const fs::path& root) {
  auto [end, _] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  return end == root.end();
}

class Loader {
 public:
  Loader(ir::SourceManager& sources, ir::DiagnosticEngine& diag, LoadedProgram* program)
      : sources_(sources), diag_(diag), program_(*program) {}

  bool LoadMain(const std::string& path, const std::optional<std::string>& text) {
    std::error_code error;
    FileText file;
    if (text) {
      file.text = *text;
      root_ = fs::weakly_canonical(fs::absolute(path).parent_path(), error);
    } else {
      file = ReadRegularFile(path);
      root_ = fs::canonical(fs::absolute(path), error).parent_path();
    }
    if (file.error.empty() && (error || root_.empty())) {
      file.kind = DiagKind::kCannotReadFile;
      file.error = fmt::format("cannot tell in which directory '{}' lies", path);
    }
    if (!file.error.empty()) {
      diag_.Error({}, file.kind, file.error);
      return false;
    }
    program_.main_directory = root_.string();
    fs::path canonical = fs::weakly_canonical(fs::absolute(path), error);
    Load(canonical.string(), path, std::move(file.text), false);
    return true;
  }

 private:
  // Parses one file and, depth first, what it imports. Returns its index.
  int Load(const std::string& key, const std::string& display, std::string text, bool is_std) {
    int index = static_cast<int>(program_.files.size());
    program_.files.emplace_back();
    open_.push_back(index);
    ir::FileId id = sources_.Add(display, std::move(text));
    File* syntax = ParseFile(sources_, id, program_.ast, diag_);
    program_.files[index].syntax = syntax;
    program_.files[index].id = id;
    program_.files[index].path = key;
    program_.files[index].is_std = is_std;
    for (Decl* decl : syntax->decls) Bind(index, decl);
    open_.pop_back();
    return index;
  }

  void Bind(int file, Decl* decl) {
    NameRef name;
    int imported = -1;
    switch (decl->kind) {
      case DeclKind::kImport: {
        auto& import = As<ImportDecl>(*decl);
        name = import.name;
        imported = Import(file, import);
        break;
      }
      case DeclKind::kLet:
        for (const NameRef& bound : As<LetDecl>(*decl).let->pattern.names) Add(file, bound, decl, -1);
        return;
      case DeclKind::kFn:
        name = As<FnTopDecl>(*decl).fn->name;
        break;
      case DeclKind::kModule:
        name = As<ModuleDecl>(*decl).name;
        break;
      case DeclKind::kModel:
        name = As<ModelDecl>(*decl).name;
        break;
      case DeclKind::kTopology:
        name = As<TopologyDecl>(*decl).name;
        break;
      case DeclKind::kStrategy:
        name = As<StrategyDecl>(*decl).name;
        break;
      case DeclKind::kRun:
      case DeclKind::kTest:
        return;
    }
    Add(file, name, decl, imported);
  }

  void Add(int index, const NameRef& name, Decl* decl, int imported) {
    if (name.name == names::kUnderscore || name.name == kNoName) return;
    LoadedFile& file = program_.files[index];
    auto [it, inserted] = file.by_name.emplace(name.name, file.names.size());
    if (!inserted) {
      diag_
          .Error(name.range, DiagKind::kDuplicateName,
                 fmt::format("'{}' is already defined in this file", program_.ast.names.Text(name.name)))
          .Note(file.names[it->second].range, "the first definition");
      return;
    }
    file.names.push_back({name.name, name.range, decl, imported, program_.global_count++});
  }

  int Import(int from, const ImportDecl& import) {
    return import.path.empty() ? ImportStd(import) : ImportPath(from, import);
  }

  int ImportStd(const ImportDecl& import) {
    auto text = [&](const NameRef& part) { return std::string(program_.ast.names.Text(part.name)); };
    std::vector<std::string> known;
    for (const EmbeddedFile& file : EmbeddedStdlib()) known.push_back(fmt::format("std.{}", file.module));
    std::string wanted;
    for (const NameRef& part : import.parts) wanted += (wanted.empty() ? "" : ".") + text(part);
    if (import.parts.size() == 2 && import.parts[0].name == names::kStd) {
      for (const EmbeddedFile& file : EmbeddedStdlib()) {
        if (file.module != text(import.parts[1])) continue;
        std::string key(file.name);
        if (int index = Known(key, import); index != kNotLoaded) return index;
        return Load(key, key, std::string(file.text), true);
      }
    }
    auto error = diag_.Error(import.target_range, DiagKind::kImportMissing,
                             fmt::format("there is no module '{}' in the standard library", wanted));
    if (std::string near = NearestName(wanted, known); !near.empty()) {
      error.Hint(fmt::format("did you mean `import {}`?", near));
    } else {
      error.Hint(
          fmt::format("the library has {}; a file of your own is imported as a string: import \"x.piper\"",
                      fmt::join(known, ", ")));
    }
    return -1;
  }

  int ImportPath(int from, const ImportDecl& import) {
    const LoadedFile& importer = program_.files[from];
    fs::path path{std::string(import.path)};
    auto escape = [&](std::string why) {
      diag_
          .Error(import.target_range, DiagKind::kImportEscape,
                 fmt::format("the import of \"{}\" {}", import.path, why))
          .Hint("an import names a file beside or below the file that says it");
      return -1;
    };
    if (importer.is_std) return escape("stands in the standard library, which reads no files");
    if (path.is_absolute()) return escape("is an absolute path");
    if (import.path.find('\0') != std::string_view::npos) return escape("holds a NUL byte");
    for (const fs::path& part : path) {
      if (part == "..") return escape("leaves its directory through '..'");
    }
    if (program_.files.size() >= kMaxFiles) {
      diag_.Error(import.target_range, DiagKind::kFileTooLarge,
                  fmt::format("the program imports more than {} files", kMaxFiles));
      return -1;
    }
    std::error_code error;
    fs::path full = fs::path(importer.path).parent_path() / path;
    fs::path canonical = fs::canonical(full, error);
    if (error) {
      auto report = diag_.Error(import.target_range, DiagKind::kImportMissing,
                                fmt::format("cannot import \"{}\": {}", import.path, error.message()));
      std::vector<std::string> beside;
      for (fs::directory_iterator it(full.parent_path(), error), end; !error && it != end;
           it.increment(error)) {
        if (it->path().extension() == ".piper") beside.push_back(it->path().filename().string());
        if (beside.size() > 500) break;
      }
      std::sort(beside.begin(), beside.end());
      if (std::string near = NearestName(path.filename().string(), beside); !near.empty()) {
        report.Hint(fmt::format("did you mean \"{}\"?", (path.parent_path() / near).string()));
      }
      return -1;
    }
    if (!IsBelow(canonical, root_))
      return escape("leads, by a symbolic link, out of the main file's directory");
    if (int index = Known(canonical.string(), import); index != kNotLoaded) return index;
    FileText text = ReadRegularFile(canonical.string());
    if (!text.error.empty()) {
      // The message names the path as the user wrote it, not where it leads.
      bool regular = fs::is_regular_file(canonical, error);
      diag_.Error(import.target_range, text.kind,
                  text.kind == DiagKind::kFileTooLarge
                      ? fmt::format("\"{}\" is larger than the {} bytes that a source file may have",
                                    import.path, kMaxFileBytes)
                      : fmt::format("cannot read \"{}\": {}", import.path,
                                    regular ? "permission denied" : "it is not a regular file"));
      return -1;
    }
    std::string importer_name(sources_.Name(importer.id));
    std::string display = (fs::path(importer_name).parent_path() / path).lexically_normal().string();
    return Load(canonical.string(), display, std::move(text.text), false);
  }

  // The index of a file that is loaded or being loaded; the latter is a cycle.
  int Known(const std::string& key, const ImportDecl& import) {
    for (size_t i = 0; i < program_.files.size(); ++i) {
      if (program_.files[i].path != key) continue;
      auto open = std::find(open_.begin(), open_.end(), static_cast<int>(i));
      if (open == open_.end()) return static_cast<int>(i);
      std::string cycle;
      for (auto it = open; it != open_.end(); ++it) {
        cycle += fmt::format("{} -> ", sources_.Name(program_.files[*it].id));
      }
      cycle += sources_.Name(program_.files[*open].id);
      diag_.Error(import.target_range, DiagKind::kImportCycle, fmt::format("imports form a cycle: {}", cycle))
          .Hint("move what both need into a third file");
      return -1;
    }
    return kNotLoaded;
  }

  static constexpr int kNotLoaded = -2;
  ir::SourceManager& sources_;
  ir::DiagnosticEngine& diag_;
  LoadedProgram& program_;
  fs::path root_;
  std::vector<int> open_;  // files whose imports are being followed
};

}  // namespace

bool LoadFiles(const std::string& path, const std::optional<std::string>& text, ir::SourceManager& sources,
               ir::DiagnosticEngine& diag, LoadedProgram* program) {
  return Loader(sources, diag, program).LoadMain(path, text);
}

}  // namespace piper::frontend
