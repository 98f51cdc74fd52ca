#include "ir/support/source.h"

#include <algorithm>

#include <fmt/format.h>
#include <llvm/Support/MemoryBuffer.h>

#include "ir/support/result.h"

namespace piper::ir {

struct SourceManager::File {
  std::string name;
  std::unique_ptr<llvm::MemoryBuffer> buffer;
  std::vector<uint32_t> line_starts;
};

SourceManager::SourceManager() = default;
SourceManager::~SourceManager() = default;

SourceRange SourceRange::Cover(SourceRange other) const {
  if (!valid()) return other;
  if (!other.valid() || other.file != file) return *this;
  return {file, std::min(begin, other.begin), std::max(end, other.end)};
}

FileId SourceManager::Add(std::string name, std::string text) {
  PIPER_CHECK(text.size() < UINT32_MAX);
  auto file = std::make_unique<File>();
  file->name = std::move(name);
  file->buffer = llvm::MemoryBuffer::getMemBufferCopy(text, file->name);
  file->line_starts.push_back(0);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') file->line_starts.push_back(static_cast<uint32_t>(i + 1));
  }
  files_.push_back(std::move(file));
  return static_cast<FileId>(files_.size() - 1);
}

size_t SourceManager::file_count() const { return files_.size(); }

std::string_view SourceManager::Name(FileId file) const { return files_.at(file)->name; }

std::string_view SourceManager::Text(FileId file) const {
  llvm::StringRef text = files_.at(file)->buffer->getBuffer();
  return {text.data(), text.size()};
}

std::string_view SourceManager::Text(SourceRange range) const {
  if (!range.valid()) return {};
  return Text(range.file).substr(range.begin, range.end - range.begin);
}

LineColumn SourceManager::Position(FileId file, uint32_t offset) const {
  const std::vector<uint32_t>& starts = files_.at(file)->line_starts;
  auto it = std::upper_bound(starts.begin(), starts.end(), offset);
  auto line = static_cast<uint32_t>(it - starts.begin());
  return {line, offset - starts[line - 1] + 1};
}

std::string_view SourceManager::Line(FileId file, uint32_t line) const {
  const std::vector<uint32_t>& starts = files_.at(file)->line_starts;
  std::string_view text = Text(file);
  if (line == 0 || line > starts.size()) return {};
  size_t begin = starts[line - 1];
  size_t end = line < starts.size() ? starts[line] - 1 : text.size();
  if (end > begin && text[end - 1] == '\r') --end;
  return text.substr(begin, end - begin);
}

std::string SourceManager::Describe(SourceRange range) const {
  if (!range.valid()) return "<unknown>";
  LineColumn at = Position(range.file, range.begin);
  return fmt::format("{}:{}:{}", Name(range.file), at.line, at.column);
}

}  // namespace piper::ir
