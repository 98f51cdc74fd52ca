#include "codegen/table.h"

#include <fmt/format.h>

#include <algorithm>

namespace piper::codegen {

void Table::Row(std::vector<std::string> cells, std::string comment) {
  lines_.push_back({std::move(cells), std::move(comment), false});
  ++size_;
}

size_t Table::Numbers(const std::vector<std::string>& values, std::string comment) {
  const size_t first = size_;
  if (!values.empty()) lines_.push_back({values, std::move(comment), true});
  size_ += values.size();
  return first;
}

std::string Table::Print() const {
  if (size_ == 0) return {};
  std::vector<size_t> widths;
  for (const Line& line : lines_) {
    if (line.scalars) continue;
    widths.resize(std::max(widths.size(), line.cells.size()));
    for (size_t i = 0; i < line.cells.size(); ++i) widths[i] = std::max(widths[i], line.cells[i].size());
  }
  std::string text = fmt::format("// clang-format off\nconstexpr {} {}[] = {{\n", type_, name_);
  if (!legend_.empty()) text += fmt::format("    // {}\n", legend_);
  for (const Line& line : lines_) {
    text += "    ";
    if (!line.scalars) text += '{';
    for (size_t i = 0; i < line.cells.size(); ++i) {
      if (i > 0) text += ' ';
      const size_t begin = text.size();
      text += line.cells[i];
      const bool last = i + 1 == line.cells.size();
      if (line.scalars || !last) text += ',';
      // Strings stay at the left; the padding follows the comma.
      const size_t column = begin + (line.scalars ? 0 : widths[i] + 1);
      if (!last && text.size() < column) text.append(column - text.size(), ' ');
    }
    if (!line.scalars) text += "},";
    if (!line.comment.empty()) text += fmt::format("  // {}", line.comment);
    text += '\n';
  }
  return text + "};\n// clang-format on\n";
}

std::string Table::View() const { return View(0, size_); }

std::string Table::View(size_t first, size_t count) const {
  if (count == 0) return "{}";
  if (first == 0) return fmt::format("{{{}, {}}}", name_, count);
  return fmt::format("{{{} + {}, {}}}", name_, first, count);
}

}  // namespace piper::codegen
