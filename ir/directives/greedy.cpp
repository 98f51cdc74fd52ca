#include "ir/directives/greedy.h"

#include <algorithm>

#include <fmt/format.h>

#include "ir/directives/greedy_problem.h"
#include "ir/support/result.h"

namespace piper::ir {

namespace {

std::string CapText(const GreedySpec& spec, Resource resource) {
  return resource == kInFlight ? fmt::format("in_flight = {}", spec.in_flight)
                               : fmt::format("memory = {}", FormatBytes(spec.memory));
}

// To the byte: it is what a person may write.
std::string CapText(int64_t cap, Resource resource) {
  return resource == kInFlight ? fmt::format("in_flight = {}", cap) : fmt::format("memory = {} B", cap);
}

class Resolver {
 public:
  Resolver(BuildContext& context, AtomicMarker& marker) : context_(context), marker_(marker) {}

  void Run() {
    for (const GreedyOrder& order : context_.greedy_orders) {
      if (IsFirst(order)) CheckPriorities(order);
    }
    if (context_.Failed()) return;
    problem_ = BuildGreedyProblem(context_);
    for (const GreedyOrder& order : context_.greedy_orders) {
      if (IsFirst(order)) CheckCaps(order);
    }
    if (context_.Failed()) return;
    ListOrder found = ResolveOrder(problem_.list);
    if (found.stuck && ReportCaps()) return;
    for (const GreedyOrder& order : context_.greedy_orders)
      Write(order, found.stuck ? DefaultOrder(order.host) : found.hosts[order.host]);
  }

 private:
  // One `greedy(..)` may order several hosts.
  bool IsFirst(const GreedyOrder& order) const {
    for (const GreedyOrder& other : context_.greedy_orders) {
      if (other.spec == order.spec) return &other == &order;
    }
    return true;
  }

  void CheckPriorities(const GreedyOrder& order) {
    for (const Selector& selector : order.spec->priority) {
      if (context_.ReportIfEmpty(selector, order.range)) return;
    }
  }

  int64_t Reserve(size_t host, Resource resource) const {
    return resource == kBytes ? problem_.reserve[host] : 0;
  }

  // A cap that one microbatch alone exceeds.
  void CheckCaps(const GreedyOrder& order) {
    for (Resource resource : {kInFlight, kBytes}) {
      int64_t least = 0;
      size_t host = order.host;
      for (const GreedyOrder& other : context_.greedy_orders) {
        if (other.spec != order.spec) continue;
        const int64_t needed =
            SaturatingAdd(problem_.list.LeastCap(static_cast<uint32_t>(other.host), resource),
                          Reserve(other.host, resource));
        if (needed <= least) continue;
        least = needed;
        host = other.host;
      }
      if (problem_.list.hosts[host].cap[resource] >= least - Reserve(host, resource)) continue;
      const std::string& group = context_.dag.groups[context_.hosts[host]].text;
      context_.diag
          .Error(order.range, DiagKind::kBadGreedy,
                 resource == kInFlight
                     ? fmt::format("{}: a microbatch passes {} stages of {} before it comes back",
                                   CapText(*order.spec, resource), least, group)
                     : fmt::format("{}: one microbatch saves up to {} on {}", CapText(*order.spec, resource),
                                   FormatBytes(least), group))
          .Hint(fmt::format("{} is the least", CapText(least, resource)));
    }
  }

