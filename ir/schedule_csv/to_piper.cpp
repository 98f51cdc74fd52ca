#include "ir/schedule_csv/to_piper.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace piper::ir::schedule_csv {
namespace {

// ---- repeats

// Words and folded groups alike are symbols; equal ones have equal numbers.
class Symbols {
 public:
  uint32_t Intern(const std::string& text, bool group) {
    const auto [it, fresh] = numbers_.emplace(text, static_cast<uint32_t>(texts_.size()));
    if (fresh) {
      texts_.push_back(text);
      groups_.push_back(group);
    }
    return it->second;
  }
  const std::string& Text(uint32_t symbol) const { return texts_[symbol]; }
  // `count` times these symbols: "5*(F B)", "5*F".
  uint32_t Repeat(size_t count, const uint32_t* begin, const uint32_t* end) {
    std::string inner;
    for (const uint32_t* at = begin; at != end; ++at) inner += (at == begin ? "" : " ") + Text(*at);
    const bool plain = end - begin == 1 && !groups_[*begin];
    return Intern(fmt::format("{}*{}{}{}", count, plain ? "" : "(", inner, plain ? "" : ")"), true);
  }

 private:
  std::map<std::string, uint32_t> numbers_;
  std::vector<std::string> texts_;
  std::vector<bool> groups_;
};

constexpr size_t kLongestPeriod = 24;
// Of each round: short repeats first, so that longer ones are folded out of them.
constexpr size_t kLongestOfRound[] = {1, 2, 3, kLongestPeriod, kLongestPeriod, kLongestPeriod};
constexpr size_t kLineWidth = 110;  // as `piper fmt` breaks lines

// One round: the cheapest cover of the sequence by single symbols (cost 1) and repeats of up to `longest`
// symbols (cost 1
// + what they repeat), from the back.
std::vector<uint32_t> FoldOnce(const std::vector<uint32_t>& symbols, size_t longest, Symbols& names) {
  const size_t n = symbols.size();
  // repeat[L][i]: how many times the L symbols at i follow each other, from there on.
  std::vector<std::vector<uint32_t>> matches(longest + 1, std::vector<uint32_t>(n + 1, 0));
  for (size_t length = 1; length <= longest; ++length) {
    for (size_t i = n; i-- > 0;) {
      if (i + length < n && symbols[i] == symbols[i + length])
        matches[length][i] = matches[length][i + 1] + 1;
    }
  }
  struct Choice {
    size_t cost = 0, length = 0, count = 1;  // length 0: a single symbol
  };
  std::vector<Choice> best(n + 1);
  for (size_t i = n; i-- > 0;) {
    best[i] = {best[i + 1].cost + 1, 0, 1};
    for (size_t length = 1; length <= std::min(longest, (n - i) / 2); ++length) {
      const size_t count = matches[length][i] / length + 1;
      if (count < 2 || (length == 1 && count < 3)) continue;
      const size_t cost = best[i + count * length].cost + length + 1;
      if (cost < best[i].cost) best[i] = {cost, length, count};
    }
  }
  std::vector<uint32_t> folded;
  for (size_t i = 0; i < n;) {
    const Choice& choice = best[i];
    if (choice.length == 0) {
      folded.push_back(symbols[i++]);
      continue;
    }
    folded.push_back(names.Repeat(choice.count, &symbols[i], &symbols[i] + choice.length));
    i += choice.count * choice.length;
  }
  return folded;
}

// ---- words

// Follows the rule of the literal for microbatches that are not written (frontend/selectors.cpp): the next
// one of the stage and pass, where B counts with I and moves W along.
class Words {
 public:
  explicit Words(bool one_stage) : one_stage_(one_stage) {}

  std::string Word(const Cell& cell) {
    std::string text;
    for (const Step& step : cell) text += (text.empty() ? "" : "&") + Part(step);
    return text;
  }

 private:
  std::string Part(const Step& step) {
    const Action counted = step.action == Action::kFullBackward ? Action::kBackwardInput : step.action;
    int32_t& next = next_[{step.stage, counted}];
    const bool implicit = step.microbatch == next;
    if (implicit || step.microbatch > next) {
      next = step.microbatch + 1;
      if (step.action == Action::kFullBackward) next_[{step.stage, Action::kBackwardWeight}] = next;
    }
    std::string text = one_stage_ ? "" : std::to_string(step.stage);
    text += ActionText(step.action);
    return implicit ? text : text + std::to_string(step.microbatch);
  }

