#include <algorithm>

#include <fmt/format.h>

#include "ir/program/program.h"

namespace piper::ir {

namespace {

constexpr PassSet kEveryPass = (1u << (static_cast<unsigned>(Pass::kNone) + 1)) - 1;
constexpr size_t kMaxClauses = 4096;

// Apart from the negation.
bool SameAtom(const SelectorTerm& a, const SelectorTerm& b) {
  return a.name == b.name && a.has_range == b.has_range &&
         (!a.has_range || (a.begin == b.begin && a.end == b.end && a.more == b.more));
}

bool SameTerm(const SelectorTerm& a, const SelectorTerm& b) {
  return a.negated == b.negated && SameAtom(a, b);
}

bool SameClause(const SelectorClause& a, const SelectorClause& b) {
  return a.passes == b.passes &&
         std::equal(a.terms.begin(), a.terms.end(), b.terms.begin(), b.terms.end(), SameTerm);
}

// A clause that holds a term and its negation, or only passes that exclude each other, matches nothing.
bool Contradicts(const SelectorClause& clause) {
  for (size_t i = 0; i < clause.terms.size(); ++i) {
    for (size_t j = i + 1; j < clause.terms.size(); ++j) {
      const SelectorTerm& a = clause.terms[i];
      const SelectorTerm& b = clause.terms[j];
      if (a.negated != b.negated && SameAtom(a, b)) return true;
    }
  }
  return false;
}

// nullopt: no node matches both.
std::optional<SelectorClause> Conjunction(const SelectorClause& a, const SelectorClause& b) {
  SelectorClause both = a;
  if (b.passes != 0) {
    both.passes = a.passes == 0 ? b.passes : static_cast<PassSet>(a.passes & b.passes);
    if (both.passes == 0) return std::nullopt;
  }
  for (const SelectorTerm& term : b.terms) {
    bool known = std::any_of(both.terms.begin(), both.terms.end(),
                             [&](const SelectorTerm& t) { return SameTerm(t, term); });
    if (!known) both.terms.push_back(term);
  }
  if (Contradicts(both)) return std::nullopt;
  both.optional = a.optional || b.optional;
  return both;
}

void AddClause(SelectorClause clause, std::vector<SelectorClause>* clauses) {
  for (SelectorClause& known : *clauses) {
    if (!SameClause(known, clause)) continue;
    known.optional = known.optional && clause.optional;
    return;
  }
  clauses->push_back(std::move(clause));
}

std::string RangeText(int64_t begin, int64_t end) {
  return end == begin + 1 ? fmt::format("{}", begin) : fmt::format("{}..{}", begin, end);
}

std::string TermText(const SelectorTerm& term) {
  std::string text = term.negated ? "not " : "";
  text += NameText(term.name);
  if (!term.has_range) return text;
  if (term.more.empty()) return text + " = " + RangeText(term.begin, term.end);
  text += " = [" + RangeText(term.begin, term.end);
  for (auto [begin, end] : term.more) text += ", " + RangeText(begin, end);
  return text + "]";
}

}  // namespace

bool SelectorTerm::Contains(int64_t index) const {
  if (!has_range) return true;
  if (index >= begin && index < end) return true;
  return std::any_of(more.begin(), more.end(), [&](const std::pair<int64_t, int64_t>& r) {
    return index >= r.first && index < r.second;
  });
}

Selector Selector::All() {
  Selector all;
  all.any_of.emplace_back();
  return all;
}

Selector Selector::Intersect(const Selector& other) const {
  Selector result;
  result.optional = optional || other.optional;
  result.range = range.valid() ? range : other.range;
  for (const SelectorClause& a : any_of) {
    for (const SelectorClause& b : other.any_of) {
      if (auto both = Conjunction(a, b)) AddClause(std::move(*both), &result.any_of);
    }
  }
  return result;
}

Selector Selector::Union(const Selector& other) const {
  Selector result = *this;
  result.optional = optional && other.optional;
  result.range = range.Cover(other.range);
  for (const SelectorClause& clause : other.any_of) AddClause(clause, &result.any_of);
  return result;
}

std::optional<Selector> Selector::Complement() const {
  // De Morgan: the conjunction, over the clauses, of the alternatives that break each one.
  Selector result = All();
  result.optional = optional;
  result.range = range;
  for (const SelectorClause& clause : any_of) {
    result.any_of[0].optional = result.any_of[0].optional || clause.optional;
    std::vector<SelectorClause> alternatives;
    if (clause.passes != 0) {
      auto others = static_cast<PassSet>(kEveryPass & ~clause.passes);
      if (others != 0) alternatives.push_back({others, {}});
    }
    for (const SelectorTerm& term : clause.terms) {
      SelectorTerm flipped = term;
      flipped.negated = !flipped.negated;
      alternatives.push_back({0, {std::move(flipped)}});
    }
    if (result.any_of.size() * alternatives.size() > kMaxClauses) return std::nullopt;
    std::vector<SelectorClause> next;
    for (const SelectorClause& so_far : result.any_of) {
      for (const SelectorClause& alternative : alternatives) {
        if (auto both = Conjunction(so_far, alternative)) AddClause(std::move(*both), &next);
      }
    }
    result.any_of = std::move(next);
  }
  return result;
}

StepSelector::StepSelector(Selector selector) {
  const auto single = [](const SelectorTerm& term) {
    return !term.negated && term.has_range && term.more.empty() && term.begin >= INT32_MIN &&
           term.begin < INT32_MAX && term.end == term.begin + 1;
  };
  if (selector.any_of.size() == 1 && selector.any_of[0].terms.size() <= kMostIndices &&
      std::all_of(selector.any_of[0].terms.begin(), selector.any_of[0].terms.end(), single)) {
    Clear(selector.any_of[0].passes, selector.range);
    optional_ = selector.optional;
    for (const SelectorTerm& term : selector.any_of[0].terms)
      AddIndex(term.name, static_cast<int32_t>(term.begin));
    return;
  }
  full_ = std::make_unique<Selector>(std::move(selector));
}

StepSelector::StepSelector(const StepSelector& other)
    : indexed_(other.indexed_),
      optional_(other.optional_),
      passes_(other.passes_),
      count_(other.count_),
      range_(other.range_),
      full_(other.full_ == nullptr ? nullptr : std::make_unique<Selector>(*other.full_)) {
  std::copy(std::begin(other.indices_), std::end(other.indices_), indices_);
}

StepSelector& StepSelector::operator=(const StepSelector& other) {
  if (this != &other) *this = StepSelector(other);
  return *this;
}

Selector StepSelector::Full() const {
  if (full_ != nullptr) return *full_;
  Selector selector;
  if (!indexed_) return selector;
  selector.optional = optional_;
  selector.range = range_;
  SelectorClause& clause = selector.any_of.emplace_back();
  clause.passes = passes_;
  clause.optional = optional_;
  clause.terms.reserve(count_);
  for (const Index& index : indices()) {
    SelectorTerm& term = clause.terms.emplace_back();
    term.name = index.name;
    term.has_range = true;
    term.begin = index.index;
    term.end = int64_t{index.index} + 1;
  }
  return selector;
}

std::string Selector::ToString() const {
  if (any_of.empty()) return "nothing";
  std::string text;
  for (const SelectorClause& clause : any_of) {
    std::string terms;
    for (const SelectorTerm& term : clause.terms) {
      if (!terms.empty()) terms += ", ";
      terms += TermText(term);
    }
    std::string bracket = "[" + (terms.empty() ? "*" : terms) + "]";
    // A set of passes reads as one alternative each; BI and BW together are B.
    std::vector<std::string_view> passes;
    PassSet rest = clause.passes;
    if (rest == kEveryPass) rest = 0;
    if ((rest & kPassB) == kPassB) {
      passes.push_back("B");
      rest = static_cast<PassSet>(rest & ~kPassB);
    }
    static constexpr std::string_view kPassTexts[] = {"F", "BI", "BW", "R", "U"};
    for (unsigned pass = 0; pass < std::size(kPassTexts); ++pass) {
      if (rest & (1u << pass)) passes.push_back(kPassTexts[pass]);
    }
    // Nodes without a pass (messages, collectives) have no spelling of their own.
    if (passes.empty()) passes.push_back("");
    for (std::string_view pass : passes) {
      if (!text.empty()) text += " or ";
      text += fmt::format("{}{}", pass, bracket);
    }
  }
  return text + (optional ? "?" : "");
}

}  // namespace piper::ir
