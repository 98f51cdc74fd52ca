// Modules: instances, their paths and parameters; and what their forwards leave, the model graph.
#include <algorithm>

#include <fmt/format.h>

#include "frontend/interpreter.h"

namespace piper::frontend {

using ir::DiagKind;

namespace {

constexpr int64_t kInstanceFuel = 50;  // an instance, or a parameter, takes as long as so many plain steps
// Bounds what a product of dimensions may be, long before it overflows.
constexpr int64_t kMaxElements = int64_t{1} << 45;
constexpr int64_t kMaxDim = int64_t{1} << 40;

bool Elements(const std::vector<ir::Dim>& dims, int64_t* out) {
  *out = 1;
  for (const ir::Dim& dim : dims) {
    if (dim.size > kMaxDim || __builtin_mul_overflow(*out, dim.size, out) || *out > kMaxElements)
      return false;
  }
  return true;
}

}  // namespace

// ---- instances

Value Interpreter::Instantiate(const ModuleInfo& info, const CallExpr* call, std::vector<Value>* args,
                               SourceRange range) {
  Burn(kInstanceFuel, range);
  CheckStack(range);
  auto* object = new InstanceObject;
  Value instance = Value::Of(ValueKind::kInstance, object);
  object->info = &info;
  object->slots.resize(info.slots.size());
  object->created = range;
  Given given;
  if (call != nullptr) {
    BindArguments(*call, info.init.params, info.name, object->slots.data(), &given);
  } else {
    TakeArguments(args, info.init.params, info.name, range, object->slots.data(), &given);
  }
  FrameGuard frame(*this, info.init.frame_size, range);
  Activation activation;
  activation.info = &info.init;
  activation.slots = frame.slots();
  activation.call = range;
  activation.self = object;
  ActivationGuard guard(&current_, &activation);
  Restore<int> depth(&calls_, calls_ + 1);
  FinishArguments(info.init.params, info.name, range, object->slots.data(), given);
  CheckRequirements(info.init, object->slots.data(), range);
  for (const ModuleMember& member : info.decl->members) {
    Burn(1, member.range);
    switch (member.kind) {
      case MemberKind::kParam: {
        Value parameter = MakeParameter(info, member);
        if (member.name.slot != kNoSlot)
          object->slots[static_cast<size_t>(member.name.slot)] = std::move(parameter);
        break;
      }
      case MemberKind::kAssign: {
        Value value = Eval(*member.value);
        if (value.is(ValueKind::kModule)) value = Call(value, {}, member.value->range);
        if (member.name.slot != kNoSlot)
          object->slots[static_cast<size_t>(member.name.slot)] = std::move(value);
        break;
      }
      case MemberKind::kLet: {
        const LetStmt& let = *member.let;
        Value value = EvalArgument(*let.value, let.type);
        if (!let.pattern.tuple) {
          const NameRef& name = let.pattern.names[0];
          value = Convert(std::move(value), let.type, let.value->range, fmt::format("'{}'", Text(name.name)),
                          name.name);
          if (name.slot != kNoSlot) object->slots[static_cast<size_t>(name.slot)] = std::move(value);
          break;
        }
        std::vector<Value> parts = this->Elements(value, let.value->range, "the right side");
        if (parts.size() != let.pattern.names.size()) {
          Fail(let.pattern.range, DiagKind::kTypeMismatch,
               fmt::format("{} names take apart {} values", let.pattern.names.size(), parts.size()));
        }
        for (size_t i = 0; i < parts.size(); ++i) {
          int32_t slot = let.pattern.names[i].slot;
          if (slot != kNoSlot) object->slots[static_cast<size_t>(slot)] = parts[i];
        }
        break;
      }
      case MemberKind::kFn:
      case MemberKind::kForward:
        break;
    }
  }
  return instance;
}

std::optional<ir::Dim> Interpreter::PlaceDim(const NameRef& name, SourceRange range) {
  const Value* value = nullptr;
  Value global;
  switch (PlaceFrame(name.slot)) {
    case kFrameSelf:
      if (current_->self != nullptr)
        value = &current_->self->slots[static_cast<size_t>(PlaceSlot(name.slot))];
      break;
    case kFrameLocal:
      value = &current_->slots[PlaceSlot(name.slot)];
      break;
    case kFrameGlobal:
      global = Global(PlaceSlot(name.slot));
      value = &global;
      break;
    default:
      break;
  }
  if (value == nullptr) return std::nullopt;
  if (value->is(ValueKind::kDim)) return value->as<DimObject>().dim;
  if (value->is(ValueKind::kInt)) {
    if (value->integer() < 1) {
      Fail(range, DiagKind::kOutOfRange,
           fmt::format("the dimension '{}' must be at least 1, not {}", Text(name.name), value->integer()));
    }
    return ir::Dim{Text(name.name), value->integer()};
  }
  Fail(range, DiagKind::kUnknownDim,
       fmt::format("'{}' is {}, not a dimension", Text(name.name), ValueKindName(value->kind())));
}

std::optional<ir::DType> Interpreter::DTypeOf(const TypeRef& type) {
  if (type.name.name == kNoName) return std::nullopt;
  std::string text = Text(type.name.name);
  for (ir::DType dtype : {ir::DType::kF32, ir::DType::kF64, ir::DType::kBF16, ir::DType::kI32}) {
    if (text == ir::DTypeName(dtype)) return dtype;
  }
  FailNearest(type.name.range, DiagKind::kDTypeMismatch, fmt::format("unknown element type '{}'", text), text,
              {"f32", "f64", "bf16", "i32"}, "the element types are f32, f64, bf16 and i32");
}

Value Interpreter::MakeParameter(const ModuleInfo& info, const ModuleMember& member) {
  Burn(kInstanceFuel, member.range);
  auto* object = new ParameterObject;
  Value parameter = Value::Of(ValueKind::kParameter, object);
  const TypeRef& type = *member.type;
  if (type.kind != TypeKind::kTensor) {
    Fail(type.range, DiagKind::kTypeMismatch,
         "a parameter is a tensor: write its dimensions, `[embed, hidden]`");
  }
  object->parameter.range = member.name.range;
  ir::TensorType& tensor = object->parameter.type;
  tensor.dtype = DTypeOf(type).value_or(ir::DType::kF32);
  if (tensor.dtype == ir::DType::kI32) {
    Fail(type.range, DiagKind::kDTypeMismatch, "a parameter is trained, so it cannot hold integers");
  }
  for (const TypeDim& dim : type.dims) {
    ir::Dim entry;
    if (dim.size == nullptr) {
      std::optional<ir::Dim> placed = PlaceDim(dim.name, dim.range);
      if (!placed) throw Abort{};  // reported when names were resolved
      entry = *placed;
    } else {
      if (dim.name.name == kNoName) {
        Fail(dim.range, DiagKind::kUnknownDim, "a dimension of a parameter needs a name",
             fmt::format("name it: [hidden = {}]", sources_.Text(dim.size->range)));
      }
      entry.name = Text(dim.name.name);
      entry.size = IntOf(Eval(*dim.size), dim.size->range, fmt::format("the size of '{}'", entry.name));
      if (entry.size < 1) {
        Fail(dim.range, DiagKind::kOutOfRange,
             fmt::format("the dimension '{}' must be at least 1, not {}", entry.name, entry.size));
      }
      if (PlaceFrame(dim.name.slot) == kFrameSelf) {
        auto slot = static_cast<size_t>(PlaceSlot(dim.name.slot));
        Value& place = const_cast<InstanceObject*>(current_->self)->slots[slot];
        int64_t known = 0;
        if (place.is(ValueKind::kNone)) {
          place = MakeDim(entry);
        } else if (ToInt(place, &known) && known != entry.size) {
          Fail(dim.range, DiagKind::kShapeMismatch,
               fmt::format("the dimension '{}' is {} here, but {} in the rest of module {}", entry.name,
                           entry.size, known, info.name),
               "give one of them another name");
        }
      }
    }
    for (const ir::Dim& other : tensor.dims) {
      if (other.name != entry.name) continue;
      Fail(dim.range, DiagKind::kShapeMismatch,
           fmt::format("a parameter cannot have the dimension '{}' twice", entry.name),
           "pass a size instead of the dimension to give one side its own name");
    }
    tensor.dims.push_back(std::move(entry));
  }
  int64_t elements = 0;
  if (!piper::frontend::Elements(tensor.dims, &elements)) {
    Fail(type.range, DiagKind::kOutOfRange,
         fmt::format("the parameter {} has more than 2^45 elements", tensor.ToString()));
  }
  if (member.value != nullptr) {
    Value init = Eval(*member.value);
    double constant = 0;
    if (init.is(ValueKind::kInitializer)) {
      object->parameter.init = init.as<InitializerObject>().init;
    } else if (init.is(ValueKind::kInt) || init.is(ValueKind::kFloat)) {
      constant = NumberOf(init, member.value->range, "a constant");
      object->parameter.init = {ir::Initializer::Kind::kConstant, constant, 0};
    } else {
      FailType(member.value->range, "the initial value of a parameter", "an initialiser such as normal(0.02)",
               init);
    }
  }
  return parameter;
}

void Interpreter::NameTree(const Value& value, const std::string& path) {
  if (value.is(ValueKind::kList) || value.is(ValueKind::kTuple)) {
    const auto& items = ItemsOf(value);
    for (size_t i = 0; i < items.size(); ++i) NameTree(items[i], fmt::format("{}.{}", path, i));
    return;
  }
  if (value.is(ValueKind::kParameter)) {
    auto& parameter = value.as<ParameterObject>().parameter;
    if (parameter.name.empty()) parameter.name = path;
    return;
  }
  if (!value.is(ValueKind::kInstance)) return;
  CheckStack(value.as<InstanceObject>().created);
  auto& instance = value.as<InstanceObject>();
  if (instance.named) return;
  instance.named = true;
  instance.path = path;
  for (size_t i = 0; i < instance.slots.size(); ++i) {
    std::string name = Text(instance.info->slots[i].name);
    NameTree(instance.slots[i], path.empty() ? name : path + "." + name);
  }
}

void Interpreter::AddParameters(const Value& value, ir::Graph* graph) {
  if (value.is(ValueKind::kList) || value.is(ValueKind::kTuple)) {
    for (const Value& item : ItemsOf(value)) AddParameters(item, graph);
  } else if (value.is(ValueKind::kParameter)) {
    auto& parameter = value.as<ParameterObject>();
    if (parameter.build == graph_->build) return;
    parameter.build = graph_->build;
    parameter.value = graph->AddParameter(parameter.parameter);
  } else if (value.is(ValueKind::kInstance)) {
    for (const Value& slot : value.as<InstanceObject>().slots) AddParameters(slot, graph);
  }
}

// ---- types

void Interpreter::CheckTensor(const Value& value, const TypeRef& type, SourceRange range,
                              const std::string& what) {
  const ir::TensorType actual = value.is(ValueKind::kParameter)
                                    ? value.as<ParameterObject>().parameter.type
                                    : graph_->builder.graph().Type(value.tensor());
  auto mismatch = [&](const std::string& why) {
    auto error = Report(
        range, DiagKind::kShapeMismatch,
        fmt::format("{} is {}, declared {}: {}", what, actual.ToString(), sources_.Text(type.range), why));
    error.Note(type.range, "declared here");
    Throw();
  };
  if (actual.dims.size() != type.dims.size()) {
    mismatch(fmt::format("it has {} dimensions, not {}", actual.dims.size(), type.dims.size()));
  }
  for (size_t i = 0; i < type.dims.size(); ++i) {
    const TypeDim& dim = type.dims[i];
    const ir::Dim& got = actual.dims[i];
    if (dim.size != nullptr) {
      int64_t size = IntOf(Eval(*dim.size), dim.range, "a size");
      bool named = dim.name.name != kNoName;
      if (got.size != size || (named && got.name != Text(dim.name.name))) {
        mismatch(fmt::format("dimension {} is {} = {}, not {}{}", i + 1, got.name, got.size,
                             named ? Text(dim.name.name) + " = " : "", size));
      }
      continue;
    }
    if (std::optional<ir::Dim> placed = PlaceDim(dim.name, dim.range)) {
      if (got != *placed) {
        mismatch(fmt::format("dimension {} is {} = {}, not {} = {}", i + 1, got.name, got.size, placed->name,
                             placed->size));
      }
      continue;
    }
    std::string name = Text(dim.name.name);
    if (got.name != name)
      mismatch(fmt::format("dimension {} is {} = {}, not {}", i + 1, got.name, got.size, name));
    bool known = false;
    for (const auto& [free, size] : current_->dims) {
      if (free != dim.name.name) continue;
      known = true;
      if (size != got.size) {
        mismatch(fmt::format("'{}' is {} here and {} in an argument before", name, got.size, size));
      }
    }
    if (!known) current_->dims.emplace_back(dim.name.name, got.size);
  }
  std::optional<ir::DType> dtype = DTypeOf(type);
  bool integers = actual.dtype == ir::DType::kI32;
  if (dtype ? *dtype != actual.dtype : integers) {
    auto error =
        Report(range, DiagKind::kDTypeMismatch,
               fmt::format("{} holds {}, declared {}", what, ir::DTypeName(actual.dtype),
                           dtype ? std::string(ir::DTypeName(*dtype)) : "without an element type: floats"));
    error.Note(type.range, "declared here");
    Throw();
  }
}

ir::TensorType Interpreter::InputType(const TypeRef& type, int64_t batch) {
  ir::TensorType tensor;
  tensor.dtype = DTypeOf(type).value_or(ir::DType::kF32);
  for (const TypeDim& dim : type.dims) {
    ir::Dim entry;
    if (dim.name.name != kNoName) entry.name = Text(dim.name.name);
    if (dim.size != nullptr) {
      if (entry.name.empty()) {
        Fail(dim.range, DiagKind::kUnknownDim, "a dimension of a model's input needs a name");
      }
      entry.size = IntOf(Eval(*dim.size), dim.range, "a size");
    } else if (std::optional<ir::Dim> placed = PlaceDim(dim.name, dim.range)) {
      entry = *placed;
    } else if (entry.name == "batch") {
      entry.size = batch;
    } else {
      Fail(dim.range, DiagKind::kUnknownDim,
           fmt::format("the size of the input's dimension '{}' is not known", entry.name),
           fmt::format("make it a parameter of the module, `{}: dim`; only `batch` comes from global_batch",
                       entry.name));
    }
    tensor.dims.push_back(std::move(entry));
  }
  int64_t elements = 0;
  if (!piper::frontend::Elements(tensor.dims, &elements)) {
    Fail(type.range, DiagKind::kOutOfRange,
         fmt::format("the input {} has more than 2^45 elements", tensor.ToString()));
  }
  return tensor;
}

// ---- the graph

void Interpreter::CollectLosses(const InstanceObject& instance, const Value& value, ir::Graph* graph,
                                SourceRange range) {
  const FunctionInfo& forward = *instance.info->slots[static_cast<size_t>(instance.info->forward)].function;
  const TypeRef* result = forward.decl->result;
  auto is_loss = [](const TypeRef* type) {
    return type != nullptr && type->kind == TypeKind::kName && type->name.name == names::kLoss;
  };
  bool tuple = result != nullptr && result->kind == TypeKind::kTuple &&
               std::all_of(result->arguments.begin(), result->arguments.end(), is_loss);
  if (!is_loss(result) && !tuple) {
    auto error = Report(range, DiagKind::kNoLoss,
                        fmt::format("the forward of {} does not promise a loss, so it cannot be trained",
                                    instance.info->name));
    error.Note(result != nullptr ? result->range : forward.decl->name.range, "the forward of the model")
        .Hint("write `-> loss`, or `-> (loss, loss)` for several");
    Throw();
  }
  if (!tuple) {
    if (!IsTensor(value)) FailType(range, "the loss", "a tensor", value);
    graph->losses.push_back({TensorOf(value, range), "loss", result->range});
    return;
  }
  // The names of the losses are those of the variables in the tuple.
  const Expr* last = nullptr;
  if (!forward.decl->body->statements.empty()) {
    const Stmt* statement = forward.decl->body->statements.back();
    if (statement->kind == StmtKind::kReturn) last = As<ReturnStmt>(*statement).value;
    if (statement->kind == StmtKind::kExpr) last = As<ExprStmt>(*statement).value;
  }
  const auto& items = ItemsOf(value);
  for (size_t i = 0; i < items.size(); ++i) {
    ir::Loss loss;
    loss.value = TensorOf(items[i], range);
    loss.name = fmt::format("loss{}", i);
    loss.range = result->arguments[i]->range;
    if (last != nullptr && last->kind == ExprKind::kTuple &&
        As<TupleExpr>(*last).items.size() == items.size()) {
      const Expr* item = As<TupleExpr>(*last).items[i];
      loss.range = item->range;
      if (item->kind == ExprKind::kName) loss.name = Text(As<NameExpr>(*item).name);
    }
    graph->losses.push_back(std::move(loss));
  }
}

void Interpreter::CheckParametersUsed(const ir::Graph& graph) {
  std::vector<bool> used(graph.parameters.size(), false);
  for (const ir::Operation& op : graph.operations) {
    for (ir::ValueId operand : op.operands) {
      const ir::Value& value = graph.values[operand];
      if (value.source == ir::Value::Source::kParameter) used[value.index] = true;
    }
  }
  bool error = false;
  std::vector<SourceRange> reported;
  for (size_t i = 0; i < used.size(); ++i) {
    const ir::Parameter& parameter = graph.parameters[i];
    if (used[i] || std::find(reported.begin(), reported.end(), parameter.range) != reported.end()) continue;
    reported.push_back(parameter.range);
    Report(parameter.range, DiagKind::kUnusedParameter,
           fmt::format("the parameter {} takes no part in the forward", parameter.name))
        .Hint("use it, or take it out: nothing would train it");
    error = true;
  }
  if (error) throw Abort{};

  // What the losses depend on differentiably.
  std::vector<bool> reached(graph.values.size(), false);
  for (const ir::Loss& loss : graph.losses) reached[loss.value] = true;
  bool trainable = false;
  for (size_t v = graph.values.size(); v-- > 0;) {
    if (!reached[v]) continue;
    const ir::Value& value = graph.values[v];
    trainable = trainable || value.source == ir::Value::Source::kParameter;
    if (value.source != ir::Value::Source::kOperation) continue;
    const ir::Operation& op = graph.operations[value.index];
    if (op.kind == "stop_gradient") continue;
    for (ir::ValueId operand : op.operands) reached[operand] = true;
  }
  if (!trainable) {
    Report(graph.losses.front().range, DiagKind::kNotDifferentiable,
           "no parameter reaches the loss, so there is nothing to learn")
        .Hint(graph.parameters.empty() ? "declare one: param weight: [inputs, outputs] = normal(0.02)"
                                       : "does every path go through stop_gradient?");
    throw Abort{};
  }
}

std::shared_ptr<const ir::Graph> Interpreter::BuildModel(const Value& model, int64_t global_batch,
                                                         SourceRange range) {
  if (!model.is(ValueKind::kInstance)) FailType(range, "a model", "a module", model);
  for (const CachedGraph& cached : graphs_) {
    if (cached.model == model.object() && cached.batch == global_batch) return cached.graph;
  }
  const auto& instance = model.as<InstanceObject>();
  if (instance.info->forward == kNoSlot) {
    Fail(range, DiagKind::kNoLoss, fmt::format("module {} has no forward", instance.info->name));
  }
  const FunctionInfo* forward = instance.info->slots[static_cast<size_t>(instance.info->forward)].function;
  if (forward == nullptr) throw Abort{};
  auto graph = std::make_shared<ir::Graph>();
  graph->name = instance.info->name;
  GraphSession session(graph.get(), diag_);
  session.build = ++builds_;
  session.root = forward;
  Restore<GraphSession*> restore(&graph_, &session);
  NameTree(model, "");
  AddParameters(model, graph.get());
  std::vector<Value> inputs;
  WithFrame(*forward, {}, [&] {
    current_->self = &instance;
    for (const Param& param : forward->params) {
      if (param.type == nullptr || param.type->kind != TypeKind::kTensor) {
        Fail(param.range, DiagKind::kTypeMismatch,
             fmt::format("the input '{}' of a model needs its dimensions", Text(param.name.name)),
             fmt::format("for example {}: [batch, seq] i32", Text(param.name.name)));
      }
      ir::Input input;
      input.name = Text(param.name.name);
      input.type = InputType(*param.type, global_batch);
      input.range = param.range;
      inputs.push_back(Value::Tensor(graph->AddInput(std::move(input))));
    }
  });
  Value result = CallForward(model, nullptr, &inputs, range);
  CollectLosses(instance, result, graph.get(), range);
  size_t errors = diag_->error_count();
  if (!ir::CheckLosses(*graph, *diag_)) throw Abort{};
  CheckParametersUsed(*graph);
  if (diag_->error_count() > errors) throw Abort{};
  kept_models_.push_back(model);
  graphs_.push_back({model.object(), global_batch, graph});
  return graph;
}

}  // namespace piper::frontend
