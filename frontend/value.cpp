#include "frontend/value.h"

#include <algorithm>

#include <fmt/format.h>

namespace piper::frontend {

std::string_view ValueKindName(ValueKind kind) {
  switch (kind) {
    case ValueKind::kNone:
      return "nothing";
    case ValueKind::kPoison:
      return "an erroneous value";
    case ValueKind::kInt:
      return "an int";
    case ValueKind::kFloat:
      return "a float";
    case ValueKind::kBool:
      return "a bool";
    case ValueKind::kQuantity:
      return "a quantity";
    case ValueKind::kTensor:
      return "a tensor";
    case ValueKind::kString:
      return "a string";
    case ValueKind::kRange:
      return "a range";
    case ValueKind::kDim:
      return "a dim";
    case ValueKind::kList:
      return "a list";
    case ValueKind::kTuple:
      return "a tuple";
    case ValueKind::kFunction:
      return "a function";
    case ValueKind::kNative:
      return "a built-in function";
    case ValueKind::kSelector:
      return "a selector";
    case ValueKind::kSchedule:
      return "a schedule";
    case ValueKind::kModule:
      return "a module without its arguments";
    case ValueKind::kInstance:
      return "a module";
    case ValueKind::kParameter:
      return "a parameter";
    case ValueKind::kTopologyDecl:
      return "a topology without its arguments";
    case ValueKind::kTopology:
      return "a topology";
    case ValueKind::kStrategyDecl:
      return "a strategy without its arguments";
    case ValueKind::kStrategy:
      return "a strategy";
    case ValueKind::kAxis:
      return "an axis";
    case ValueKind::kGroup:
      return "a group of devices";
    case ValueKind::kQueue:
      return "a queue";
    case ValueKind::kNamespace:
      return "an imported file";
    case ValueKind::kTagSum:
      return "a sum of tags";
    case ValueKind::kInitializer:
      return "an initialiser";
    case ValueKind::kLearningRate:
      return "a learning-rate schedule";
    case ValueKind::kOptimizer:
      return "an optimizer";
    case ValueKind::kData:
      return "a data source";
    case ValueKind::kPlan:
      return "a plan";
  }
  return "?";
}

Value MakeString(std::string text) {
  auto* object = new StringObject;
  object->text = std::move(text);
  return Value::Of(ValueKind::kString, object);
}

Value MakeRange(int64_t begin, int64_t end) {
  auto* object = new RangeObject;
  object->begin = begin;
  object->end = end;
  return Value::Of(ValueKind::kRange, object);
}

Value MakeList(std::vector<Value> items, ValueKind kind) {
  auto* object = new ListObject;
  object->items = std::move(items);
  return Value::Of(kind, object);
}

namespace {

// What selectors left, of this thread.
class SelectorRoom {
 public:
  ~SelectorRoom() {
    while (first_ != nullptr) ::operator delete(Take());
    closed_ = true;
  }
  void* Take() {
    Free* taken = first_;
    if (taken != nullptr) {
      first_ = taken->next;
      --count_;
    }
    return taken;
  }
  bool Keep(void* object) {
    if (closed_ || count_ == kMost) return false;
    first_ = new (object) Free{first_};
    ++count_;
    return true;
  }

 private:
  static constexpr size_t kMost = 1 << 14;
  struct Free {
    Free* next;
  };
  Free* first_ = nullptr;
  size_t count_ = 0;
  bool closed_ = false;
};
thread_local SelectorRoom selector_room;

}  // namespace

void* SelectorObject::operator new(size_t bytes) {
  void* room = bytes == sizeof(SelectorObject) ? selector_room.Take() : nullptr;
  return room != nullptr ? room : ::operator new(bytes);
}

void SelectorObject::operator delete(void* object, size_t bytes) {
#ifndef __SANITIZE_ADDRESS__  // which is to see uses after the end
  if (bytes == sizeof(SelectorObject) && selector_room.Keep(object)) return;
#else
  (void)bytes;
#endif
  ::operator delete(object);
}

Value MakeSelector(ir::StepSelector selector) {
  auto* object = new SelectorObject;
  object->selector = std::move(selector);
  return Value::Of(ValueKind::kSelector, object);
}

Value MakeSchedule(ir::Schedule schedule) {
  auto* object = new ScheduleObject;
  object->schedule = std::move(schedule);
  return Value::Of(ValueKind::kSchedule, object);
}

Value MakeDim(ir::Dim dim) {
  auto* object = new DimObject;
  object->dim = std::move(dim);
  return Value::Of(ValueKind::kDim, object);
}

namespace {

std::string ListText(const std::vector<Value>& items, size_t head, char open, char close) {
  std::string text(1, open);
  for (size_t i = head; i < items.size(); ++i) {
    if (i > head) text += ", ";
    if (i - head == 4 && items.size() - head > 5) {
      text += "..";
      break;
    }
    text += ValueText(items[i]);
  }
  return text + close;
}

}  // namespace

std::string ValueText(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kInt:
      return fmt::format("{}", value.integer());
    case ValueKind::kFloat:
      return fmt::format("{}", value.real());
    case ValueKind::kBool:
      return value.boolean() ? "true" : "false";
    case ValueKind::kQuantity:
      return ir::FormatQuantity(value.quantity());
    case ValueKind::kString:
      return "\"" + TextOf(value) + "\"";
    case ValueKind::kRange:
      return fmt::format("{}..{}", value.as<RangeObject>().begin, value.as<RangeObject>().end);
    case ValueKind::kDim:
      return fmt::format("{} = {}", value.as<DimObject>().dim.name, value.as<DimObject>().dim.size);
    case ValueKind::kList:
      return ListText(ItemsOf(value), 0, '[', ']');
    case ValueKind::kTuple:
      return ListText(ItemsOf(value), 0, '(', ')');
    case ValueKind::kQueue:
      return "queue " + ListText(ItemsOf(value), value.as<ListObject>().head, '[', ']');
    case ValueKind::kSelector:
      return value.as<SelectorObject>().selector.ToString();
    case ValueKind::kSchedule:
      return fmt::format("a schedule of {} steps", value.as<ScheduleObject>().schedule.steps.size());
    case ValueKind::kAxis: {
      std::string text;
      for (const AxisObject::Axis& axis : value.as<AxisObject>().axes)
        text += (text.empty() ? "" : " * ") + axis.name;
      return text;
    }
    default:
      return std::string(ValueKindName(value.kind()));
  }
}

std::string DescribeValue(const Value& value) {
  switch (value.kind()) {
    case ValueKind::kQuantity:
      return fmt::format("{} ({})", ValueText(value), ir::UnitKindName(value.unit()));
    case ValueKind::kInt:
    case ValueKind::kFloat:
    case ValueKind::kBool:
    case ValueKind::kString:
    case ValueKind::kRange:
    case ValueKind::kDim:
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kSelector:
      return fmt::format("{} ({})", ValueText(value), ValueKindName(value.kind()));
    default:
      return std::string(ValueKindName(value.kind()));
  }
}

}  // namespace piper::frontend
