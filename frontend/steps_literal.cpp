#include "frontend/steps_literal.h"

#include <charconv>
#include <vector>

#include <fmt/format.h>

namespace piper::frontend {

namespace {

class Decoder {
 public:
  Decoder(std::string_view text, Arena& arena) : text_(text), arena_(arena) {}

  std::optional<StepsError> Run(List<StepRun>* runs) {
    std::vector<StepRun> out;
    if (Sequence(out, 0) && at_ < text_.size()) Fail(at_, at_ + 1, "')' closes nothing", "remove it");
    if (error_) return error_;
    if (out.empty()) {
      Fail(0, text_.size(), "the order is empty", "write steps, such as 8*F 3*(F B)");
      return error_;
    }
    *runs = arena_.Copy(out);
    return std::nullopt;
  }

 private:
  static bool IsDigit(char c) { return c >= '0' && c <= '9'; }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void SkipSpace() {
    while (Peek() == ' ' || Peek() == '\t' || Peek() == '\n' || Peek() == ',') ++at_;
  }

  bool Fail(size_t begin, size_t end, std::string message, std::string hint) {
    if (!error_) error_ = StepsError{begin, end, std::move(message), std::move(hint)};
    return false;
  }

  // A decimal number of at most nine digits; -1 if there is none.
  bool Number(int32_t* value) {
    *value = -1;
    size_t begin = at_;
    while (IsDigit(Peek())) ++at_;
    if (at_ == begin) return true;
    if (at_ - begin > 9) return Fail(begin, at_, "this number is too large", "at most 999999999");
    std::from_chars(text_.data() + begin, text_.data() + at_, *value);
    return true;
  }

  bool Sequence(std::vector<StepRun>& out, int depth) {
    for (SkipSpace(); at_ < text_.size() && Peek() != ')'; SkipSpace()) {
      StepRun run;
      if (!Entry(&run, depth)) return false;
      out.push_back(run);
    }
    return true;
  }

  bool Entry(StepRun* run, int depth) {
    size_t begin = at_;
    int32_t number = -1;
    if (!Number(&number)) return false;
    size_t after_number = at_;
    while (Peek() == ' ') ++at_;
    if (number >= 0 && Peek() == '*') {
      if (number == 0) return Fail(begin, at_, "a count of 0 lists nothing", "remove the entry");
      ++at_;
      SkipSpace();
      if (!Unit(run, depth, at_)) return false;
      run->repeat = static_cast<uint32_t>(number);
      return true;
    }
    at_ = after_number;
    if (number < 0 && Peek() == '(') return Unit(run, depth, begin);
    at_ = begin;
    return Unit(run, depth, begin);
  }

  bool Unit(StepRun* run, int depth, size_t begin) {
    if (Peek() == '(') {
      if (depth >= kMaxDepth)
        return Fail(at_, at_ + 1, "groups are nested too deep", "write fewer parentheses");
      ++at_;
      std::vector<StepRun> children;
      if (!Sequence(children, depth + 1)) return false;
      if (Peek() != ')') return Fail(begin, begin + 1, "this '(' is never closed", "write ')'");
      ++at_;
      if (children.empty())
        return Fail(begin, at_, "this group is empty", "write steps between the parentheses");
      run->children = arena_.Copy(children);
      return true;
    }
    StepRun step;
    if (!Step(&step)) return false;
    if (Peek() != '&') {
      *run = step;
      return true;
    }
    std::vector<StepRun> parts = {step};
    while (Peek() == '&') {
      ++at_;
      StepRun part;
      if (!Step(&part)) return false;
      parts.push_back(part);
    }
    run->fused = true;
    run->children = arena_.Copy(parts);
    return true;
  }

  bool Step(StepRun* step) {
    static constexpr std::string_view kHint =
        "a step reads [stage] F|B|BI|BW|R|U [microbatch], such as F, 2F0 or BW3";
    size_t begin = at_;
    if (!Number(&step->stage)) return false;
    size_t word = at_;
    while (Peek() >= 'A' && Peek() <= 'Z') ++at_;
    std::string_view pass = text_.substr(word, at_ - word);
    if (pass == "F") {
      step->pass = Pass::kF;
    } else if (pass == "B") {
      step->pass = Pass::kB;
    } else if (pass == "BI" || pass == "I") {
      step->pass = Pass::kBI;
    } else if (pass == "BW" || pass == "W") {
      step->pass = Pass::kBW;
    } else if (pass == "R") {
      step->pass = Pass::kR;
    } else if (pass == "U") {
      step->pass = Pass::kU;
    } else {
      size_t end = at_;
      while (end < text_.size() && text_[end] != ' ' && text_[end] != ')' && text_[end] != '&') ++end;
      if (end == begin) ++end;
      end = std::min(end, text_.size());
      return Fail(begin, end,
                  fmt::format("'{}' is no step", text_.substr(begin, std::min<size_t>(end - begin, 30))),
                  std::string(kHint));
    }
    if (!Number(&step->microbatch)) return false;
    char next = Peek();
    if (next != '\0' && next != ' ' && next != '\t' && next != '\n' && next != ',' && next != ')' &&
        next != '&') {
      size_t end = at_;
      while (end < text_.size() && text_[end] != ' ' && text_[end] != ')' && text_[end] != '&') ++end;
      return Fail(begin, end,
                  fmt::format("'{}' is no step", text_.substr(begin, std::min<size_t>(end - begin, 30))),
                  std::string(kHint));
    }
    return true;
  }

  std::string_view text_;
  Arena& arena_;
  size_t at_ = 0;
  std::optional<StepsError> error_;
};

}  // namespace

std::optional<StepsError> DecodeSteps(std::string_view text, Arena& arena, List<StepRun>* runs) {
  return Decoder(text, arena).Run(runs);
}

}  // namespace piper::frontend
