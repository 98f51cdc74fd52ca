// A constant table of emitted C++: a legible row an entry, cells in columns, a comment beside. An empty table
// prints nothing (C++ has no empty arrays) and its view is `{}`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace piper::codegen {

class Table {
 public:
  // `legend` names the columns, in a comment above the rows.
  Table(std::string type, std::string name, std::string legend)
      : type_(std::move(type)), name_(std::move(name)), legend_(std::move(legend)) {}

  // One entry: {cells}. `comment` may be empty.
  void Row(std::vector<std::string> cells, std::string comment = {});
  // Several scalar entries on one line (tables of plain numbers); returns the position of the first.
  size_t Numbers(const std::vector<std::string>& values, std::string comment = {});

  size_t size() const { return size_; }
  std::string Print() const;
  // An initialiser for std::span<const TYPE>: `{kName, 12}`.
  std::string View() const;
  std::string View(size_t first, size_t count) const;

 private:
  struct Line {
    std::vector<std::string> cells;
    std::string comment;
    bool scalars = false;
  };
  std::string type_, name_, legend_;
  std::vector<Line> lines_;
  size_t size_ = 0;
};

}  // namespace piper::codegen
