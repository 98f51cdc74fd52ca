// RoleBuilder's second half: tasks in stream order, and the waits between streams.
#include <algorithm>
#include <utility>

#include "ir/lower/role_builder.h"
#include "ir/support/result.h"
#include "ir/support/units.h"
#include "kernels/gemm.h"
#include "kernels/scratch.h"

namespace piper::ir {

using runtime::Task;
using runtime::TaskKind;

// A kGradient's first contribution goes straight into the accumulator, so that no copy runs.
void RoleBuilder::FindFirstAccumulates() {
  size_t left = 0;
  for (const Local& local : locals_) left += local.accumulator != kNone;
  for (uint32_t o : orders_) {
    for (const OrderItem& item : dag_.orders[o].items) {
      if (left == 0) return;
      const TemplateId t = index_.template_of[item.node];
      Local& local = locals_[local_of_[t]];
      if (local.accumulator == kNone || local.first_microbatch != INT32_MIN) continue;
      --left;
      local.first_microbatch = local.node->mb_begin + static_cast<int32_t>(item.node - dag_.first_node[t]);
      for (uint32_t from : local.predecessors) {
        Local& producer = locals_[from];
        if (producer.node->kind != NodeKind::kCompute || producer.node->pass != Pass::kBW ||
            producer.node->region != local.node->region) {
          continue;
        }
        const Body& body = index_.BodyOf(*producer.node);
        for (uint32_t f = 0; f < body.formals.size(); ++f) {
          const Formal& formal = body.formals[f];
          if (formal.kind != FormalKind::kGradient || formal.parameter != local.node->gradients[0].parameter)
            continue;
          PIPER_CHECK(formal.alias_of == kNone, "a forwarded gradient: " + local.node->name);
          producer.direct.emplace_back(f, local_of_[t]);
          local.elided = true;
        }
      }
    }
  }
}

// Of operand `c`: a BW's first gradient lies in the accumulator itself.
uint32_t RoleBuilder::BufferFor(const Local& local, uint32_t c, int32_t microbatch) {
  for (const auto& [operand, accumulate] : local.direct) {
    if (operand == c && locals_[accumulate].first_microbatch == microbatch)
      return locals_[accumulate].accumulator;
  }
  return BufferFor(operand_classes_[local.first_class + c], microbatch);
}

uint32_t RoleBuilder::BufferFor(uint32_t slot_class, int32_t microbatch) {
  const SlotClass& what = classes_[slot_class];
  if (what.fixed != kNone) return what.fixed;
  uint32_t& slot =
      slots_[size_t{slot_class} * static_cast<size_t>(dag_.microbatches) + static_cast<size_t>(microbatch)];
  if (slot == kNone) {
    slot = static_cast<uint32_t>(out_.buffers.size());
    out_.buffers.push_back(FreshBuffer(slot_class));
  }
  return slot;
}

runtime::Buffer RoleBuilder::FreshBuffer(uint32_t slot_class) {
  const SlotClass& what = classes_[slot_class];
  CheckBytes(what.bytes, what.name);
  return {0, what.bytes, what.kind, static_cast<runtime::ElementType>(what.type), what.name};
}

// Larger ones could not be counted.
void RoleBuilder::CheckBytes(int64_t bytes, const char* name) {
  if (bytes <= kMostBufferBytes || refused_) return;
  refused_ = true;
  context_.diag
      ->Error(context_.program.train.range, DiagKind::kMemoryExceeded,
              "'" + std::string(name) + "' takes " + FormatBytes(bytes) +
                  "; a plan counts up to 128 TiB a buffer")
      .Hint("split the batch into more microbatches, or make the model smaller");
}

Task& RoleBuilder::AddRow(const Task& row, uint32_t local) {
  Task& added = out_.tasks.emplace_back(row);
  added.stream = stream_;
  if (row.kind != TaskKind::kLoad) {
    added.atomic = atomic_;
    if (atomic_cost_ >= 0) {
      added.cost = atomic_charged_ ? 0 : atomic_cost_;
      atomic_charged_ = true;
    }
  }
  local_of_task_.push_back(local);
  return added;
}

// Compute and messages, which are nearly all tasks: one row, and its template's operands.
inline void RoleBuilder::EmitPlain(const Local& local, uint32_t l, int32_t microbatch, uint32_t origin) {
  Task& added = out_.tasks.emplace_back(local.row);
  added.stream = stream_;
  added.atomic = atomic_;
  added.microbatch = microbatch;
  added.origin = origin;
  if (atomic_cost_ >= 0) [[unlikely]] {
    added.cost = atomic_charged_ ? 0 : atomic_cost_;
    atomic_charged_ = true;
  }
  local_of_task_.push_back(l);
  added.first_operand = static_cast<uint32_t>(out_.task_operands.size());
  added.operand_count = local.class_count;
  const bool direct =
      !local.direct.empty() && std::any_of(local.direct.begin(), local.direct.end(), [&](const auto& one) {
        return locals_[one.second].first_microbatch == microbatch;
      });
  if (direct) {
    for (uint32_t c = 0; c < local.class_count; ++c)
      out_.task_operands.push_back(BufferFor(local, c, microbatch));
    return;
  }
  const OperandRow* row = operand_rows_.data() + local.first_class;
  uint32_t* const slots = slots_.data();
  for (const OperandRow* end = row + local.class_count; row != end; ++row) {
    uint32_t buffer = row->fixed;
    if (buffer == kNone) {
      uint32_t& slot = slots[row->first_slot + static_cast<size_t>(microbatch)];
      if (slot == kNone) {
        slot = static_cast<uint32_t>(out_.buffers.size());
        out_.buffers.push_back(row->fresh);
      }
      buffer = slot;
    }
    out_.task_operands.push_back(buffer);
  }
}

void RoleBuilder::AddTask(const Task& row, uint32_t local, std::initializer_list<uint32_t> operands) {
  Task& added = AddRow(row, local);
  if (operands.size() == 0) return;
  added.first_operand = static_cast<uint32_t>(out_.task_operands.size());
  added.operand_count = static_cast<uint32_t>(operands.size());
  for (uint32_t operand : operands) out_.task_operands.push_back(operand);
}

// Loads the batch fields that the node is the first to read, on the stream that is being emitted.
void RoleBuilder::EmitLoads(const Local& local, int32_t microbatch) {
  for (uint32_t input : local.inputs) {
    std::vector<uint32_t>& loads = load_of_[input];
    if (loads.empty()) loads.assign(static_cast<size_t>(dag_.microbatches), kNone);
    if (loads[static_cast<size_t>(microbatch)] != kNone) continue;
    loads[static_cast<size_t>(microbatch)] = static_cast<uint32_t>(out_.tasks.size());
    Task load{};
    load.kind = TaskKind::kLoad;
    load.microbatch = microbatch;
    load.argument = classes_[input].input;
    load.bytes = classes_[input].bytes;
    load.name = context_.job->InternString(std::string("load ") + classes_[input].name);
    load.origin = index_.origin[local.node->origin];
    load.atomic = kNone;
    AddTask(load, kNone, {BufferFor(input, microbatch)});
  }
}

void RoleBuilder::EmitItem(const OrderItem& item) {
  const TemplateId t = index_.template_of[item.node];
  const uint32_t l = local_of_[t];
  PIPER_CHECK(l != kNone, "an order lists a node of another host: " + dag_.templates[t].name);
  const Local& local = locals_[l];
  const int32_t microbatch = local.mb_begin + static_cast<int32_t>(item.node - dag_.first_node[t]);
  uint32_t& task = task_of_[local.first_node + static_cast<uint32_t>(microbatch)];
  PIPER_CHECK(task == kNone, "a node in two orders: " + local.node->name);
  const uint32_t origin = item.origin != 0 ? index_.origin[item.origin] : local.row.origin;
  if (local.plain) [[likely]] {
    task = static_cast<uint32_t>(out_.tasks.size());
    EmitPlain(local, l, microbatch, origin);
    return;
  }
  const NodeTemplate& node = *local.node;
  const uint32_t* classes = operand_classes_.data() + local.first_class;
  Task row = local.row;
  row.microbatch = microbatch;
  row.origin = origin;
  switch (node.kind) {
    case NodeKind::kAccumulate:
      if (node.step_level()) {  // a tied sum on one host: first += each other
        const std::vector<uint32_t>& terms = layout_.contributions.at(t);
        for (size_t i = 1; i < terms.size(); ++i) AddTask(row, l, {terms[0], terms[i]});
        if (terms.size() < 2) {
          row.kind = TaskKind::kBarrier;
          AddTask(row, l, {});
        }
      } else if (local.elided && microbatch == local.first_microbatch) {
        elided_.push_back({l, microbatch, static_cast<uint32_t>(out_.tasks.size()), stream_});
        return;
      } else {
        row.flag = microbatch == local.first_microbatch ? 1 : 0;
        AddTask(row, l, {local.accumulator, BufferFor(classes[0], microbatch)});
      }
      break;
    case NodeKind::kLossFold: {
      const uint32_t result = layout_.loss_parts.at(local.row.argument);
      row.argument = 0;
      AddTask(row, l, {});
      Task& added = out_.tasks.back();
      added.first_operand = static_cast<uint32_t>(out_.task_operands.size());
      out_.task_operands.push_back(result);
      int32_t begin = 0, end = static_cast<int32_t>(dag_.microbatches);
      for (uint32_t from : local.predecessors) {
        if (locals_[from].node->kind != NodeKind::kCompute) continue;
        begin = locals_[from].node->mb_begin;
        end = locals_[from].node->mb_end;
      }
      for (int32_t mb = begin; mb < end; ++mb) out_.task_operands.push_back(BufferFor(classes[0], mb));
      added.operand_count = static_cast<uint32_t>(out_.task_operands.size()) - added.first_operand;
      break;
    }
    case NodeKind::kNorm:
      if (layout_.own_squares != kNone) {
        AddTask(row, l, {layout_.norm, layout_.own_squares});
      } else {
        AddTask(row, l, {layout_.norm});
      }
      break;
    case NodeKind::kClip:
    case NodeKind::kValidate:
      AddTask(row, l, {layout_.norm});
      break;
    case NodeKind::kPartial:
      if (layout_.received_squares != kNone) {
        AddTask(row, l, {layout_.partial_squares, layout_.own_squares, layout_.received_squares});
      } else {
        AddTask(row, l, {layout_.partial_squares, layout_.own_squares});
      }
      break;
    default: {
      AddTask(row, l, {});
      Task& added = out_.tasks.back();
      added.first_operand = static_cast<uint32_t>(out_.task_operands.size());
      added.operand_count = local.class_count;
      for (uint32_t c = 0; c < local.class_count; ++c) {
        out_.task_operands.push_back(BufferFor(local, c, microbatch));
      }
    }
  }
  task = static_cast<uint32_t>(out_.tasks.size()) - 1;
}

// Room for one slot a (class, microbatch) that some operand names.
void RoleBuilder::ReserveBuffers() {
  std::vector<std::pair<int32_t, int32_t>> used(classes_.size(), {INT32_MAX, 0});
  for (const Local& local : locals_) {
    const int32_t begin = std::max(local.node->mb_begin, 0), end = std::max(local.node->mb_end, 0);
    for (uint32_t c = 0; c < local.class_count; ++c) {
      auto& [first, last] = used[operand_classes_[local.first_class + c]];
      first = std::min(first, begin);
      last = std::max(last, end);
    }
  }
  size_t slots = 0;
  for (size_t c = 0; c < classes_.size(); ++c) {
    if (classes_[c].fixed == kNone && used[c].first < used[c].second)
      slots += static_cast<size_t>(used[c].second - used[c].first);
  }
  // Static buffers stand already; each computing stream may add a scratch.
  out_.buffers.reserve(out_.buffers.size() + slots + 1);
}

// A fused node of which one task is left is an ordinary task.
void RoleBuilder::EndAtomic() {
  if (atomic_ != kNone && atomic_begin_ + 1 == out_.tasks.size()) out_.tasks.back().atomic = kNone;
  atomic_begin_ = kNone;
}

void RoleBuilder::EmitStreams() {
  for (uint32_t& slot_class : operand_classes_) slot_class = Root(slot_class);
  slots_.assign(classes_.size() * static_cast<size_t>(dag_.microbatches), kNone);
  size_t operands = 0;
  for (Local& local : locals_) {
    for (uint32_t c = 0; c < local.class_count; ++c) {
      const uint32_t slot_class = operand_classes_[local.first_class + c];
      if (classes_[slot_class].input == kNone) continue;
      if (std::find(local.inputs.begin(), local.inputs.end(), slot_class) == local.inputs.end()) {
        local.inputs.push_back(slot_class);
        reads_batch_ = true;
      }
    }
    operands +=
        (local.class_count + (local.accumulator != kNone)) * static_cast<size_t>(local.node->node_count());
  }
  for (uint32_t slot_class : operand_classes_) {
    operand_rows_.push_back({classes_[slot_class].fixed,
                             size_t{slot_class} * static_cast<size_t>(dag_.microbatches),
                             FreshBuffer(slot_class)});
  }
  ReserveBuffers();
  out_.tasks.reserve(task_of_.size());
  local_of_task_.reserve(task_of_.size());
  out_.task_operands.reserve(operands);
  const NameId compute = InternName("compute"), send = InternName("send");
  for (uint32_t o : orders_) {
    const StreamOrder& order = dag_.orders[o];
    stream_ = static_cast<uint16_t>(out_.streams.size());
    runtime::Stream stream{};
    std::string name = NameText(order.stream);
    if (order.peer != 0) name += (order.stream == send ? ">" : "<") + NameText(order.peer);
    stream.name = context_.job->Intern(name);
    stream.first_task = static_cast<uint32_t>(out_.tasks.size());
    stream.computes = order.stream == compute;
    for (size_t i = 0; i < order.items.size(); ++i) {
      const OrderItem& item = order.items[i];
      if (item.atomic == kNone || item.atomic != atomic_) {
        EndAtomic();
        atomic_ = item.atomic;
        atomic_charged_ = false;
        atomic_cost_ =
            atomic_ != kNone && atomic_ < dag_.atomic_costs.size() ? dag_.atomic_costs[atomic_] : -1;
        // Loads of a whole fused node stand before it.
        for (size_t k = i; reads_batch_ && k < order.items.size() &&
                           (k == i || (atomic_ != kNone && order.items[k].atomic == atomic_));
             ++k) {
          const TemplateId t = index_.template_of[order.items[k].node];
          PIPER_CHECK(local_of_[t] != kNone,
                      "an order lists a node of another host: " + dag_.templates[t].name);
          const Local& local = locals_[local_of_[t]];
          if (local.inputs.empty()) continue;
          EmitLoads(local,
                    local.node->mb_begin + static_cast<int32_t>(order.items[k].node - dag_.first_node[t]));
        }
      }
      if (atomic_begin_ == kNone) atomic_begin_ = static_cast<uint32_t>(out_.tasks.size());
      EmitItem(item);
    }
    EndAtomic();
    atomic_ = kNone;
    stream.task_count = static_cast<uint32_t>(out_.tasks.size()) - stream.first_task;
    const auto computes = [](const Task& task) {
      return task.kind == TaskKind::kCompute || task.kind == TaskKind::kUpdate;
    };
    if (std::any_of(out_.tasks.begin() + stream.first_task, out_.tasks.end(), computes)) stream.computes = 1;
    out_.streams.push_back(stream);
  }
  for (const SlowdownRule& rule : dag_.slowdowns) {
    for (uint32_t s = 0; s < orders_.size(); ++s) {
      for (uint32_t q = 0; q < orders_.size(); ++q) {
        if (s == q || dag_.orders[orders_[s]].stream != rule.stream ||
            dag_.orders[orders_[q]].stream != rule.with)
          continue;
        if (rule.stream == rule.with && q < s) continue;
        out_.slowdowns.push_back({s, q, rule.thousandths});
      }
    }
  }
  for (const Elided& elided : elided_) {
    const Local& local = locals_[elided.local];
    for (uint32_t from : local.predecessors) {
      const Local& producer = locals_[from];
      if (producer.node->kind == NodeKind::kCompute && producer.node->pass == Pass::kBW) {
        task_of_[local.first_node + static_cast<uint32_t>(elided.microbatch)] =
            task_of_[producer.first_node + static_cast<uint32_t>(elided.microbatch)];
      }
    }
  }
  if (std::find(task_of_.begin(), task_of_.end(), kNone) == task_of_.end()) return;
  for (const Local& local : locals_) {
    for (int32_t mb = local.mb_begin; mb < local.mb_end; ++mb) {
      PIPER_CHECK(task_of_[local.first_node + static_cast<uint32_t>(mb)] != kNone,
                  "in no order: " + local.node->name);
    }
  }
}

void RoleBuilder::AddWaits() {
  const size_t streams = out_.streams.size();
  std::vector<uint8_t> receives(streams, 0);
  for (size_t s = 0; s < streams; ++s) {
    const auto first = out_.tasks.begin() + out_.streams[s].first_task;
    receives[s] = std::any_of(first, first + out_.streams[s].task_count,
                              [](const Task& task) { return task.kind == TaskKind::kRecv; });
  }
  // Temporal edges between nodes, and what an elided accumulate would have waited for.
  std::vector<std::pair<uint32_t, uint32_t>> extra;
  const auto task_of_node = [&](NodeId node) {
    const TemplateId t = index_.template_of[node];
    const Local& local = locals_[local_of_[t]];
    return task_of_[local.first_node + static_cast<uint32_t>(local.node->mb_begin) +
                    (node - dag_.first_node[t])];
  };
  for (const TemporalEdge& edge : dag_.temporal) {
    if (edge.distance != 0) continue;  // holds already: see above, and program.h about carried tasks
    const bool from = local_of_[index_.template_of[edge.from]] != kNone;
    const bool to = local_of_[index_.template_of[edge.to]] != kNone;
    if (from && to) {
      extra.emplace_back(task_of_node(edge.to), task_of_node(edge.from));
    }
    // Else one end is a collective, and the member that has both waits for all.
  }
  // What a node waits for, in rows of its own: the locals lie far apart.
  struct Producer {
    uint32_t first_node;
    int32_t mb_begin, mb_end;
  };
  struct Waits {
    uint32_t first, last;  // producers
    bool step_level;
    bool loads;
  };
  std::vector<Producer> producers;
  std::vector<Waits> waits_of;  // per local
  for (const Local& local : locals_) {
    const auto first = static_cast<uint32_t>(producers.size());
    for (uint32_t from : local.predecessors) {
      // A rank begins a step when its part of the one before is over.
      if (local.node->carried && !locals_[from].node->carried) continue;
      producers.push_back({locals_[from].first_node, locals_[from].mb_begin, locals_[from].mb_end});
    }
    waits_of.push_back(
        {first, static_cast<uint32_t>(producers.size()), local.mb_begin < 0, !local.inputs.empty()});
  }
  const uint32_t* const task_of = task_of_.data();
  const auto for_each_awaited = [&](uint32_t l, int32_t microbatch, auto&& visit) {
    const Waits waits = waits_of[l];
    for (uint32_t p = waits.first; p < waits.last; ++p) {
      const Producer& producer = producers[p];
      if (producer.mb_begin < 0) {
        visit(task_of[producer.first_node - 1]);
      } else if (!waits.step_level) {
        if (microbatch >= producer.mb_begin && microbatch < producer.mb_end) {
          visit(task_of[producer.first_node + static_cast<uint32_t>(microbatch)]);
        }
      } else {
        for (int32_t mb = producer.mb_begin; mb < producer.mb_end; ++mb) {
          visit(task_of[producer.first_node + static_cast<uint32_t>(mb)]);
        }
      }
    }
  };
  for (const Elided& elided : elided_) {
    const runtime::Stream& stream = out_.streams[elided.stream_index];
    if (elided.next_task >= stream.first_task + stream.task_count) continue;
    for_each_awaited(elided.local, elided.microbatch,
                     [&](uint32_t awaited) { extra.emplace_back(elided.next_task, awaited); });
  }
  std::sort(extra.begin(), extra.end());
  // known[s][q]: how far stream s knows stream q to be done. On receive streams data may arrive out of order
  // (messages with latencies of their own), so there only the very task counts.
  std::vector<uint32_t> known(streams * streams, 0), furthest(streams, 0);
  std::vector<uint64_t> received_by(streams <= 64 ? out_.tasks.size() : 0, 0);
  std::vector<uint16_t> stream_of(out_.tasks.size());  // in rows, they are far apart
  for (size_t s = 0; s < streams; ++s) {
    const auto first = stream_of.begin() + out_.streams[s].first_task;
    std::fill(first, first + out_.streams[s].task_count, static_cast<uint16_t>(s));
  }
  out_.waits.reserve(out_.tasks.size());
  std::vector<uint32_t> awaited, touched;
  size_t next_extra = 0;
  for (uint32_t t = 0; t < out_.tasks.size(); ++t) {
    Task& task = out_.tasks[t];
    // What it waits for on other streams.
    awaited.clear();
    const auto visit = [&](uint32_t other) __attribute__((always_inline)) {
      if (stream_of[other] != task.stream) {
        awaited.push_back(other);
        return;
      }
      PIPER_CHECK(other <= t,
                  "an order that contradicts the data: " + std::string(context_.job->Text(task.name)));
    };
    if (const uint32_t l = local_of_task_[t]; l != kNone) {
      for_each_awaited(l, task.microbatch, visit);
      if (waits_of[l].loads) {
        for (uint32_t input : locals_[l].inputs)
          visit(load_of_.at(input)[static_cast<size_t>(task.microbatch)]);
      }
    }
    for (; next_extra < extra.size() && extra[next_extra].first == t; ++next_extra)
      visit(extra[next_extra].second);
    task.first_wait = static_cast<uint32_t>(out_.waits.size());
    for (const uint32_t other : awaited) {
      const uint16_t stream = stream_of[other];
      if (receives[stream]) {
        if (!received_by.empty()) {
          const uint64_t bit = uint64_t{1} << task.stream;
          if ((received_by[other] & bit) != 0) continue;
          received_by[other] |= bit;
        }
        out_.waits.push_back(other);
        continue;
      }
      if (furthest[stream] == 0) touched.push_back(stream);
      furthest[stream] = std::max(furthest[stream], other + 1);
    }
    for (const uint32_t stream : touched) {
      uint32_t& done = known[size_t{task.stream} * streams + stream];
      if (furthest[stream] > done) {
        out_.waits.push_back(furthest[stream] - 1);
        done = furthest[stream];
      }
      furthest[stream] = 0;
    }
    touched.clear();
    if (out_.waits.size() > task.first_wait + 1) {
      std::sort(out_.waits.begin() + task.first_wait, out_.waits.end());
      out_.waits.erase(std::unique(out_.waits.begin() + task.first_wait, out_.waits.end()), out_.waits.end());
    }
    task.wait_count = static_cast<uint32_t>(out_.waits.size()) - task.first_wait;
  }
}

void RoleBuilder::AddScratch() {
  for (runtime::Stream& stream : out_.streams) {
    if (stream.computes == 0) continue;
    int64_t bytes = 0;
    std::vector<uint8_t> seen(out_.bodies.size(), 0);
    size_t left = seen.size();
    bool packs = false;  // some kernel wants the library's scratch: it lies behind that of the bodies
    for (uint32_t t = stream.first_task; t < stream.first_task + stream.task_count && left > 0; ++t) {
      if (out_.tasks[t].kind != TaskKind::kCompute) continue;
      if (std::exchange(seen[out_.tasks[t].argument], 1) != 0) continue;
      --left;
      const runtime::Body& body = out_.bodies[out_.tasks[t].argument];
      bytes = std::max(bytes, body.scratch_bytes);
      for (uint32_t c = 0; c < body.call_count && !packs; ++c) {
        packs = kernels::UsesScratch(out_.calls[body.first_call + c].kernel);
      }
    }
    if (packs) {
      bytes = (bytes + runtime::kAlignment - 1) / runtime::kAlignment * runtime::kAlignment +
              kernels::kGemmScratchBytes;
    }
    if (bytes == 0) continue;
    CheckBytes(bytes, stream.name);
    stream.scratch = static_cast<uint32_t>(out_.buffers.size());
    out_.buffers.push_back({0, bytes, runtime::BufferKind::kScratch, runtime::ElementType::kF32,
                            context_.job->Intern(std::string("scratch of ") + stream.name)});
  }
}

}  // namespace piper::ir