  bool one_stage_;
  std::map<std::pair<int32_t, Action>, int32_t> next_;
};

bool IsIdleOrCommunication(const Cell& cell) { return cell.count == 0 || !IsCompute(cell.steps[0].action); }

// "rank == 2", "rank < 4", "1 <= rank and rank < 3": consecutive ranks with one literal.
std::string Condition(size_t begin, size_t end, size_t ranks) {
  if (end - begin == 1) return fmt::format("rank == {}", begin);
  if (begin == 0) return fmt::format("rank < {}", end);
  if (end == ranks) return fmt::format("rank >= {}", begin);
  return fmt::format("{} <= rank and rank < {}", begin, end);
}

// A file name in a comment: control characters would end or hide the line.
std::string Printable(std::string_view text) {
  std::string out;
  for (char c : text.substr(0, 100))
    out += static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f ? '?' : c;
  return out;
}

// `let rank_of = ..`: in closed form where ranks follow each other in loops or in a V, else as a list, whose
// lines break as `piper fmt` breaks them.
std::string Placement(const Extent& extent, size_t ranks) {
  bool looped = true, in_v = extent.rank_of.size() == 2 * ranks;
  for (size_t s = 0; s < extent.rank_of.size(); ++s) {
    looped = looped && extent.rank_of[s] == s % ranks;
    in_v = in_v && extent.rank_of[s] == (s < ranks ? s : 2 * ranks - 1 - s);
  }
  if (looped) return "let rank_of = [s % ranks for s in 0..stages]\n";
  if (in_v) return "let rank_of = [if s < ranks { s } else { 2 * ranks - 1 - s } for s in 0..stages]\n";
  std::string text, line = "let rank_of = [";
  for (size_t s = 0; s < extent.rank_of.size(); ++s) {
    const std::string item =
        fmt::format("{}{}", extent.rank_of[s], s + 1 < extent.rank_of.size() ? "," : "]");
    if (s > 0 && line.size() + 1 + item.size() > kLineWidth) {
      text += line + "\n";
      line = "    " + item;
    } else {
      line += (s > 0 ? " " : "") + item;
    }
  }
  return text + line + "\n";
}

std::string Orders(const Table& table) {
  std::vector<std::string> literals;
  for (const std::vector<Cell>& row : table.ranks) {
    std::set<int32_t> stages;
    for (const Cell& cell : row) {
      for (const Step& step : cell) stages.insert(step.stage);
    }
    literals.push_back(StepsLiteral(row, stages.size() == 1));
  }
  std::string text;
  for (size_t begin = 0; begin < literals.size();) {
    size_t end = begin + 1;
    while (end < literals.size() && literals[end] == literals[begin]) ++end;
    if (end - begin == literals.size()) {
      text += fmt::format("  steps \"{}\"\n", literals[begin]);
    } else {
      const std::string condition = Condition(begin, end, literals.size());
      const std::string line = fmt::format("  if {} {{ steps \"{}\" }}\n", condition, literals[begin]);
      text += line.size() <= kLineWidth + 1
                  ? line
                  : fmt::format("  if {} {{\n    steps \"{}\"\n  }}\n", condition, literals[begin]);
    }
    begin = end;
  }
  return text;
}

}  // namespace

std::string FoldRepeats(const std::vector<std::string>& words) {
  Symbols names;
  std::vector<uint32_t> symbols;
  for (const std::string& word : words) symbols.push_back(names.Intern(word, false));
  for (size_t longest : kLongestOfRound) symbols = FoldOnce(symbols, longest, names);
  std::string text;
  for (uint32_t symbol : symbols) text += (text.empty() ? "" : " ") + names.Text(symbol);
  return text;
}

std::string StepsLiteral(const std::vector<Cell>& row, bool one_stage) {
  Words words(one_stage);
  std::vector<std::string> texts;
  for (const Cell& cell : row) {
    if (!IsIdleOrCommunication(cell)) texts.push_back(words.Word(cell));
  }
  return FoldRepeats(texts);
}

