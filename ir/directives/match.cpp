#include "ir/directives/match.h"

#include <algorithm>

#include <fmt/format.h>

namespace piper::ir {

namespace {

bool IsWildcard(std::string_view text) { return text.size() >= 2 && text.substr(text.size() - 2) == ".*"; }

// `pattern` may be "ep.*"; a plain name matches itself only.
bool NameMatches(NameId pattern, NameId name) {
  if (pattern == name) return true;
  const std::string& text = NameText(pattern);
  return IsWildcard(text) && NameText(name).starts_with(std::string_view(text).substr(0, text.size() - 1));
}

bool TermHolds(const SelectorTerm& term, const TagSet& set) {
  for (const auto& [name, index] : set.tags) {
    if (name == term.name && term.Contains(index)) return true;
  }
  if (term.has_range) return false;
  return std::any_of(set.names.begin(), set.names.end(),
                     [&](NameId name) { return NameMatches(term.name, name); });
}

std::string IndexText(int64_t begin, int64_t end) {
  return end == begin + 1 ? fmt::format("only the index {}", begin)
                          : fmt::format("the indices {}..{}", begin, end);
}

}  // namespace

TagSet MakeTagSet(const TagPath& tags, const std::vector<NameId>& names) {
  TagSet set;
  set.names = names;
  for (const TagInstance& tag : tags) set.tags.emplace_back(InternName(tag.name), tag.index);
  return set;
}

SplitIndex::SplitIndex(const std::vector<std::pair<std::string, int64_t>>& dims) {
  for (const auto& [name, size] : dims) dims_.push_back({InternName(name), size, 1});
  for (size_t i = dims_.size(); i-- > 0;) {
    dims_[i].stride = size_;
    size_ *= dims_[i].size;
  }
}

bool SplitIndex::IsSplit(NameId name) const {
  return std::any_of(dims_.begin(), dims_.end(), [&](const Dim& d) { return d.name == name; });
}

bool SplitIndex::Constrains(const SelectorClause& clause) const {
  return std::any_of(clause.terms.begin(), clause.terms.end(),
                     [&](const SelectorTerm& t) { return IsSplit(t.name); });
}

void SplitIndex::Collect(const SelectorClause& clause, int32_t begin, int32_t end,
                         std::vector<int32_t>* out) const {
  CollectFrom(clause, 0, 0, begin, end, out);
}

void SplitIndex::CollectFrom(const SelectorClause& clause, size_t dim, int64_t base, int32_t begin,
                             int32_t end, std::vector<int32_t>* out) const {
  if (dim == dims_.size()) {
    if (base >= begin && base < end) out->push_back(static_cast<int32_t>(base));
    return;
  }
  const Dim& d = dims_[dim];
  // The positive inline ranges bound the scan; most steps name one index.
  int64_t low = 0, high = d.size;
  for (const SelectorTerm& term : clause.terms) {
    if (term.name != d.name || term.negated || !term.has_range || !term.more.empty()) continue;
    low = std::max(low, term.begin);
    high = std::min(high, term.end);
  }
  for (int64_t i = low; i < high; ++i) {
    int64_t first = base + i * d.stride;
    if (first >= end || first + d.stride <= begin) continue;
    bool admitted = true;
    for (const SelectorTerm& term : clause.terms) {
      if (term.name == d.name && term.Contains(i) == term.negated) admitted = false;
    }
    if (admitted) CollectFrom(clause, dim + 1, first, begin, end, out);
  }
}

bool TagsMatch(const SelectorClause& clause, const TagSet& tags, const SplitIndex& split) {
  return std::all_of(clause.terms.begin(), clause.terms.end(), [&](const SelectorTerm& term) {
    return split.IsSplit(term.name) || TermHolds(term, tags) != term.negated;
  });
}

void Vocabulary::AddTag(NameId name, int64_t index) {
  auto [it, fresh] = tags_.try_emplace(name, index, index + 1);
  if (fresh) return;
  it->second.first = std::min(it->second.first, index);
  it->second.second = std::max(it->second.second, index + 1);
}

void Vocabulary::AddSplit(NameId name, int64_t size) { splits_[name] = size; }

void Vocabulary::AddInserted(NameId name) {
  if (std::find(inserted_.begin(), inserted_.end(), name) == inserted_.end()) inserted_.push_back(name);
}

bool Vocabulary::IsInserted(NameId name) const {
  return std::any_of(inserted_.begin(), inserted_.end(),
                     [&](NameId known) { return NameMatches(name, known); });
}

void Vocabulary::AddAbsent(NameId name, std::string_view hint) { absent_[name] = hint; }

void Vocabulary::AddAbsent(Pass pass, std::string_view hint) { absent_passes_[pass] = hint; }

std::string_view Vocabulary::WhyAbsent(const SelectorClause& clause) const {
  for (const auto& [pass, hint] : absent_passes_) {
    if (clause.passes == PassBit(pass)) return hint;
  }
  for (const SelectorTerm& term : clause.terms) {
    if (term.negated || tags_.count(term.name) || splits_.count(term.name)) continue;
    // Of a wildcard all must be absent.
    std::string_view why;
    const bool absent = std::all_of(inserted_.begin(), inserted_.end(), [&](NameId known) {
      if (!NameMatches(term.name, known)) return true;
      auto found = absent_.find(known);
      if (found == absent_.end()) return false;
      why = found->second;
      return true;
    });
    if (absent && !why.empty()) return why;
  }
  return {};
}

bool Vocabulary::NamesInserted(const SelectorClause& clause) const {
  return std::any_of(clause.terms.begin(), clause.terms.end(), [&](const SelectorTerm& term) {
    return !term.negated && !tags_.count(term.name) && !splits_.count(term.name) && IsInserted(term.name);
  });
}

bool Vocabulary::ReportUnknownNames(const Selector& selector, SourceRange fallback,
                                    DiagnosticEngine& diag) const {
  SourceRange range = selector.range.valid() ? selector.range : fallback;
  for (const SelectorClause& clause : selector.any_of) {
    if (clause.optional) continue;
    Selector alone;
    alone.any_of = {clause};
    if (std::string_view why = WhyAbsent(clause); !why.empty()) {
      diag.Error(range, DiagKind::kEmptySelector,
                 fmt::format("{} selects nothing: nothing here inserts such a node", alone.ToString()))
          .Hint(fmt::format("{}; write `?` after a selector that may be empty", why));
      return true;
    }
    for (const SelectorTerm& term : clause.terms) {
      if (tags_.count(term.name) || splits_.count(term.name) || IsInserted(term.name)) continue;
      std::vector<std::string> candidates;
      for (const auto& entry : tags_) candidates.push_back(NameText(entry.first));
      for (const auto& entry : splits_) candidates.push_back(NameText(entry.first));
      for (NameId name : inserted_) candidates.push_back(NameText(name));
      std::sort(candidates.begin(), candidates.end());
      const std::string& name = NameText(term.name);
      auto error =
          diag.Error(range, DiagKind::kNoSuchTag,
                     fmt::format("nothing is called '{}': a selector names tags, split indices or inserted "
                                 "nodes",
                                 name));
      if (std::string near = NearestName(name, candidates); !near.empty()) {
        error.Hint(fmt::format("did you mean '{}'?", near));
      } else {
        std::string known;
        for (const auto& entry : tags_) known += (known.empty() ? "" : ", ") + NameText(entry.first);
        error.Hint(fmt::format("the tags are {}", known.empty() ? "none" : known));
      }
      return true;
    }
    // One alternative of several; where it is the only one, whether it may be empty is not said here.
    if (selector.any_of.size() > 1 && ReportOutside(clause, alone, range, diag)) return true;
  }
  return false;
}

bool Vocabulary::ReportOutside(const SelectorClause& clause, const Selector& selector, SourceRange range,
                               DiagnosticEngine& diag) const {
  for (const SelectorTerm& term : clause.terms) {
    if (term.negated || !term.has_range) continue;
    std::pair<int64_t, int64_t> legal;
    if (auto tag = tags_.find(term.name); tag != tags_.end()) {
      legal = tag->second;
    } else if (auto split = splits_.find(term.name); split != splits_.end()) {
      legal = {0, split->second};
    } else {
      continue;
    }
    auto outside = [&](int64_t begin, int64_t end) { return end <= legal.first || begin >= legal.second; };
    bool all_outside = outside(term.begin, term.end) &&
                       std::all_of(term.more.begin(), term.more.end(),
                                   [&](const auto& r) { return outside(r.first, r.second); });
    if (!all_outside) continue;
    const bool unsplit = legal == std::pair<int64_t, int64_t>(0, 1) && splits_.contains(term.name);
    diag.Error(range, DiagKind::kEmptySelector, fmt::format("{} selects nothing", selector.ToString()))
        .Hint(fmt::format(
            "'{}' has {}{}", NameText(term.name), IndexText(legal.first, legal.second),
            unsplit ? fmt::format(": `split batch into n as {}` makes more", NameText(term.name)) : ""));
    return true;
  }
  return false;
}

void Vocabulary::ExplainEmpty(const Selector& selector, SourceRange fallback, DiagnosticEngine& diag) const {
  if (ReportUnknownNames(selector, fallback, diag)) return;
  SourceRange range = selector.range.valid() ? selector.range : fallback;
  for (const SelectorClause& clause : selector.any_of) {
    if (ReportOutside(clause, selector, range, diag)) return;
  }
  diag.Error(range, DiagKind::kEmptySelector,
             fmt::format("{} selects nothing: no node has all of these", selector.ToString()))
      .Hint("write `?` after a selector that may be empty");
}

}  // namespace piper::ir
