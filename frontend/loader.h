// Finds and parses the files of a program: the main file and what it imports, each once. `import std.x` comes
// from the library embedded in the binary, `import "x.piper"` lies beside or below the importing file and
// never outside the main file's directory. Only imported files are opened; they must be regular files of
// bounded size.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "frontend/ast.h"
#include "ir/support/diagnostics.h"
#include "ir/support/source.h"

namespace piper::frontend {

// A name bound at the top of a file.
struct TopLevelName {
  NameId name = kNoName;
  SourceRange range;
  Decl* decl = nullptr;
  int imported = -1;  // the file that an import binds
  int global = -1;    // dense over all files
};

struct LoadedFile {
  File* syntax = nullptr;
  ir::FileId id = ir::kNoFile;
  std::string path;  // canonical path, or "std/gpt.piper"
  bool is_std = false;
  std::vector<TopLevelName> names;             // in file order
  std::unordered_map<NameId, size_t> by_name;  // into names
  const TopLevelName* Find(NameId name) const {
    auto it = by_name.find(name);
    return it == by_name.end() ? nullptr : &names[it->second];
  }
};

// Files in order of discovery; the main file is files[0].
struct LoadedProgram {
  Ast ast;
  std::vector<LoadedFile> files;
  int global_count = 0;
  std::string main_directory;  // canonical
};

// Reads `path`; or takes `text` as its content if given. Reports kCannotReadFile, kFileTooLarge,
// kImportEscape, kImportMissing, kImportCycle, kDuplicateName and what the parser reports. Returns false if
// the main file could not be read; after other errors the files that parsed are there, and diag.HasErrors().
bool LoadFiles(const std::string& path, const std::optional<std::string>& text, ir::SourceManager& sources,
               ir::DiagnosticEngine& diag, LoadedProgram* program);

}  // namespace piper::frontend