std::string OrdersText(const Export& exported, const Dag& dag) {
  std::string text;
  for (size_t rank = 0; rank < exported.table.ranks.size(); ++rank) {
    const std::vector<Cell>& row = exported.table.ranks[rank];
    std::set<int32_t> stages;
    for (const Cell& cell : row) {
      for (const Step& step : cell) stages.insert(step.stage);
    }
    const std::string& group = dag.groups[exported.hosts[rank]].text;
    const std::string& stream = NameText(exported.streams[rank]);
    text += fmt::format("order on {} {{ {}steps \"{}\" }}\n", group.empty() ? "all" : group,
                        stream == "compute" ? "" : stream + ": ", StepsLiteral(row, stages.size() == 1));
  }
  return text;
}

std::string ToPiper(const Table& table, const Extent& extent, std::string_view stem,
                    std::string_view closed_form) {
  const std::string name = Printable(stem);
  std::string text = fmt::format(
      "// The schedule of {0}.csv: {1} ranks, {2} stages, {3} microbatches; written by `piper import csv`.\n"
      "//\n"
      "// As it is, `piper run` shows the order on a stand-in model at F = I = W = 1 ms. For a model of your "
      "own, whose\n"
      "// regions are called embed, layer and head (else change `cut`), import this file and use its "
      "strategy:\n"
      "//\n"
      "//   import \"{0}.piper\" as imported\n"
      "//   train {{ ..; on topologies.local(ranks = {1}); using imported.pipeline() }}\n"
      "import std.gpt\n"
      "{5}"
      "import std.topologies\n"
      "\n"
      "let ranks = {1}\n"
      "let stages = {2}\n"
      "let microbatches = {3}\n"
      "// The rank of each stage.\n"
      "{4}"
      "\n",
      name, table.ranks.size(), extent.stages, extent.microbatches, Placement(extent, table.ranks.size()),
      closed_form.empty() ? "" : "import std.schedules\n");
  if (closed_form.empty()) {
    text +=
        "// The steps of a rank, in order: stage (where the rank has several), F, B or its halves I and W, "
        "microbatch (where\n"
        "// it is not the next one of its stage and pass); `3*( )` repeats, `&` runs both as one.\n";
  } else {
    text += "// The steps of a rank, in order: on every rank those of a schedule of the library.\n";
  }
  text += "fn steps_of(rank: int) -> schedule requires 0 <= rank and rank < ranks {\n";
  text += closed_form.empty() ? Orders(table) : fmt::format("  {}\n", closed_form);
  text +=
      "}\n"
      "\n"
      "strategy pipeline(dp: int = 1, bucket: bytes = 25 MiB) {\n"
      "  mesh (pp = ranks, dp = dp)\n"
      "  cut embed, layer, head into stages as stage\n"
      "  split batch into microbatches as mb\n"
      "  shard batch over dp\n"
      "  zero 0 [*] as dp { bucket bucket }\n"
      "  for s in 0..stages { place [stage = s] on pp[rank_of[s]] }\n"
      "  for r in 0..ranks {\n"
      "    order on pp[r] { steps_of(r) }\n"
      "  }\n"
      "}\n"
      "\n"
      "// What the order alone is worth: equal passes, and nothing else takes time.\n"
      "strategy study() {\n"
      "  use pipeline()\n"
      "  cost F[stage] = 1 ms\n"
      "  cost BI[stage] = 1 ms\n"
      "  cost BW[stage] = 1 ms\n"
      "  cost [accumulate] = 0 us\n"
      "  cost [update] = 0 us\n"
      "}\n"
      "\n"
      "model net = gpt.GPT(layers = stages, embed = 16, heads = 2, vocab = 64, seq = 8)\n"
      "\n"
      "train {\n"
      "  model        net\n"
      "  data         random()\n"
      "  global_batch microbatches\n"
      "  steps        1\n"
      "  optimizer    adamw(lr = 1e-3)\n"
      "  on           topologies.ideal(ranks = ranks)\n"
      "  using        study()\n"
      "}\n";
  return text;
}

}  // namespace piper::ir::schedule_csv
