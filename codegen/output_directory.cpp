#include "codegen/output_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace piper::codegen {

namespace fs = std::filesystem;

namespace {

constexpr const char* kMagic = "piperc output 1";
constexpr const char* kStagingPrefix = ".piperc-";

Error SystemError(std::string_view what, const std::string& path) {
  return Error{fmt::format("cannot {} '{}': {}", what, path, std::strerror(errno))};
}

struct Manifest {
  bool ours = false;
  std::string key;
  std::vector<std::string> paths;
};

// A path that may be removed or replaced: relative, without "..".
bool SafePath(const std::string& path) {
  if (path.empty() || path[0] == '/') return false;
  for (const fs::path& part : fs::path(path)) {
    if (part == ".." || part == ".") return false;
  }
  return true;
}

Manifest ReadManifest(const std::string& directory) {
  Manifest manifest;
  std::ifstream stream(directory + "/" + kManifestName);
  std::string line;
  if (!std::getline(stream, line) || line != kMagic) return manifest;
  manifest.ours = true;
  while (std::getline(stream, line)) {
    if (line.starts_with("key ")) {
      manifest.key = line.substr(4);
    } else if (line.starts_with("file ") && SafePath(line.substr(5))) {
      manifest.paths.push_back(line.substr(5));
    }
  }
  return manifest;
}

bool WriteWhole(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) return false;
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = write(file, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const int error = errno;
      close(file);
      errno = error;
      return false;
    }
    done += static_cast<size_t>(count);
  }
  return close(file) == 0;
}

}  // namespace

Result<OutputDirectory> OutputDirectory::Open(const std::string& path) {
  OutputDirectory result;
  result.path_ = path;
  while (result.path_.size() > 1 && result.path_.back() == '/') result.path_.pop_back();
  if (result.path_.empty()) return Error{"the output directory has no name"};
  if (mkdir(result.path_.c_str(), 0777) == 0) {
    result.created_ = true;
  } else if (errno != EEXIST) {
    return SystemError("create directory", result.path_);
  }
  result.lock_ = open(result.path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (result.lock_ < 0) return SystemError("open directory", result.path_);
  if (flock(result.lock_, LOCK_EX | LOCK_NB) != 0) {
    return Error{fmt::format("another piperc is writing to '{}'", result.path_)};
  }
  std::error_code error;
  bool empty = true;
  std::vector<fs::path> stale;  // what a killed piperc left: we hold the lock, so nobody is using it
  for (const fs::directory_entry& entry : fs::directory_iterator(result.path_, error)) {
    if (entry.path().filename().string().starts_with(kStagingPrefix)) {
      stale.push_back(entry.path());
    } else {
      empty = false;
    }
  }
  if (error) return Error{fmt::format("cannot read directory '{}': {}", result.path_, error.message())};
  if (!empty && !ReadManifest(result.path_).ours) {
    return Error{
        fmt::format("'{}' is not empty and was not written by piperc (it has no {}); name another directory",
                    result.path_, kManifestName)};
  }
  for (const fs::path& left : stale) fs::remove_all(left, error);
  result.staging_ = result.path_ + "/" + kStagingPrefix + "XXXXXX";
  if (mkdtemp(result.staging_.data()) == nullptr) {
    Error failure = SystemError("create a directory in", result.path_);
    result.staging_.clear();
    return failure;
  }
  return result;
}

OutputDirectory::OutputDirectory(OutputDirectory&& other) noexcept
    : path_(std::move(other.path_)),
      staging_(std::move(other.staging_)),
      lock_(other.lock_),
      created_(other.created_),
      committed_(other.committed_) {
  other.staging_.clear();
  other.lock_ = -1;
  other.created_ = false;
}

OutputDirectory::~OutputDirectory() {
  std::error_code ignored;
  if (!staging_.empty()) fs::remove_all(staging_, ignored);
  if (created_ && !committed_) rmdir(path_.c_str());  // only if nothing came into being
  if (lock_ >= 0) close(lock_);
}

Status OutputDirectory::Write(const std::string& path, const std::string& text) {
  PIPER_CHECK(SafePath(path), path);
  const std::string full = staging_ + "/" + path;
  std::error_code error;
  fs::create_directories(fs::path(full).parent_path(), error);
  if (error || !WriteWhole(full, text)) return SystemError("write", full);
  return Ok();
}

std::string OutputDirectory::committed_key() const {
  const Manifest manifest = ReadManifest(path_);
  std::error_code ignored;
  for (const std::string& path : manifest.paths) {
    if (!fs::exists(path_ + "/" + path, ignored)) return {};
  }
  return manifest.key;
}

Status OutputDirectory::Commit(const std::vector<std::string>& paths, const std::string& key) {
  const Manifest old = ReadManifest(path_);
  std::string manifest = fmt::format("{}\nkey {}\n", kMagic, key);
  std::error_code error;
  // While files are being replaced the manifest says that they are ours but promises nothing.
  std::string interim = fmt::format("{}\n", kMagic);
  for (const std::string& path : old.paths) interim += fmt::format("file {}\n", path);
  for (const std::string& path : paths) interim += fmt::format("file {}\n", path);
  auto put_manifest = [&](const std::string& text) {
    const std::string temporary = staging_ + "/" + kManifestName;
    return WriteWhole(temporary, text) &&
           rename(temporary.c_str(), (path_ + "/" + kManifestName).c_str()) == 0;
  };
  if (!put_manifest(interim)) return SystemError("write the manifest of", path_);
  committed_ = true;
  for (const std::string& path : paths) {
    PIPER_CHECK(SafePath(path), path);
    const std::string target = path_ + "/" + path;
    fs::create_directories(fs::path(target).parent_path(), error);
    if (error || rename((staging_ + "/" + path).c_str(), target.c_str()) != 0)
      return SystemError("replace", target);
    manifest += fmt::format("file {}\n", path);
  }
  for (const std::string& path : old.paths) {
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) unlink((path_ + "/" + path).c_str());
  }
  if (!put_manifest(manifest)) return SystemError("write the manifest of", path_);
  return Ok();
}

}  // namespace piper::codegen
