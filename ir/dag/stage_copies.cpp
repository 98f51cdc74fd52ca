#include "ir/dag/stage_copies.h"

#include <map>
#include <utility>

namespace piper::ir {

std::string StageTag(const Program& program) {
  std::string tag = "stage";
  for (const Directive& directive : program.directives) {
    if (const CutDirective* cut = std::get_if<CutDirective>(&directive.body)) tag = cut->as;
  }
  return tag;
}

std::vector<StageCopy> ListStageCopies(const Dag& dag, const Program& program,
                                       std::vector<uint32_t>* key_of) {
  const std::string stage_tag = StageTag(program);
  std::vector<StageCopy> copies;
  std::map<std::pair<int64_t, uint32_t>, uint32_t> keys;
  for (const NodeTemplate& node : dag.templates) {
    uint32_t key = kNone;
    if (node.kind == NodeKind::kCompute) {
      StageCopy copy{-1, node.copy};
      for (const TagInstance& tag : node.tags) {
        if (tag.name == stage_tag) copy.stage = tag.index;
      }
      const auto [it, fresh] =
          keys.emplace(std::pair(copy.stage, copy.copy), static_cast<uint32_t>(keys.size()));
      if (fresh) copies.push_back(copy);
      key = it->second;
    }
    if (key_of != nullptr) key_of->push_back(key);
  }
  return copies;
}

}  // namespace piper::ir
