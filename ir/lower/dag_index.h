// Look-up tables over one Dag that all its roles share while they are lowered.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/dag/dag.h"
#include "ir/dag/template_index.h"
#include "ir/lower/job_storage.h"
#include "ir/model/body.h"
#include "ir/program/program.h"

namespace piper::ir {

struct DagIndex {
  DagIndex(const Dag& d, const RegionGraph& r, const Program& program, JobStorage* job,
           const SourceManager& sources);

  const Dag& dag;
  const RegionGraph& regions;

  const TemplateIndex template_of;  // per node
  std::vector<uint32_t>
      stage_key;                 // per template: dense number of its (stage, copy); compute only, else kNone
  std::vector<uint32_t> name;    // per template: Job::strings
  std::vector<uint32_t> origin;  // per Dag::origins: Job::strings

  // Templates with an edge into `t`, ascending.
  std::span<const TemplateId> Predecessors(TemplateId t) const {
    return std::span(predecessors_)
        .subspan(first_predecessor_[t], first_predecessor_[t + 1] - first_predecessor_[t]);
  }
  const Body& BodyOf(const NodeTemplate& node) const;

 private:
  std::vector<uint32_t> first_predecessor_;
  std::vector<TemplateId> predecessors_;
};

bool HasName(const NodeTemplate& node, NameId name);

}  // namespace piper::ir
