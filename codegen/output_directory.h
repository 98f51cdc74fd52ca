// The directory that piperc writes. Everything is made in a hidden directory inside it and moved into place
// by rename at the end, file by file, the manifest last; a failure leaves what was there before. A directory
// that is neither empty nor ours (no manifest) is refused, and so is one that another piperc is writing.
#pragma once

#include <string>
#include <vector>

#include "ir/support/result.h"

namespace piper::codegen {

class OutputDirectory {
 public:
  // Creates it (not its parent) if need be, locks it, makes the hidden directory.
  static Result<OutputDirectory> Open(const std::string& path);
  OutputDirectory(OutputDirectory&& other) noexcept;
  OutputDirectory& operator=(OutputDirectory&&) = delete;
  ~OutputDirectory();

  // Where the next contents are made; removed with everything in it by the destructor.
  const std::string& staging() const { return staging_; }
  // Writes a file below staging(), with its directories. `path` is relative, without "..".
  Status Write(const std::string& path, const std::string& text);
  // The key with which the present contents were committed, if they all still exist; else empty.
  std::string committed_key() const;
  // Moves `paths` (relative to staging) into place, removes what an earlier commit made and this one does
  // not, and writes the manifest.
  Status Commit(const std::vector<std::string>& paths, const std::string& key);

 private:
  OutputDirectory() = default;
  std::string path_, staging_;
  int lock_ = -1;
  bool created_ = false, committed_ = false;
};

constexpr const char* kManifestName = "piperc.manifest";

}  // namespace piper::codegen