  // Given orders of other hosts ask for more than the caps allow: says how much is enough. False where caps
  // are not what keeps it from going on.
  bool ReportCaps() {
    if (!GoesOn(nullptr, kInFlight, kNoCap)) return false;
    std::vector<SourceRange> reported;
    for (const GreedyOrder& order : context_.greedy_orders) {
      if (!IsFirst(order) || std::find(reported.begin(), reported.end(), order.range) != reported.end())
        continue;
      for (Resource resource : {kInFlight, kBytes}) {
        const int64_t given = resource == kInFlight ? order.spec->in_flight : order.spec->memory;
        if (given == 0 || GoesOn(&order, resource, given)) continue;
        int64_t low = given, high = given;
        do {
          low = high;
          high = high > kNoCap / 2 ? kNoCap : 2 * high;
        } while (!GoesOn(&order, resource, high));
        while (high - low > 1) {
          const int64_t middle = low + (high - low) / 2;
          (GoesOn(&order, resource, middle) ? high : low) = middle;
        }
        context_.diag
            .Error(order.range, DiagKind::kBadGreedy,
                   fmt::format("{}: the orders of other groups ask for more before anything comes back",
                               CapText(*order.spec, resource)))
            .Hint(fmt::format("{} is the least", CapText(high, resource)));
        reported.push_back(order.range);
        break;
      }
    }
    if (!reported.empty()) return true;
    // Each bound alone would do.
    context_.diag
        .Error(context_.greedy_orders[0].range, DiagKind::kBadGreedy,
               "the orders of other groups ask for more than these bounds allow together")
        .Hint("raise the bounds of one group");
    return true;
  }

  // With this one bound, and no other.
  bool GoesOn(const GreedyOrder* order, Resource resource, int64_t cap) const {
    ListProblem changed = problem_.list;
    for (ListProblem::Host& host : changed.hosts) std::fill(host.cap, host.cap + kResources, kNoCap);
    for (const GreedyOrder& other : context_.greedy_orders) {
      if (order != nullptr && other.spec == order->spec)
        changed.hosts[other.host].cap[resource] = cap - Reserve(other.host, resource);
    }
    return !ResolveOrder(changed, 0).stuck;
  }

  // Forward, then backward, per microbatch: what stands where no order can be.
  std::vector<uint32_t> DefaultOrder(size_t host) const {
    const ListProblem& list = problem_.list;
    std::vector<uint32_t> order;
    for (int32_t mb = 0; mb < context_.dag.microbatches; ++mb) {
      const auto add = [&](const ListProblem::Unit& unit, int pass) {
        if (unit.host != host || unit.queues[pass] == UINT32_MAX || mb < unit.mb_begin || mb >= unit.mb_end)
          return;
        order.push_back(list.queues[unit.queues[pass]].first + static_cast<uint32_t>(mb - unit.mb_begin));
      };
      for (const ListProblem::Unit& unit : list.units) add(unit, 0);
      for (size_t u = list.units.size(); u-- > 0;) {
        add(list.units[u], 1);
        add(list.units[u], 2);
      }
    }
    return order;
  }

  void Write(const GreedyOrder& order, const std::vector<uint32_t>& operations) {
    const NameId compute = InternName("compute");
    const bool whole = KeepsBackwardWhole(*order.spec);
    ListedStream* listed = nullptr;
    for (ListedStream& stream : context_.host_orders[order.host].streams) {
      if (stream.stream == compute) listed = &stream;
    }
    PIPER_CHECK(listed != nullptr && listed->items.empty());
    std::vector<ExpandedNode> nodes;
    for (uint32_t op : operations) {
      const uint32_t q = problem_.list.queue_of[op];
      const ListProblem::Queue& queue = problem_.list.queues[q];
      const int32_t mb = problem_.list.units[queue.unit].mb_begin + static_cast<int32_t>(op - queue.first);
      nodes.clear();
      for (TemplateId t : problem_.pass_templates[q]) nodes.push_back({context_.dag.Node(t, mb), t, mb});
      marker_.Append(nodes, order.origin, kNone, whole && queue.pass == ListProblem::Pass::kBackward,
                     &listed->items);
    }
  }

  BuildContext& context_;
  AtomicMarker& marker_;
  GreedyProblem problem_;
};

}  // namespace

void ResolveGreedy(BuildContext& context, AtomicMarker& marker) {
  if (!context.greedy_orders.empty()) Resolver(context, marker).Run();
}

}  // namespace piper::ir
