#include "ir/schedule_csv/parse.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/support/nearest.h"

namespace piper::ir::schedule_csv {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWord(char c) { return (c >= 'A' && c <= 'Z') || c == '_'; }

constexpr std::string_view kForm =
    "a step reads stage, action, microbatch: 2F0, 1I3, 1W3, 0B0, 0SEND_F1, 0UNSHARD";

class Parser {
 public:
  Parser(FileId file, DiagnosticEngine& diag) : file_(file), text_(diag.sources().Text(file)), diag_(diag) {}

  std::optional<Table> Run() {
    Table table;
    size_t rows_end = text_.size();
    while (rows_end > 0 && (text_[rows_end - 1] == '\n' || text_[rows_end - 1] == '\r')) --rows_end;
    if (std::all_of(text_.begin(), text_.end(), [](char c) { return c == ' ' || c == '\n' || c == '\r'; })) {
      diag_
          .Error({file_, 0, static_cast<uint32_t>(text_.size())}, DiagKind::kBadCsv,
                 "the file holds no schedule")
          .Hint("it has a row a rank, a cell a step: 0F0,0F1,0B0,0B1");
      return std::nullopt;
    }
    while (at_ < rows_end && !failed_hard_) {
      size_t end = std::min(text_.find('\n', at_), text_.size());
      row_end_ = end > at_ && text_[end - 1] == '\r' ? end - 1 : end;
      table.ranks.emplace_back();
      Row(&table.ranks.back());
      at_ = end + 1;
    }
    return diag_.HasErrors() ? std::nullopt : std::optional(std::move(table));
  }

 private:
  DiagnosticEngine::Builder Error(size_t begin, size_t end, std::string message) {
    return diag_.Error({file_, static_cast<uint32_t>(begin), static_cast<uint32_t>(std::max(end, begin))},
                       DiagKind::kBadCsv, std::move(message));
  }

  void Row(std::vector<Cell>* row) {
    const size_t row_begin = at_;
    size_t steps = 0;
    while (true) {
      cell_end_ = std::min(text_.find(',', at_), row_end_);
      size_t begin = at_, end = cell_end_;
      while (begin < end && text_[begin] == ' ') ++begin;
      while (end > begin && text_[end - 1] == ' ') --end;
      Cell cell;
      if (begin < end && !ReadCell(begin, end, &cell)) cell = {};
      steps += cell.count;
      if (++cells_ > kMaxSteps) {
        Error(begin, end, fmt::format("more than {} cells", kMaxSteps)).Hint("import a part of it");
        failed_hard_ = true;
        return;
      }
      row->push_back(cell);
      if (cell_end_ == row_end_) break;
      at_ = cell_end_ + 1;
    }
    while (!row->empty() && row->back().count == 0) row->pop_back();
    if (steps == 0 && !diag_.HasErrors()) {
      Error(row_begin, row_end_, "this row has no step")
          .Hint("each row is a rank, and each rank has a stage at least");
    }
  }

  bool ReadCell(size_t begin, size_t end, Cell* cell) {
    if (text_[begin] != '(') {
      if (!ReadStep(begin, end, &cell->steps[0])) return false;
      cell->count = 1;
      return true;
    }
    const size_t close = text_.find(')', begin);
    if (close >= end) {
      Error(begin, end, "this '(' is never closed").Hint("a fused step reads (0F1;7B0)OVERLAP_F_B");
      return false;
    }
    if (text_.substr(close + 1, end - close - 1) != "OVERLAP_F_B") {
      Error(close + 1, end,
            fmt::format("'{}' where OVERLAP_F_B belongs", text_.substr(close + 1, end - close - 1)))
          .Hint("a fused step reads (0F1;7B0)OVERLAP_F_B");
      return false;
    }
    const size_t middle = text_.find(';', begin);
    if (middle >= close || text_.find(';', middle + 1) < close) {
      Error(begin, close + 1, "a fused step has exactly two parts")
          .Hint("a forward and a backward, with ';' between: (0F1;7B0)OVERLAP_F_B");
      return false;
    }
    if (!ReadStep(begin + 1, middle, &cell->steps[0]) || !ReadStep(middle + 1, close, &cell->steps[1]))
      return false;
    const bool first = cell->steps[0].action == Action::kForward,
               second = cell->steps[1].action == Action::kForward;
    if (first == second || !IsCompute(cell->steps[0].action) || !IsCompute(cell->steps[1].action)) {
      Error(begin, close + 1, "the parts of a fused step are a forward and a backward")
          .Hint("such as (0F1;7B0)OVERLAP_F_B");
      return false;
    }
    cell->count = 2;
    return true;
  }

