#include "ir/lower/dag_index.h"

#include <algorithm>

#include "ir/dag/region_body.h"
#include "ir/dag/stage_copies.h"
#include "ir/support/result.h"

namespace piper::ir {

bool HasName(const NodeTemplate& node, NameId name) {
  return std::find(node.names.begin(), node.names.end(), name) != node.names.end();
}

DagIndex::DagIndex(const Dag& d, const RegionGraph& r, const Program& program, JobStorage* job,
                   const SourceManager& sources)
    : dag(d), regions(r), template_of(d) {
  for (const NodeTemplate& node : dag.templates) name.push_back(job->InternString(node.name));

  ListStageCopies(dag, program, &stage_key);

  for (const SourceRange& range : dag.origins) {
    origin.push_back(range.valid() ? job->InternString(sources.Describe(range)) : 0);
  }

  first_predecessor_.assign(dag.templates.size() + 1, 0);
  for (const TemplateEdge& edge : dag.edges) ++first_predecessor_[edge.to + 1];
  for (size_t t = 0; t < dag.templates.size(); ++t) first_predecessor_[t + 1] += first_predecessor_[t];
  predecessors_.resize(dag.edges.size());
  std::vector<uint32_t> next(first_predecessor_.begin(), first_predecessor_.end() - 1);
  for (const TemplateEdge& edge : dag.edges) predecessors_[next[edge.to]++] = edge.from;
}

const Body& DagIndex::BodyOf(const NodeTemplate& node) const { return ir::BodyOf(regions, node); }

}  // namespace piper::ir
