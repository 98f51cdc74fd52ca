// Source text and positions in it. Every diagnostic, every DAG node's origin and every task's `.piper` line
// is a SourceRange. Offsets are bytes (not code points) into a file that a SourceManager owns for the whole
// run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace piper::ir {

using FileId = uint32_t;
constexpr FileId kNoFile = UINT32_MAX;

// A half-open byte range in one file. A default-constructed range points nowhere and is legal everywhere.
struct SourceRange {
  FileId file = kNoFile;
  uint32_t begin = 0;
  uint32_t end = 0;

  bool valid() const { return file != kNoFile; }
  // The smallest range that covers both; `this` if the other lies in another file or nowhere.
  SourceRange Cover(SourceRange other) const;
  friend bool operator==(const SourceRange&, const SourceRange&) = default;
  friend auto operator<=>(const SourceRange&, const SourceRange&) = default;
};

// 1-based line and column; the column counts bytes.
struct LineColumn {
  uint32_t line = 0;
  uint32_t column = 0;
};

// Owns source buffers. Buffers never move, so string_views into them stay valid. Not thread-safe.
class SourceManager {
 public:
  SourceManager();
  ~SourceManager();
  SourceManager(const SourceManager&) = delete;
  SourceManager& operator=(const SourceManager&) = delete;

  // Adds text under a display name (a path as the user wrote it, or "std/gpt.piper" for embedded files).
  FileId Add(std::string name, std::string text);

  size_t file_count() const;  // ids are 0 .. file_count() - 1
  std::string_view Name(FileId file) const;
  std::string_view Text(FileId file) const;
  std::string_view Text(SourceRange range) const;
  LineColumn Position(FileId file, uint32_t offset) const;
  // The text of the 1-based line, without its newline.
  std::string_view Line(FileId file, uint32_t line) const;
  // "file:line:col", or "<unknown>".
  std::string Describe(SourceRange range) const;

 private:
  struct File;
  std::vector<std::unique_ptr<File>> files_;
};

}  // namespace piper::ir