  // Decimal digits without leading zeros, at most kMaxNumber.
  bool Number(size_t begin, size_t end, const char* what, int32_t* value) {
    const std::string_view digits = text_.substr(begin, end - begin);
    if (digits.size() > 1 && digits[0] == '0') {
      Error(begin, end, fmt::format("the {} '{}' begins with a zero", what, digits.substr(0, 40)))
          .Hint("write it without");
      return false;
    }
    int64_t number = 0;
    for (char c : digits) {
      number = number * 10 + (c - '0');
      if (number > kMaxNumber) {
        Error(begin, end, fmt::format("the {} '{}' is too large", what, digits.substr(0, 40)))
            .Hint(fmt::format("at most {}", kMaxNumber));
        return false;
      }
    }
    *value = static_cast<int32_t>(number);
    return true;
  }

  bool ReadStep(size_t begin, size_t end, Step* step) {
    auto refuse = [&](size_t from, std::string message) {
      Error(from, end, std::move(message)).Hint(std::string(kForm));
      return false;
    };
    const std::string shown(text_.substr(begin, std::min<size_t>(end - begin, 40)));
    size_t at = begin;
    while (at < end && IsDigit(text_[at])) ++at;
    if (at == begin) return refuse(begin, fmt::format("'{}' is no step: it begins with no stage", shown));
    if (!Number(begin, at, "stage", &step->stage)) return false;
    const size_t word_begin = at;
    while (at < end && IsWord(text_[at])) ++at;
    const std::string_view word = text_.substr(word_begin, at - word_begin);
    size_t action = 0;
    while (action < kActions && ActionText(static_cast<Action>(action)) != word) ++action;
    if (action == kActions) {
      if (word.empty())
        return refuse(word_begin, fmt::format("'{}' is no step: no action follows the stage", shown));
      std::vector<std::string> names;
      for (size_t i = 0; i < kActions; ++i) names.emplace_back(ActionText(static_cast<Action>(i)));
      const std::string near = NearestName(word, names);
      Error(word_begin, at, fmt::format("there is no action '{}'", word.substr(0, 40)))
          .Hint(near.empty() ? std::string(kForm) : fmt::format("did you mean '{}'?", near));
      return false;
    }
    step->action = static_cast<Action>(action);
    const size_t number = at;
    while (at < end && IsDigit(text_[at])) ++at;
    if (at < end)
      return refuse(at,
                    fmt::format("'{}' behind the step", text_.substr(at, std::min<size_t>(end - at, 40))));
    const bool has = at > number;
    if (has != TakesMicrobatch(step->action)) {
      return refuse(has ? number : begin, fmt::format("{} takes {} microbatch", word, has ? "no" : "a"));
    }
    if (has && !Number(number, at, "microbatch", &step->microbatch)) return false;
    step->range = {file_, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
    return true;
  }

  FileId file_;
  std::string_view text_;
  DiagnosticEngine& diag_;
  size_t at_ = 0, row_end_ = 0, cell_end_ = 0, cells_ = 0;
  bool failed_hard_ = false;
};

}  // namespace

std::optional<Table> Parse(FileId file, DiagnosticEngine& diag) { return Parser(file, diag).Run(); }

}  // namespace piper::ir::schedule_csv
