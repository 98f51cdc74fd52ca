#include "ir/lower/role_builder.h"

#include <algorithm>
#include <set>

#include "ir/cost/resource_model.h"
#include "ir/support/result.h"

namespace piper::ir {

namespace {

const char* MakerText(Maker maker) {
  return maker == Maker::kForward ? "" : maker == Maker::kReplay ? " again" : " back";
}

bool IsCutTag(const Program& program, const std::string& tag) {
  return std::any_of(program.directives.begin(), program.directives.end(), [&](const Directive& directive) {
    const CutDirective* cut = std::get_if<CutDirective>(&directive.body);
    return cut != nullptr && cut->as == tag;
  });
}

}  // namespace

using runtime::BufferKind;
using runtime::TaskKind;

RoleBuilder::RoleBuilder(JobContext* context, const DagIndex& index, const Fold& fold,
                         const StaticLayout& layout, RoleStorage* out)
    : context_(*context),
      index_(index),
      dag_(index.dag),
      graph_(index.regions.graph),
      fold_(fold),
      layout_(layout),
      out_(*out),
      device_(fold.devices[0]) {}

void RoleBuilder::Build() {
  out_.buffers = layout_.buffers;
  out_.parameters = layout_.parameters;
  out_.static_bytes = layout_.bytes;
  out_.loss_scale = layout_.loss_scale;
  out_.loss = layout_.loss;
  for (uint32_t device : fold_.devices) {
    const uint32_t replica = dag_.device_replica.empty() ? 0 : dag_.device_replica[device];
    out_.ranks.push_back({device, replica, {}, {}});
  }
  CollectLocals();
  AddBodies();
  for (Local& local : locals_) {
    if (local.node->kind == NodeKind::kCompute) BindBody(local);
  }
  for (Local& local : locals_) {
    if (local.node->kind != NodeKind::kCompute) BindOthers(local);
  }
  FindFirstAccumulates();
  EmitStreams();
  AddWaits();
  AddScratch();
}

const std::set<GradientRef>& RoleBuilder::AccumulatedBy(uint32_t device) {
  const auto [known, fresh] = accumulated_by_.emplace(context_.role_of[device], std::set<GradientRef>());
  if (!fresh) return known->second;
  for (const NodeTemplate& node : dag_.templates) {
    if (node.kind != NodeKind::kAccumulate || node.step_level()) continue;
    const std::vector<uint32_t>& devices = dag_.groups[node.group].devices;
    if (std::find(devices.begin(), devices.end(), device) != devices.end())
      known->second.insert(node.gradients.at(0));
  }
  return known->second;
}

void RoleBuilder::CollectLocals() {
  std::vector<uint8_t> holds(dag_.groups.size());
  for (size_t g = 0; g < dag_.groups.size(); ++g) {
    const std::vector<uint32_t>& devices = dag_.groups[g].devices;
    holds[g] = std::find(devices.begin(), devices.end(), device_) != devices.end();
  }
  local_of_.assign(dag_.templates.size(), kNone);
  uint32_t nodes = 0;
  for (TemplateId t = 0; t < dag_.templates.size(); ++t) {
    const NodeTemplate& node = dag_.templates[t];
    if (!holds[node.group]) continue;
    local_of_[t] = static_cast<uint32_t>(locals_.size());
    Local& local = locals_.emplace_back();
    local.id = t;
    local.node = &node;
    local.mb_begin = node.mb_begin;
    local.mb_end = node.mb_end;
    local.first_node = nodes - static_cast<uint32_t>(node.mb_begin);
    nodes += static_cast<uint32_t>(node.node_count());
    local.row.atomic = kNone;
    local.row.name = index_.name[t];
    local.row.origin = index_.origin[node.origin];
    local.plain =
        node.kind == NodeKind::kCompute || node.kind == NodeKind::kSend || node.kind == NodeKind::kRecv;
    local.row.key = kNone;
  }
  task_of_.assign(nodes, kNone);
  for (Local& local : locals_) {
    for (TemplateId from : index_.Predecessors(local.id)) {
      if (local_of_[from] != kNone) local.predecessors.push_back(local_of_[from]);
    }
  }
  for (uint32_t o = 0; o < dag_.orders.size(); ++o) {
    if (holds[dag_.orders[o].group]) orders_.push_back(o);
  }
  // Compute first, so that loads are placed before their first reader there.
  const NameId compute = InternName("compute");
  std::stable_partition(orders_.begin(), orders_.end(),
                        [&](uint32_t o) { return dag_.orders[o].stream == compute; });
}

// ---- bodies
// --------------------------------------------------------------------------------------------------

void RoleBuilder::AddBodies() {
  for (const Local& local : locals_) {
    if (local.node->kind != NodeKind::kCompute) continue;
    const auto key = std::make_pair(local.node->region, local.node->pass);
    if (!body_index_.emplace(key, static_cast<uint32_t>(out_.bodies.size())).second) continue;
    const Body& body = index_.BodyOf(*local.node);
    const Region& region = index_.regions.regions[local.node->region];
    // The model's own tags: regions of one kind are one function, whatever stage a `cut` put them in.
    std::string name;
    for (const TagInstance& tag : graph_.tag_paths[region.tags]) {
      if (!IsCutTag(context_.program, tag.name)) name += (name.empty() ? "" : "_") + tag.name;
    }
    if (name.empty()) name = "body";
    name += local.node->pass == Pass::kF    ? "_fwd"
            : local.node->pass == Pass::kR  ? "_again"
            : local.node->pass == Pass::kBI ? "_bwd_input"
                                            : "_bwd_weight";
    runtime::Body row{};
    row.name = context_.job->Intern(name);
    row.first_call = static_cast<uint32_t>(out_.calls.size());
    row.call_count = static_cast<uint32_t>(body.calls.size());
    row.formal_count = static_cast<uint32_t>(body.formals.size());
    row.scratch_bytes = body.scratch_bytes;
    for (const KernelCall& call : body.calls) {
      runtime::Call lowered{};
      lowered.kernel = context_.job->Intern(call.kernel);
      lowered.first_operand = static_cast<uint32_t>(out_.call_operands.size());
      lowered.operand_count = static_cast<uint32_t>(call.operands.size());
      lowered.first_int = static_cast<uint32_t>(out_.call_ints.size());
      lowered.int_count = static_cast<uint32_t>(call.ints.size());
      lowered.first_scalar = static_cast<uint32_t>(out_.call_scalars.size());
      lowered.scalar_count = static_cast<uint32_t>(call.scalars.size());
      lowered.random_key = call.random_key;
      lowered.operation = context_.job->Intern(
          call.operation == kNone ? std::string() : graph_.operations[call.operation].path);
      for (const OperandRef& operand : call.operands) {
        const bool is_local = operand.kind == OperandRef::Kind::kLocal;
        const int64_t offset = is_local ? body.locals[operand.index].offset : 0;
        out_.call_operands.push_back(
            {static_cast<uint8_t>(is_local),
             is_local ? static_cast<uint32_t>(offset / runtime::kAlignment) : operand.index});
      }
      out_.call_ints.insert(out_.call_ints.end(), call.ints.begin(), call.ints.end());
      out_.call_scalars.insert(out_.call_scalars.end(), call.scalars.begin(), call.scalars.end());
      out_.calls.push_back(lowered);
    }
    out_.bodies.push_back(row);
  }
}

// ---- slots
// ---------------------------------------------------------------------------------------------------

uint32_t RoleBuilder::Intern(const Key& key, const SlotClass& fresh) {
  auto [it, added] = class_index_.emplace(key, static_cast<uint32_t>(classes_.size()));
  if (added) classes_.push_back(fresh);
  return it->second;
}

uint32_t RoleBuilder::Root(uint32_t slot_class) const {
  while (classes_[slot_class].parent != kNone) slot_class = classes_[slot_class].parent;
  return slot_class;
}

// The region whose values a copy to or from the host moves.
RegionId RoleBuilder::MadeBy(const NodeTemplate& copy) const {
  return copy.value == kNone ? copy.region : index_.regions.value_region[copy.value];
}

Maker RoleBuilder::MakerFor(const Local& reader, RegionId producer) const {
  for (uint32_t from : reader.predecessors) {
    const NodeTemplate& node = *locals_[from].node;
    if (node.kind == NodeKind::kPrefetch && MadeBy(node) == producer) return Maker::kFetch;
    if (node.pass == Pass::kR && node.region == producer) return Maker::kReplay;
  }
  return Maker::kForward;
}

uint32_t RoleBuilder::ClassOfValue(ValueId value, Maker maker, NameId stream) {
  const Value& what = graph_.values[value];
  SlotClass fresh;
  fresh.bytes = what.type.bytes();
  fresh.type = what.type.dtype;
  if (what.source == Value::Source::kParameter) {
    fresh.fixed = layout_.parameters[layout_.parameter_index.at(what.index)].row.value;
    return Intern({KeyKind::kFixed, fresh.fixed, 0}, fresh);
  }
  if (what.source == Value::Source::kInput) {
    fresh.input = what.index;
    fresh.kind = BufferKind::kInput;
    fresh.name = context_.job->Intern(graph_.inputs[what.index].name);
    return Intern({KeyKind::kInput, what.index, stream}, fresh);
  }
  const Key key{KeyKind::kValue, value, 0, maker};
  if (auto found = class_index_.find(key); found != class_index_.end()) return found->second;
  const RegionId region = index_.regions.value_region[value];
  fresh.name = context_.job->Intern((region == kNone ? "" : index_.regions.regions[region].name + ".") +
                                    "value" + std::to_string(value) + MakerText(maker));
  return Intern(key, fresh);
}

uint32_t RoleBuilder::ClassOf(const Formal& formal, const Local& local) {
  SlotClass fresh;
  fresh.bytes = formal.type.bytes();
  fresh.type = formal.type.dtype;
  const RegionId region = local.node->region;
  // What F and R write is theirs; what is read was made by the one or the other.
  Maker maker = Maker::kForward;
  if (formal.written) {
    if (local.node->pass == Pass::kR) maker = Maker::kReplay;
  } else if (formal.kind == FormalKind::kOutput ||
             (formal.kind == FormalKind::kSaved && formal.value != kNone)) {
    maker = MakerFor(local, region);
  } else if (formal.kind == FormalKind::kValue && formal.value != kNone) {
    const RegionId producer = index_.regions.value_region[formal.value];
    if (producer != kNone) maker = MakerFor(local, producer);
  }
  const auto named = [&](const std::string& suffix) {
    return context_.job->Intern(index_.regions.regions[region].name + "." + suffix + MakerText(maker));
  };
  switch (formal.kind) {
    case FormalKind::kParameter:
      fresh.fixed = layout_.parameters[layout_.parameter_index.at(formal.parameter)].row.value;
      return Intern({KeyKind::kFixed, fresh.fixed, 0}, fresh);
    case FormalKind::kScale:
      PIPER_CHECK(layout_.loss_scale != kNone);
      fresh.fixed = layout_.loss_scale;
      return Intern({KeyKind::kFixed, fresh.fixed, 0}, fresh);
    case FormalKind::kValue:
    case FormalKind::kOutput: {
      const size_t before = classes_.size();
      const uint32_t slot_class = ClassOfValue(formal.value, maker, local.node->stream);
      if (classes_.size() > before && classes_[slot_class].input == kNone &&
          formal.kind == FormalKind::kOutput) {
        classes_[slot_class].name = named(formal.name);
      }
      return slot_class;
    }
    case FormalKind::kSaved:
      fresh.name = named(formal.name);
      return Intern({KeyKind::kSaved, region, formal.saved, maker}, fresh);
    case FormalKind::kCotangent:
      fresh.kind = BufferKind::kCotangent;
      fresh.name = named(formal.name);
      return Intern({KeyKind::kCotangent, formal.value, formal.consumer}, fresh);
    case FormalKind::kInputCotangent:
      fresh.kind = BufferKind::kCotangent;
      fresh.name = named(formal.name);
      return Intern({KeyKind::kCotangent, formal.value, region}, fresh);
    case FormalKind::kGradient:
      fresh.kind = BufferKind::kTransient;
      fresh.name = named(formal.name);
      return Intern({KeyKind::kGradient, region, formal.parameter}, fresh);
  }
  PIPER_CHECK(false, formal.name);
  return 0;
}

void RoleBuilder::BindBody(Local& local) {
  const Body& body = index_.BodyOf(*local.node);
  local.first_class = static_cast<uint32_t>(operand_classes_.size());
  local.class_count = static_cast<uint32_t>(body.formals.size());
  for (const Formal& formal : body.formals) operand_classes_.push_back(ClassOf(formal, local));
  for (size_t f = 0; f < body.formals.size(); ++f) {
    const Formal& formal = body.formals[f];
    if (!formal.written || formal.alias_of == kNone) continue;
    const uint32_t root = Root(operand_classes_[local.first_class + formal.alias_of]);
    const uint32_t forwarded = Root(operand_classes_[local.first_class + f]);
    if (root != forwarded) classes_[forwarded].parent = root;
  }
  local.row.kind = TaskKind::kCompute;
  local.row.flag = static_cast<uint8_t>(local.node->pass);
  local.row.argument = body_index_.at({local.node->region, local.node->pass});
  local.row.key = index_.stage_key[local.id];
  local.row.cost =
      local.node->cost >= 0 ? local.node->cost : BodyCost(context_.program.topology.Kind(device_), body);
}

void RoleBuilder::BindOthers(Local& local) {
  const NodeTemplate& node = *local.node;
  const DeviceKind& kind = context_.program.topology.Kind(device_);
  double moved = 0;  // bytes, for the roofline
  local.first_class = static_cast<uint32_t>(operand_classes_.size());
  switch (node.kind) {
    case NodeKind::kSend:
    case NodeKind::kRecv:
      PlanMessage(local);
      return;
    case NodeKind::kAllReduce:
      PlanCollective(local);
      return;
    case NodeKind::kOffload:
    case NodeKind::kPrefetch:
      PlanCopy(local);
      return;
    case NodeKind::kLossFold:
      PlanLossFold(local);
      break;
    case NodeKind::kAccumulate: {
      local.row.kind = TaskKind::kAccumulate;
      const Parameter& parameter = graph_.parameters[node.gradients.at(0).parameter];
      local.row.bytes = parameter.type.bytes();
      moved = 3.0 * static_cast<double>(parameter.type.bytes());
      if (!node.step_level()) {
        local.accumulator = layout_.accumulators.at(node.gradients[0]);
        SlotClass fresh;
        fresh.kind = BufferKind::kTransient;
        fresh.bytes = parameter.type.bytes();
        fresh.type = parameter.type.dtype;
        operand_classes_.push_back(
            Intern({KeyKind::kGradient, node.gradients[0].region, node.gradients[0].parameter}, fresh));
        local.class_count = 1;
      }
      break;
    }
    case NodeKind::kUpdate: {
      local.row.kind = TaskKind::kUpdate;
      local.row.argument = layout_.parameter_index.at(node.parameter);
      const runtime::Parameter& parameter = layout_.parameters[local.row.argument].row;
      const int64_t bytes = graph_.parameters[node.parameter].type.bytes();
      const int states = (parameter.state[0] != kNone) + (parameter.state[1] != kNone);
      local.row.bytes = bytes;
      moved = static_cast<double>(bytes) * (3 + 2 * states);
      for (uint32_t from : local.predecessors) {
        if (locals_[from].node->kind == NodeKind::kSave) local.row.flag = 1;
      }
      break;
    }
    case NodeKind::kSave: {
      local.row.kind = TaskKind::kSave;
      for (const RoleStorage::HeldParameter& held : layout_.parameters) {
        if (held.row.saved != kNone) local.row.bytes += layout_.buffers[held.row.saved].bytes;
      }
      moved = 2.0 * static_cast<double>(local.row.bytes);
      break;
    }
    case NodeKind::kValidate:
      // What it does where nothing was wrong: it reads the norm.
      local.row.kind = TaskKind::kValidate;
      local.row.flag = node.carried ? 1 : 0;
      moved = static_cast<double>(layout_.buffers[layout_.norm].bytes);
      break;
    case NodeKind::kNorm:
    case NodeKind::kClip: {
      local.row.kind = node.kind == NodeKind::kNorm ? TaskKind::kSumSquares : TaskKind::kClip;
      for (const RoleStorage::HeldParameter& held : layout_.parameters) {
        if (held.row.gradient != kNone)
          moved += static_cast<double>(layout_.buffers[held.row.gradient].bytes);
      }
      if (node.kind == NodeKind::kClip) moved *= 2;
      break;
    }
    case NodeKind::kPartial:
      local.row.kind = TaskKind::kPartialSquares;
      local.row.bytes = node.bytes;
      moved = 3.0 * static_cast<double>(node.bytes);
      break;
    default:
      PIPER_CHECK(false, "no lowering for " + std::string(NodeKindName(node.kind)) + ": " + node.name);
  }
  local.row.cost = node.cost >= 0 ? node.cost : ComputeCost(kind, DType::kF32, 0, moved);
}

void RoleBuilder::PlanLossFold(Local& local) {
  local.row.kind = TaskKind::kLossFold;
  local.row.argument = 0;
  for (const Local& other : locals_) {
    if (&other == &local) break;
    local.row.argument += other.node->kind == NodeKind::kLossFold;
  }
  local.row.bytes = 4;
  operand_classes_.push_back(ClassOfValue(local.node->value));
  local.class_count = 1;
}

// What later passes of this role read of the region after it came back: saved values by key, then outputs.
// What has the bytes of another is moved once.
void RoleBuilder::PlanCopy(Local& local) {
  const NodeTemplate& node = *local.node;
  const bool out = node.kind == NodeKind::kOffload;
  const RegionId producer = MadeBy(node);
  std::set<uint32_t> saved;
  std::set<ValueId> values;
  for (const Local& reader : locals_) {
    if (reader.node->kind != NodeKind::kCompute || reader.node->copy != node.copy) continue;
    if (reader.node->pass == Pass::kF || MakerFor(reader, producer) != Maker::kFetch) continue;
    for (const Formal& formal : index_.BodyOf(*reader.node).formals) {
      if (formal.written || formal.value == kNone) continue;
      const bool own = reader.node->region == producer;
      if (own && formal.kind == FormalKind::kSaved) saved.insert(formal.saved);
      if (own && formal.kind == FormalKind::kOutput) values.insert(formal.value);
      if (formal.kind == FormalKind::kValue && index_.regions.value_region[formal.value] == producer)
        values.insert(formal.value);
    }
  }
  local.row.kind = TaskKind::kCopy;
  local.row.flag = out ? 0 : 1;
  std::map<uint32_t, uint32_t> moved;  // class in the arena -> class when it is back
  const auto move = [&](uint32_t from, uint32_t back, Key key) {
    from = Root(from);
    back = Root(back);
    auto [it, fresh] = moved.emplace(from, back);
    if (!fresh) {
      if (it->second != back) classes_[back].parent = it->second;
      return;
    }
    SlotClass host = classes_[from];
    host.parent = host.fixed = host.input = kNone;
    host.kind = BufferKind::kHost;
    host.name = context_.job->Intern(std::string(host.name) + " on the host");
    const uint32_t stored = Intern(key, host);
    operand_classes_.push_back(out ? from : stored);
    operand_classes_.push_back(out ? stored : back);
    local.row.bytes += host.bytes;
  };
  for (uint32_t key : saved) {
    move(class_index_.at({KeyKind::kSaved, node.region, key, Maker::kForward}),
         class_index_.at({KeyKind::kSaved, node.region, key, Maker::kFetch}),
         {KeyKind::kHostSaved, node.region, key});
  }
  for (ValueId value : values) {
    move(ClassOfValue(value), ClassOfValue(value, Maker::kFetch), {KeyKind::kHostValue, value, 0});
  }
  local.class_count = static_cast<uint32_t>(operand_classes_.size()) - local.first_class;
  PIPER_CHECK(local.class_count > 0, "nothing to move: " + node.name);
  const int64_t payload = node.cost_bytes >= 0 ? node.cost_bytes : local.row.bytes;
  local.row.cost =
      node.cost >= 0 ? node.cost : HostCopyCost(context_.program.topology.Kind(device_), payload);
}

// ---- communication
// -------------------------------------------------------------------------------------------

uint32_t RoleBuilder::PeerSlot(const NodeTemplate& message) {
  auto [it, fresh] = peer_slot_.emplace(message.peer_group, static_cast<uint32_t>(out_.peer_roles.size()));
  if (fresh) {
    for (RoleStorage::Rank& rank : out_.ranks) rank.peers.push_back(PeerOf(dag_, message, rank.rank));
    out_.peer_roles.push_back(context_.role_of[out_.ranks[0].peers.back()]);
    for (const RoleStorage::Rank& rank : out_.ranks) {
      PIPER_CHECK(context_.role_of[rank.peers.back()] == out_.peer_roles.back(), message.name);
    }
  }
  return it->second;
}

void RoleBuilder::PlanMessage(Local& local) {
  const NodeTemplate& node = *local.node;
  const bool sends = node.kind == NodeKind::kSend;
  local.row.kind = sends ? TaskKind::kSend : TaskKind::kRecv;
  local.row.argument = PeerSlot(node);
  local.row.key = sends ? local.id : node.match;
  const NodeTemplate& send = sends ? node : dag_.templates[node.match];
  const bool carries_edge = node.value == kNone && node.bytes == 0;
  if (carries_edge) {
    // It meets, and carries nothing.
  } else if (node.value == kNone) {
    SlotClass fixed;
    fixed.fixed = sends ? layout_.partial_squares : layout_.received_squares;
    operand_classes_.push_back(Intern({KeyKind::kFixed, fixed.fixed, 0}, fixed));
  } else if (node.cotangent) {
    SlotClass fresh;
    fresh.kind = BufferKind::kCotangent;
    fresh.bytes = graph_.Type(node.value).bytes();
    fresh.type = graph_.Type(node.value).dtype;
    fresh.name = context_.job->Intern(node.name);
    operand_classes_.push_back(Intern({KeyKind::kCotangent, node.value, node.consumer}, fresh));
  } else {
    operand_classes_.push_back(ClassOfValue(node.value));
  }
  local.class_count = carries_edge ? 0 : 1;
  local.row.bytes = node.value == kNone ? node.bytes : graph_.Type(node.value).bytes();
  if (send.cost >= 0) {
    local.row.flag = 1;
    local.row.cost = send.cost;
  } else {
    const Link link = context_.program.topology.Between(device_, PeerOf(dag_, node, device_));
    local.row.cost = MessageCost(link, send.cost_bytes >= 0 ? send.cost_bytes : local.row.bytes).total();
  }
}

uint32_t RoleBuilder::CommunicatorSlot(const NodeTemplate& collective) {
  auto [it, fresh] = communicator_slot_.emplace(std::make_pair(collective.group, collective.per_replica),
                                                static_cast<uint32_t>(communicators_.size()));
  if (fresh) {
    for (RoleStorage::Rank& rank : out_.ranks) {
      std::vector<uint32_t> members = CommunicatorOf(dag_, collective, rank.rank);
      if (rank.rank == device_) communicators_.push_back(members);
      auto [group, added] =
          context_.groups.emplace(members, static_cast<uint32_t>(context_.job->groups.size()));
      if (added) context_.job->groups.push_back(std::move(members));
      rank.groups.push_back(group->second);
    }
    out_.communicator_sizes.push_back(static_cast<uint32_t>(communicators_.back().size()));
  }
  return it->second;
}

// Terms where they are not simply one a member, ascending.
void RoleBuilder::AddTerms(const Local& local, runtime::Collective& collective) {
  const NodeTemplate& node = *local.node;
  const std::vector<uint32_t>& members = communicators_[collective.communicator];
  std::vector<runtime::Term> terms;
  if (!node.gradients.empty()) {
    // Per member, what it accumulates of the entries, in entry order; of a bucket, one contribution a copy.
    const bool tied = HasName(node, InternName("tie.reduce"));
    std::vector<std::vector<GradientRef>> held(members.size());
    for (size_t m = 0; m < members.size(); ++m) {
      const std::set<GradientRef>& accumulates = AccumulatedBy(members[m]);
      for (const GradientRef& ref : node.gradients) {
        if (accumulates.count(ref) != 0) held[m].push_back(ref);
      }
      if (tied) continue;
      std::set<uint32_t> copies;
      std::vector<GradientRef> one_a_copy;
      for (const GradientRef& ref : held[m]) {
        if (copies.insert(ref.copy).second) one_a_copy.push_back(ref);
      }
      std::sort(one_a_copy.begin(), one_a_copy.end(),
                [](const GradientRef& a, const GradientRef& b) { return a.copy < b.copy; });
      held[m] = one_a_copy;
    }
    if (tied) {
      for (const GradientRef& ref : node.gradients) {
        for (uint32_t m = 0; m < members.size(); ++m) {
          for (uint32_t c = 0; c < held[m].size(); ++c) {
            if (held[m][c] == ref) terms.push_back({m, c});
          }
        }
      }
    } else {
      for (uint32_t m = 0; m < members.size(); ++m) {
        for (uint32_t c = 0; c < held[m].size(); ++c) terms.push_back({m, c});
      }
    }
  } else {
    // Losses: loss major, then replica, then copy; a member's contributions are its folds in template order.
    std::vector<TemplateId> folds;
    for (TemplateId from : index_.Predecessors(local.id)) {
      if (dag_.templates[from].kind == NodeKind::kLossFold) folds.push_back(from);
    }
    if (folds.empty()) return;  // the norm: every member contributes once
    std::vector<uint32_t> counted(members.size(), 0);
    const auto loss_of = [&](TemplateId t) { return dag_.templates[t].value; };
    for (size_t first = 0; first < folds.size();) {
      size_t last = first;
      while (last < folds.size() && loss_of(folds[last]) == loss_of(folds[first])) ++last;
      const size_t replicas = dag_.groups[dag_.templates[folds[first]].group].devices.size();
      for (size_t replica = 0; replica < replicas; ++replica) {
        for (size_t f = first; f < last; ++f) {
          const uint32_t device = dag_.groups[dag_.templates[folds[f]].group].devices[replica];
          const auto member = std::find(members.begin(), members.end(), device) - members.begin();
          // Folds of one host are met in template order for every replica alike.
          uint32_t contribution = 0;
          for (TemplateId other : folds) {
            if (other >= folds[f]) break;
            contribution += dag_.templates[other].group == dag_.templates[folds[f]].group;
          }
          terms.push_back({static_cast<uint32_t>(member), contribution});
        }
      }
      first = last;
    }
  }
  bool plain = terms.size() == members.size();
  for (uint32_t m = 0; plain && m < terms.size(); ++m)
    plain = terms[m].member == m && terms[m].contribution == 0;
  if (plain) return;
  collective.first_term = static_cast<uint32_t>(out_.terms.size());
  collective.term_count = static_cast<uint32_t>(terms.size());
  out_.terms.insert(out_.terms.end(), terms.begin(), terms.end());
}

void RoleBuilder::PlanCollective(Local& local) {
  const NodeTemplate& node = *local.node;
  PIPER_CHECK(node.step_level(), "a reduction a microbatch: " + node.name);
  runtime::Collective collective{};
  collective.kind = runtime::CollectiveKind::kAllReduce;
  collective.communicator = CommunicatorSlot(node);
  collective.name = context_.job->Intern(node.name);
  collective.fold = node.pairwise ? runtime::FoldKind::kPairwise : runtime::FoldKind::kLeft;
  std::vector<uint32_t> operands;  // contributions, then the output where it is none of them
  if (!node.gradients.empty()) {
    auto found = layout_.contributions.find(local.id);
    if (found != layout_.contributions.end()) operands = found->second;
    collective.contributions = static_cast<uint32_t>(operands.size());
    if (operands.empty()) {
      const uint32_t held = layout_.parameter_index.at(node.gradients[0].parameter);
      operands.push_back(layout_.parameters[held].row.gradient);
    }
  } else {
    bool norm = false;
    for (TemplateId from : index_.Predecessors(local.id))
      norm |= dag_.templates[from].kind == NodeKind::kNorm;
    if (norm) {
      operands.push_back(layout_.norm);
      collective.contributions = 1;
    } else {
      operands = layout_.loss_parts;
      collective.contributions = static_cast<uint32_t>(operands.size());
      if (operands.empty()) operands.push_back(layout_.loss);
    }
  }
  constexpr uint32_t kMostContributions = 16;  // a transport's bound (runtime/transport.h)
  if (collective.contributions > kMostContributions) {
    context_.diag
        ->Error(dag_.origins[node.origin], DiagKind::kUnsupported,
                "'" + node.name + "' sums " + std::to_string(collective.contributions) +
                    " terms of one device; a collective takes at most " + std::to_string(kMostContributions))
        .Hint("place all regions that use the parameter on one stage, or use it in fewer regions");
  }
  AddTerms(local, collective);
  const runtime::Buffer& whole = out_.buffers[operands[0]];
  collective.type = whole.type;
  collective.elements = whole.bytes / runtime::ElementBytes(whole.type);
  local.row.kind = TaskKind::kCollective;
  local.row.flag = node.carried ? 1 : 0;
  local.row.argument = static_cast<uint32_t>(out_.collectives.size());
  local.row.bytes = whole.bytes;
  out_.collectives.push_back(collective);
  // The operands are static: classes of their own.
  for (uint32_t buffer : operands) {
    SlotClass fixed;
    fixed.fixed = buffer;
    operand_classes_.push_back(Intern({KeyKind::kFixed, buffer, 0}, fixed));
  }
  // In place: contribution 0 is the output as well.
  if (collective.contributions > 0) operand_classes_.push_back(operand_classes_[local.first_class]);
  local.class_count = static_cast<uint32_t>(operand_classes_.size()) - local.first_class;
  const std::vector<uint32_t>& members = communicators_[collective.communicator];
  const int64_t payload = node.cost_bytes >= 0 ? node.cost_bytes : whole.bytes;
  local.row.cost = node.cost >= 0
                       ? node.cost
                       : CollectiveCost(collective.kind, SlowestLink(context_.program.topology, members),
                                        payload, static_cast<int64_t>(members.size()));
}

}  // namespace piper::ir
