// How selectors meet what they select. A TagSet is what a region or a node carries (model tags with indices,
// inserted names); a Vocabulary knows every legal name and index range, so that a selector that matches
// nothing is refused with the nearest legal spelling; SplitIndex turns terms on split indices (`mb = 3`) into
// microbatch numbers.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/program/program.h"
#include "ir/support/diagnostics.h"
#include "ir/support/nearest.h"

namespace piper::ir {

struct TagSet {
  std::vector<std::pair<NameId, int64_t>> tags;
  std::vector<NameId> names;  // of an inserted node: [send], [dp.reduce]
};
TagSet MakeTagSet(const TagPath& tags, const std::vector<NameId>& names = {});

// The dimensions that `split` made, outermost first; the linear microbatch index is row-major over them.
class SplitIndex {
 public:
  SplitIndex() = default;
  explicit SplitIndex(const std::vector<std::pair<std::string, int64_t>>& dims);
  struct Dim {
    NameId name = 0;
    int64_t size = 1, stride = 1;
  };
  const std::vector<Dim>& dims() const { return dims_; }
  bool IsSplit(NameId name) const;
  int64_t size() const { return size_; }
  bool Constrains(const SelectorClause& clause) const;  // a term on a split index
  // The microbatches that the clause admits, ascending, within [begin, end); appended to `out`.
  void Collect(const SelectorClause& clause, int32_t begin, int32_t end, std::vector<int32_t>* out) const;

 private:
  void CollectFrom(const SelectorClause& clause, size_t dim, int64_t base, int32_t begin, int32_t end,
                   std::vector<int32_t>* out) const;
  std::vector<Dim> dims_;
  int64_t size_ = 1;
};

// Whether the tags satisfy every term; terms on split indices are left out.
bool TagsMatch(const SelectorClause& clause, const TagSet& tags, const SplitIndex& split);

// Every name that a selector may use.
class Vocabulary {
 public:
  void AddTag(NameId name, int64_t index);
  void AddSplit(NameId name, int64_t size);
  void AddInserted(NameId name);
  // Nothing of the program inserts such nodes, of whatever sizes it is; `hint` says what would.
  void AddAbsent(NameId name, std::string_view hint);
  void AddAbsent(Pass pass, std::string_view hint);
  bool IsTag(NameId name) const { return tags_.count(name) != 0; }
  bool IsInserted(NameId name) const;  // wildcards ("ep.*") included
  // A positive term names an inserted node: the clause is about those.
  bool NamesInserted(const SelectorClause& clause) const;
  // The reason why nothing is selected, located at the selector (or at `fallback`, the directive).
  void ExplainEmpty(const Selector& selector, SourceRange fallback, DiagnosticEngine& diag) const;
  // What would insert the nodes that the clause is about, where nothing does; else empty.
  std::string_view WhyAbsent(const SelectorClause& clause) const;
  // True after an error: a clause that is not optional has a positive or negated term with a name that
  // nothing has, or is about nodes that nothing inserts.
  bool ReportUnknownNames(const Selector& selector, SourceRange fallback, DiagnosticEngine& diag) const;
  const std::map<NameId, std::pair<int64_t, int64_t>>& tags() const { return tags_; }

 private:
  bool ReportOutside(const SelectorClause& clause, const Selector& selector, SourceRange range,
                     DiagnosticEngine& diag) const;
  std::map<NameId, std::pair<int64_t, int64_t>> tags_;  // [lowest, highest + 1)
  std::map<NameId, int64_t> splits_;
  std::vector<NameId> inserted_;
  std::map<NameId, std::string_view> absent_;  // of `inserted_`; the hint
  std::map<Pass, std::string_view> absent_passes_;
};

}  // namespace piper::ir
