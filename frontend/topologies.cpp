// Topologies: levels are put together from the devices up, each a run of consecutive devices.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "frontend/interpreter.h"

namespace piper::frontend {

using ir::DiagKind;
using ir::UnitKind;

namespace {

// Appends the devices and levels of `part`, behind those of `whole`. Kinds are merged by name.
void Append(const ir::Topology& part, ir::Topology* whole) {
  auto offset = static_cast<uint32_t>(whole->device_kind.size());
  std::vector<uint16_t> kind_of;
  for (const ir::DeviceKind& kind : part.kinds) {
    auto known = std::find_if(whole->kinds.begin(), whole->kinds.end(),
                              [&](const ir::DeviceKind& other) { return other.range == kind.range; });
    kind_of.push_back(static_cast<uint16_t>(known - whole->kinds.begin()));
    if (known == whole->kinds.end()) whole->kinds.push_back(kind);
  }
  for (uint16_t kind : part.device_kind) whole->device_kind.push_back(kind_of[kind]);
  for (size_t i = 0; i < part.levels.size(); ++i) {
    if (whole->levels.size() <= i) whole->levels.push_back({part.levels[i].name, {}});
    ir::Level& level = whole->levels[i];
    // A level of several kinds of node bears all their names, "fast_node|slow_node".
    if (("|" + level.name + "|").find("|" + part.levels[i].name + "|") == std::string::npos) {
      level.name += "|" + part.levels[i].name;
    }
    for (ir::Level::Group group : part.levels[i].groups) {
      group.first += offset;
      level.groups.push_back(group);
    }
  }
}

}  // namespace

Value Interpreter::BuildTopology(const TopologyDeclObject& decl, const CallExpr* call,
                                 std::vector<Value>* args, SourceRange range) {
  const FunctionInfo& info = *decl.info;
  FrameGuard frame(*this, info.frame_size, range);
  Given given;
  if (call != nullptr) {
    BindArguments(*call, info.params, info.name, frame.slots(), &given);
  } else {
    TakeArguments(args, info.params, info.name, range, frame.slots(), &given);
  }
  Activation activation;
  activation.info = &info;
  activation.slots = frame.slots();
  activation.call = range;
  ActivationGuard guard(&current_, &activation);
  FinishArguments(info.params, info.name, range, frame.slots(), given);
  CheckRequirements(info, frame.slots(), range);

  auto quantity = [&](const Property& property, UnitKind unit, double least, double most) {
    Value value = Eval(*property.value);
    std::string what = Text(property.name.name);
    if (!value.is(ValueKind::kQuantity) || value.unit() != unit) {
      Fail(property.value->range, DiagKind::kUnitMismatch,
           fmt::format("{} is given in {}, not as {}", what, ir::UnitKindName(unit), DescribeValue(value)));
    }
    if (!(value.real() >= least) || value.real() > most) {
      Fail(property.value->range, DiagKind::kBadTopology,
           fmt::format("{} of {} is out of range", what, ValueText(value)));
    }
    return value.real();
  };

  Value outermost;
  for (const TopologyItem& item : decl.decl->items) {
    Burn(1, item.range);
    switch (item.kind) {
      case TopologyItemKind::kLet:
        ExecLet(*item.let);
        break;
      case TopologyItemKind::kProperty:
        Fail(item.range, DiagKind::kBadTopology,
             "a topology has devices and levels; figures belong to one of them");
      case TopologyItemKind::kDevice: {
        ir::DeviceKind kind;
        kind.name = Text(item.name.name);
        kind.range = item.range;
        for (const Property& property : item.properties) {
          std::string name = Text(property.name.name);
          if (name == "memory") {
            kind.memory = std::llround(quantity(property, UnitKind::kBytes, 1, 1e18));
          } else if (name == "memory_bandwidth") {
            kind.memory_bandwidth = quantity(property, UnitKind::kByteRate, 1, 1e18);
          } else if (name == "host_bandwidth") {
            kind.host_bandwidth = quantity(property, UnitKind::kByteRate, 1, 1e18);
          } else if (name == "compute") {
            std::string dtype = property.qualifier.name == kNoName ? "f32" : Text(property.qualifier.name);
            kind.compute[dtype] = quantity(property, UnitKind::kFlopRate, 1, 1e24);
          } else {
            FailNearest(property.range, DiagKind::kBadTopology,
                        fmt::format("a device has no figure '{}'", name), name,
                        {"memory", "memory_bandwidth", "host_bandwidth", "compute"},
                        "the figures are memory, memory_bandwidth, host_bandwidth and compute");
          }
        }
        auto* object = new TopologyObject;
        Value value = Value::Of(ValueKind::kTopology, object);
        object->topology.kinds.push_back(std::move(kind));
        object->topology.device_kind.push_back(0);
        object->topology.range = item.range;
        current_->slots[item.name.slot] = value;
        outermost = value;
        break;
      }
      case TopologyItemKind::kLevel: {
        auto* object = new TopologyObject;
        Value value = Value::Of(ValueKind::kTopology, object);
        ir::Topology& topology = object->topology;
        topology.range = item.range;
        auto bound = [&](int64_t copies, int64_t each) {
          int64_t total = 0;
          if (!__builtin_mul_overflow(copies, each, &total) && total <= kMaxDevices) return;
          Fail(item.range, DiagKind::kTooManyRanks,
               fmt::format("level '{}' would have {:.3g} devices, more than the {} that a topology may have",
                           Text(item.name.name), static_cast<double>(copies) * static_cast<double>(each),
                           kMaxDevices));
        };
        if (item.of.name != kNoName) {
          int64_t copies = IntOf(Eval(*item.members), item.members->range, "the size of a level");
          if (copies < 1) {
            Fail(item.members->range, DiagKind::kBadTopology, fmt::format("a level of {} members", copies));
          }
          if (item.of.slot == kNoSlot) throw Abort{};
          const Value& member = current_->slots[item.of.slot];
          if (member.is(ValueKind::kPoison)) throw Abort{};
          if (!member.is(ValueKind::kTopology))
            FailType(item.of.range, "a member", "a device or a level", member);
          const ir::Topology& part = member.as<TopologyObject>().topology;
          bound(copies, part.devices());
          BurnLoop(copies, item.range);
          topology.device_kind.reserve(static_cast<size_t>(copies * part.devices()));
          for (int64_t i = 0; i < copies; ++i) Append(part, &topology);
        } else {
          Value members = Eval(*item.members);
          std::vector<Value> list = members.is(ValueKind::kTopology)
                                        ? std::vector<Value>{members}
                                        : Elements(members, item.members->range, "the members of a level");
          size_t depth = SIZE_MAX;
          int64_t total = 0;
          for (const Value& member : list) {
            if (!member.is(ValueKind::kTopology))
              FailType(item.members->range, "a member", "a device or a level", member);
            const ir::Topology& part = member.as<TopologyObject>().topology;
            if (depth != SIZE_MAX && part.levels.size() != depth) {
              Fail(item.members->range, DiagKind::kBadTopology,
                   "the members of a level have different depths",
                   "wrap the shallower one into a level of its own: `1 of it`");
            }
            depth = part.levels.size();
            total += part.devices();
            bound(1, total);
            Append(part, &topology);
          }
          if (list.empty()) Fail(item.members->range, DiagKind::kBadTopology, "a level without members");
        }
        ir::Link link;
        for (const Property& property : item.properties) {
          std::string name = Text(property.name.name);
          if (name == "bandwidth") {
            link.bandwidth = quantity(property, UnitKind::kByteRate, 1, 1e18);
          } else if (name == "latency") {
            link.latency = std::llround(quantity(property, UnitKind::kTime, 0, 1e18));
          } else if (name == "nics") {
            link.nics = IntOf(Eval(*property.value), property.value->range, "nics");
            if (link.nics < 1)
              Fail(property.value->range, DiagKind::kBadTopology, fmt::format("{} nics", link.nics));
          } else {
            FailNearest(property.range, DiagKind::kBadTopology,
                        fmt::format("a link has no figure '{}'", name), name,
                        {"bandwidth", "latency", "nics"}, "the figures are bandwidth, latency and nics");
          }
        }
        ir::Level level;
        level.name = Text(item.name.name);
        level.groups.push_back({0, static_cast<uint32_t>(topology.devices()), link});
        topology.levels.push_back(std::move(level));
        current_->slots[item.name.slot] = value;
        outermost = value;
        break;
      }
    }
  }
  if (!outermost.is(ValueKind::kTopology)) {
    Fail(decl.decl->name.range, DiagKind::kBadTopology, fmt::format("topology {} has no device", info.name));
  }
  // Its last item is the whole machine.
  auto* object = new TopologyObject(outermost.as<TopologyObject>());
  Value value = Value::Of(ValueKind::kTopology, object);
  object->topology.name = info.name;
  object->topology.range = range;
  return value;
}

}  // namespace piper::frontend
