#include "ir/lower/lanes.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>

namespace piper::ir {

bool CheckLanes(const RoleStorage& role, const Program& program, DiagnosticEngine& diag) {
  constexpr size_t kMaxLanes = 8;  // of a transport (runtime/transport.h)
  if (role.streams.size() <= kMaxLanes) return true;
  std::map<std::pair<runtime::TaskKind, uint32_t>, std::set<uint16_t>> streams;
  for (const runtime::Stream& stream : role.streams) {
    const runtime::Task* known = nullptr;  // to be like the one before is the rule
    for (uint32_t t = stream.first_task; t < stream.first_task + stream.task_count; ++t) {
      const runtime::Task& task = role.tasks[t];
      if (known != nullptr && known->kind == task.kind && known->argument == task.argument) continue;
      known = &task;
      const bool message = task.kind == runtime::TaskKind::kSend || task.kind == runtime::TaskKind::kRecv;
      if (message || task.kind == runtime::TaskKind::kCollective)
        streams[{task.kind, message ? task.argument : 0}].insert(task.stream);
    }
  }
  for (const auto& [where, used] : streams) {
    if (used.size() <= kMaxLanes) continue;
    const RoleStorage::Rank& rank = role.ranks.at(0);
    const auto& [kind, peer] = where;
    const std::string what = kind == runtime::TaskKind::kCollective ? "joins collectives"
                             : kind == runtime::TaskKind::kSend
                                 ? fmt::format("sends to rank {}", rank.peers.at(peer))
                                 : fmt::format("receives from rank {}", rank.peers.at(peer));
    // Without directives there are no more than four: the last one is as good a place as any.
    SourceRange range = program.train.range;
    for (const Directive& directive : program.directives) {
      if (std::holds_alternative<StreamDirective>(directive.body)) range = directive.range;
    }
    diag.Error(range, DiagKind::kBadStream,
               fmt::format("rank {} {} on {} streams; at most {} are possible", rank.rank, what, used.size(),
                           kMaxLanes))
        .Hint("let several of them share a stream");
    return false;
  }
  return true;
}

}  // namespace piper::ir
