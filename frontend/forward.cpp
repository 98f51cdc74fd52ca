// What runs inside a `forward`: calls of submodules and operations, arithmetic of tensors, tags.
#include <fmt/format.h>

#include <algorithm>

#include "frontend/interpreter.h"

namespace piper::frontend {

using ir::DiagKind;

namespace {

constexpr size_t kMaxOperations = 100'000;  // of one model

}  // namespace

Value Interpreter::CallForward(const Value& callee, const CallExpr* call, std::vector<Value>* args,
                               SourceRange range) {
  Value keep = callee;
  const auto& instance = keep.as<InstanceObject>();
  const ModuleInfo& info = *instance.info;
  if (info.forward == kNoSlot || info.slots[static_cast<size_t>(info.forward)].function == nullptr) {
    Fail(range, DiagKind::kNotCallable, fmt::format("module {} has no forward", info.name));
  }
  if (graph_ == nullptr) {
    Fail(range, DiagKind::kNotCallable, fmt::format("module {} is called outside of a forward", info.name),
         "a model is a module; what it computes is called from its forward");
  }
  FunctionObject function;
  function.references = 1;  // lives here
  function.info = info.slots[static_cast<size_t>(info.forward)].function;
  function.self = keep;
  std::string outer = graph_->path;
  if (instance.named) graph_->path = instance.path;
  graph_->builder.SetPath(graph_->path);
  struct Back {
    GraphSession* graph;
    std::string path;
    ~Back() {
      graph->path = path;
      graph->builder.SetPath(path);
    }
  } back{graph_, std::move(outer)};
  return CallFunction(function, call, args, range);
}

ir::ValueId Interpreter::TensorOf(const Value& value, SourceRange range) {
  if (value.is(ValueKind::kTensor)) return value.tensor();
  if (!value.is(ValueKind::kParameter)) FailType(range, "an operand", "a tensor", value);
  const auto& parameter = value.as<ParameterObject>();
  if (graph_ == nullptr || parameter.build != graph_->build) {
    auto error = Report(range, DiagKind::kBadOperation, "this parameter does not belong to the model");
    error.Note(parameter.parameter.range, "declared here")
        .Hint("modules with parameters are members of a module: write `name = Module(..)` there");
    Throw();
  }
  return parameter.value;
}

Value Interpreter::AddOperation(std::string_view kind, const std::vector<ir::ValueId>& operands,
                                std::vector<ir::Attribute> attributes, SourceRange range) {
  if (graph_ == nullptr) {
    Fail(range, DiagKind::kBadOperation, fmt::format("the operation {} stands outside of a forward", kind));
  }
  Burn(1, range);
  graph_->builder.SetTags(graph_->tags);
  if (graph_->builder.graph().operations.size() >= kMaxOperations) {
    Fail(range, DiagKind::kFuelExhausted,
         fmt::format("the model has more than {} operations", kMaxOperations),
         "loops unroll at compile time: fewer layers, or fewer operations in one");
  }
  std::vector<ir::ValueId> results = graph_->builder.Add(kind, operands, std::move(attributes), range);
  if (results.empty()) Throw();
  if (results.size() == 1) return Value::Tensor(results[0]);
  std::vector<Value> values;
  for (ir::ValueId id : results) values.push_back(Value::Tensor(id));
  return MakeList(std::move(values), ValueKind::kTuple);
}

Value Interpreter::TensorArithmetic(BinaryOp op, const Value& left, const Value& right, SourceRange range) {
  if (IsTensor(left) && IsTensor(right)) {
    std::string_view kind = op == BinaryOp::kAdd        ? "add"
                            : op == BinaryOp::kSubtract ? "sub"
                            : op == BinaryOp::kMultiply ? "mul"
                            : op == BinaryOp::kDivide   ? "div"
                                                        : "";
    if (kind.empty()) Fail(range, DiagKind::kBadOperation, "there is no remainder of tensors");
    return AddOperation(kind, {TensorOf(left, range), TensorOf(right, range)}, {}, range);
  }
  bool tensor_left = IsTensor(left);
  const Value& other = tensor_left ? right : left;
  ir::ValueId tensor = TensorOf(tensor_left ? left : right, range);
  double number = NumberOf(other, range, "the operand beside a tensor");
  auto affine = [&](double scale, double offset) {
    return AddOperation("affine", {tensor}, {{"scale", scale}, {"offset", offset}}, range);
  };
  switch (op) {
    case BinaryOp::kAdd:
      return affine(1, number);
    case BinaryOp::kSubtract:
      return tensor_left ? affine(1, -number) : affine(-1, number);
    case BinaryOp::kMultiply:
      return affine(number, 0);
    case BinaryOp::kDivide:
      if (tensor_left) {
        if (number == 0) Fail(range, DiagKind::kDivisionByZero, "cannot divide a tensor by zero");
        return affine(1 / number, 0);
      } else {
        Value constant = AddOperation("constant", {}, {{"value", number}}, range);
        return AddOperation("div", {constant.tensor(), tensor}, {}, range);
      }
    default:
      Fail(range, DiagKind::kBadOperation, "there is no remainder of tensors");
  }
}

std::string Interpreter::NameOf(const Expr& expr) {
  if (expr.kind == ExprKind::kName) return Text(As<NameExpr>(expr).name);
  if (expr.kind == ExprKind::kString) return std::string(As<StringExpr>(expr).value);
  Fail(expr.range, DiagKind::kTypeMismatch, "this must be a name");
}

std::string Interpreter::DimName(Expr& expr) {
  if (expr.kind == ExprKind::kName) {
    auto& name = As<NameExpr>(expr);
    if (name.frame == kFrameLocal || name.frame == kFrameSelf) {
      Value value = EvalName(name);
      if (value.is(ValueKind::kDim)) return value.as<DimObject>().dim.name;
      if (value.is(ValueKind::kString)) return TextOf(value);
    }
    return Text(name.name);
  }
  Value value = Eval(expr);
  if (value.is(ValueKind::kDim)) return value.as<DimObject>().dim.name;
  if (value.is(ValueKind::kString)) return TextOf(value);
  FailType(expr.range, "this", "the name of a dimension", value);
}

ir::AttributeValue Interpreter::AttributeOf(const ir::AttributeInfo& info, Expr& expr,
                                            const ir::TensorType* operand) {
  using Kind = ir::AttributeInfo::Kind;
  std::string what = fmt::format("'{}'", info.name);
  auto items = [&]() -> List<Item> {
    if (expr.kind != ExprKind::kList && expr.kind != ExprKind::kSelector) return {};
    return As<BracketExpr>(expr).items;
  };
  bool bracket = expr.kind == ExprKind::kList || expr.kind == ExprKind::kSelector;
  switch (info.kind) {
    case Kind::kInt:
      return IntOf(Eval(expr), expr.range, what);
    case Kind::kNumber:
      return NumberOf(Eval(expr), expr.range, what);
    case Kind::kFlag: {
      Value value = Eval(expr);
      if (!value.is(ValueKind::kBool)) FailType(expr.range, what, "a bool", value);
      return value.boolean();
    }
    case Kind::kText: {
      if (expr.kind == ExprKind::kName && As<NameExpr>(expr).frame == kFrameUnresolved) return NameOf(expr);
      Value value = Eval(expr);
      if (!value.is(ValueKind::kString)) FailType(expr.range, what, "a string", value);
      return TextOf(value);
    }
    case Kind::kDim:
      return DimName(expr);
    case Kind::kDims: {
      if (!bracket) return std::vector<std::string>{DimName(expr)};
      std::vector<std::string> dims;
      for (Item& item : items()) {
        if (item.value == nullptr || item.key.name != kNoName) {
          Fail(item.range, DiagKind::kBadArguments, fmt::format("{} is a list of dimension names", what));
        }
        dims.push_back(DimName(*item.value));
      }
      return dims;
    }
    case Kind::kInts: {
      std::vector<int64_t> ints;
      for (const Value& value : Elements(Eval(expr), expr.range, what))
        ints.push_back(IntOf(value, expr.range, what));
      return ints;
    }
    case Kind::kShape: {
      if (!bracket) return std::vector<std::string>{DimName(expr)};
      std::vector<std::string> dims;
      for (Item& item : items()) {
        if (item.key.name != kNoName) {
          int64_t size = IntOf(Eval(*item.value), item.range, "a size");
          if (size < 1) Fail(item.range, DiagKind::kOutOfRange, fmt::format("a dimension of size {}", size));
          dims.push_back(fmt::format("{}={}", Text(item.key.name), size));
          continue;
        }
        if (item.value == nullptr) Fail(item.range, DiagKind::kBadArguments, "a shape lists dimensions");
        std::string name = DimName(*item.value);
        // A known dimension that the operand lacks is new, and brings its size.
        bool has = operand != nullptr && std::any_of(operand->dims.begin(), operand->dims.end(),
                                                     [&](const ir::Dim& dim) { return dim.name == name; });
        if (!has && item.value->kind == ExprKind::kName &&
            As<NameExpr>(*item.value).frame != kFrameUnresolved) {
          int64_t size = 0;
          if (ToInt(Eval(*item.value), &size)) name = fmt::format("{}={}", name, size);
        }
        dims.push_back(std::move(name));
      }
      return dims;
    }
  }
  return int64_t{0};
}

Value Interpreter::CallOperation(const ir::OperationRule& rule, const CallExpr& call, const Value* first) {
  std::vector<ir::ValueId> operands;
  std::vector<ir::Attribute> attributes;
  std::vector<std::optional<ir::ValueId>> slots(rule.operands().size());
  std::string form = fmt::format("the form is {}", ir::Signature(rule));
  auto first_type = [&]() -> const ir::TensorType* {
    if (graph_ == nullptr) return nullptr;
    if (!slots.empty() && slots[0]) return &graph_->builder.graph().Type(*slots[0]);
    if (!operands.empty()) return &graph_->builder.graph().Type(operands[0]);
    return nullptr;
  };
  size_t position = 0, attribute = 0;
  for (const Arg& arg : call.args) {
    if (arg.key.name != kNoName) {
      std::string name = Text(arg.key.name);
      auto operand = std::find_if(rule.operands().begin(), rule.operands().end(),
                                  [&](const ir::OperandInfo& info) { return info.name == name; });
      if (operand != rule.operands().end()) {
        auto index = static_cast<size_t>(operand - rule.operands().begin());
        if (slots[index]) {
          Fail(arg.range, DiagKind::kBadArguments, fmt::format("'{}' is given twice", name));
        }
        slots[index] = TensorOf(Eval(*arg.value), arg.value->range);
        continue;
      }
      const ir::AttributeInfo* info = nullptr;
      std::vector<std::string> known;
      for (const ir::OperandInfo& other : rule.operands()) known.push_back(other.name);
      for (const ir::AttributeInfo& other : rule.attributes()) {
        known.push_back(other.name);
        if (other.name == name) info = &other;
      }
      if (info == nullptr) {
        FailNearest(arg.key.range, DiagKind::kBadArguments,
                    fmt::format("{} has no argument '{}'", rule.name(), name), name, known, form);
      }
      for (const ir::Attribute& other : attributes) {
        if (other.name == name)
          Fail(arg.range, DiagKind::kBadArguments, fmt::format("'{}' is given twice", name));
      }
      attributes.push_back({name, AttributeOf(*info, *arg.value, first_type())});
      continue;
    }
    if (position < slots.size() || rule.variadic()) {
      bool unresolved =
          arg.value->kind == ExprKind::kName && As<NameExpr>(*arg.value).frame == kFrameUnresolved;
      Value value = first != nullptr && &arg == call.args.data() ? *first
                    : unresolved                                 ? Value()
                                                                 : Eval(*arg.value);
      if (IsTensor(value)) {
        if (position < slots.size()) {
          slots[position] = TensorOf(value, arg.value->range);
        } else {
          operands.push_back(TensorOf(value, arg.value->range));
        }
        ++position;
        continue;
      }
      if (rule.variadic() && (value.is(ValueKind::kList) || value.is(ValueKind::kTuple)) &&
          !ItemsOf(value).empty() && IsTensor(ItemsOf(value)[0])) {
        for (const Value& item : ItemsOf(value)) operands.push_back(TensorOf(item, arg.value->range));
        position = slots.size();
        continue;
      }
      if (!rule.variadic()) {
        if (unresolved) value = Eval(*arg.value);  // reports the unknown name
        auto error = Report(arg.value->range, DiagKind::kTypeMismatch,
                            fmt::format("operand {} of {} ('{}') must be a tensor, not {}", position + 1,
                                        rule.name(), rule.operands()[position].name, DescribeValue(value)));
        error.Hint(form);
        Throw();
      }
    }
    if (attribute >= rule.attributes().size()) {
      Fail(arg.range, DiagKind::kBadArguments, fmt::format("{} has fewer arguments", rule.name()), form);
    }
    const ir::AttributeInfo& info = rule.attributes()[attribute++];
    attributes.push_back({info.name, AttributeOf(info, *arg.value, first_type())});
  }
  std::vector<ir::ValueId> all;
  bool missing = false;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i]) {
      if (!rule.operands()[i].optional && !rule.variadic()) {
        Fail(call.range, DiagKind::kBadArguments,
             fmt::format("{} needs the operand '{}'", rule.name(), rule.operands()[i].name), form);
      }
      missing = true;
      continue;
    }
    if (missing && !rule.variadic()) {
      Fail(call.range, DiagKind::kBadArguments,
           fmt::format("{} takes '{}' only together with the operands before it", rule.name(),
                       rule.operands()[i].name),
           form);
    }
    all.push_back(*slots[i]);
  }
  all.insert(all.end(), operands.begin(), operands.end());
  return AddOperation(rule.name(), all, std::move(attributes), call.range);
}

Value Interpreter::EvalTag(TagExpr& expr) {
  if (graph_ == nullptr) {
    Fail(expr.range, DiagKind::kBadOperation, "a tag marks a region of a forward");
  }
  ir::TagPathId parent = graph_->tags;
  int64_t index = graph_->occurrences[{parent, expr.tag.name}]++;
  ir::TagPath path = graph_->builder.graph().tag_paths[parent];
  for (const ir::TagInstance& outer : path) {
    if (outer.name == program_.ast.names.Text(expr.tag.name)) {
      Fail(expr.tag.range, DiagKind::kDuplicateName,
           fmt::format("the tag '{}' stands inside a region of the same name", outer.name),
           "scopes nest, but a selector could not tell the two apart");
    }
  }
  path.push_back({Text(expr.tag.name), index});
  Restore<ir::TagPathId> tags(&graph_->tags, graph_->builder.graph().InternTags(path));
  return BlockValue(*expr.body);
}

}  // namespace piper::frontend
