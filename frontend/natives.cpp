#include "frontend/natives.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "frontend/interpreter.h"

namespace piper::frontend {

using ir::DiagKind;

namespace {

// Matches the arguments of a call with the parameters of a signature.
class Args {
 public:
  Args(Interpreter& interpreter, NativeCall& call, const Native& native, std::vector<std::string> params)
      : interpreter_(interpreter),
        call_(call),
        native_(native),
        params_(std::move(params)),
        args_(params_.size()) {
    size_t position = 0;
    for (NativeArg& arg : call.args) {
      size_t index = position;
      if (arg.name == kNoName) {
        ++position;
      } else {
        std::string name = interpreter.Text(arg.name);
        index = static_cast<size_t>(std::find(params_.begin(), params_.end(), name) - params_.begin());
        if (index == params_.size()) {
          interpreter.FailNearest(arg.range, DiagKind::kBadArguments,
                                  fmt::format("{} has no parameter '{}'", native.name, name), name, params_,
                                  Form());
        }
      }
      if (index >= params_.size()) {
        interpreter.Fail(arg.range, DiagKind::kBadArguments,
                         fmt::format("{} takes {} argument{}", native.name, params_.size(),
                                     params_.size() == 1 ? "" : "s"),
                         Form());
      }
      if (args_[index] != nullptr) {
        interpreter.Fail(arg.range, DiagKind::kBadArguments,
                         fmt::format("'{}' is given twice", params_[index]));
      }
      args_[index] = &arg;
    }
  }

  bool Has(size_t i) const { return args_[i] != nullptr; }
  const NativeArg& Need(size_t i) {
    if (args_[i] == nullptr) {
      interpreter_.Fail(call_.range, DiagKind::kBadArguments,
                        fmt::format("{} needs the argument '{}'", native_.name, params_[i]), Form());
    }
    return *args_[i];
  }
  double Number(size_t i, double otherwise) {
    if (args_[i] == nullptr) return otherwise;
    double value = interpreter_.NumberOf(args_[i]->value, args_[i]->range, What(i));
    if (!std::isfinite(value)) Range(i, "must be finite");
    return value;
  }
  double Number(size_t i) {
    Need(i);
    return Number(i, 0);
  }
  int64_t Int(size_t i) { return interpreter_.IntOf(Need(i).value, args_[i]->range, What(i)); }
  int64_t Int(size_t i, int64_t otherwise) { return args_[i] == nullptr ? otherwise : Int(i); }
  bool Flag(size_t i, bool otherwise) {
    if (args_[i] == nullptr) return otherwise;
    if (!args_[i]->value.is(ValueKind::kBool))
      interpreter_.FailType(args_[i]->range, What(i), "a bool", args_[i]->value);
    return args_[i]->value.boolean();
  }
  std::string String(size_t i) {
    const NativeArg& arg = Need(i);
    if (!arg.value.is(ValueKind::kString)) interpreter_.FailType(arg.range, What(i), "a string", arg.value);
    return TextOf(arg.value);
  }
  [[noreturn]] void Range(size_t i, std::string_view rule, DiagKind kind = DiagKind::kOutOfRange) {
    interpreter_.Fail(
        args_[i]->range, kind,
        fmt::format("{} of {} {}, but is {}", What(i), native_.name, rule, ValueText(args_[i]->value)));
  }
  std::string What(size_t i) const { return fmt::format("'{}'", params_[i]); }
  std::string Form() const { return fmt::format("the form is {}", native_.signature); }

 private:
  Interpreter& interpreter_;
  NativeCall& call_;
  const Native& native_;
  std::vector<std::string> params_;
  std::vector<NativeArg*> args_;
};

const Native& Self(std::string_view name) { return Natives()[static_cast<size_t>(FindNative(name))]; }

// ---- numbers, lists

// min(a, b, ..) or min(xs).
Value Extreme(Interpreter& in, NativeCall& call, BinaryOp better, std::string_view name) {
  std::vector<Value> values;
  for (NativeArg& arg : call.args) {
    if (arg.name != kNoName)
      in.Fail(arg.range, DiagKind::kBadArguments, fmt::format("{} takes no names", name));
    values.push_back(arg.value);
  }
  if (values.size() == 1 && (values[0].is(ValueKind::kList) || values[0].is(ValueKind::kRange))) {
    values = in.Elements(values[0], call.range, "the argument");
  }
  if (values.empty()) in.Fail(call.range, DiagKind::kOutOfRange, fmt::format("the {} of nothing", name));
  Value best = values[0];
  for (size_t i = 1; i < values.size(); ++i) {
    if (in.Order(better, values[i], best, call.range)) best = values[i];
  }
  if (best.is(ValueKind::kDim)) return Value::Int(best.as<DimObject>().dim.size);
  return best;
}
Value Min(Interpreter& in, NativeCall& call) { return Extreme(in, call, BinaryOp::kLess, "min"); }
Value Max(Interpreter& in, NativeCall& call) { return Extreme(in, call, BinaryOp::kGreater, "max"); }

Value Abs(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("abs"), {"x"});
  const Value& x = args.Need(0).value;
  int64_t integer = 0;
  if (in.ToInt(x, &integer)) {
    if (integer == INT64_MIN) args.Range(0, "must fit 63 bits");
    return Value::Int(integer < 0 ? -integer : integer);
  }
  if (x.is(ValueKind::kQuantity)) return Value::Quantity(std::fabs(x.real()), x.unit());
  return Value::Float(std::fabs(args.Number(0)));
}

Value RoundWith(Interpreter& in, NativeCall& call, std::string_view name, double (*round)(double)) {
  Args args(in, call, Self(name), {"x"});
  int64_t integer = 0;
  if (in.ToInt(args.Need(0).value, &integer)) return Value::Int(integer);
  double x = round(args.Number(0));
  if (std::fabs(x) > 9e18) args.Range(0, "must fit 63 bits");
  return Value::Int(static_cast<int64_t>(x));
}
Value Floor(Interpreter& in, NativeCall& call) {
  return RoundWith(in, call, "floor", [](double x) { return std::floor(x); });
}
Value Ceil(Interpreter& in, NativeCall& call) {
  return RoundWith(in, call, "ceil", [](double x) { return std::ceil(x); });
}
Value Round(Interpreter& in, NativeCall& call) {
  return RoundWith(in, call, "round", [](double x) { return std::round(x); });
}

Value Div(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("div"), {"a", "b"});
  int64_t a = args.Int(0), b = args.Int(1);
  if (b == 0) in.Fail(call.range, DiagKind::kDivisionByZero, fmt::format("cannot divide {} by zero", a));
  if (a == INT64_MIN && b == -1) args.Range(0, "must fit 63 bits");
  return Value::Int(a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0));
}

bool MinOfTwo(int64_t a, int64_t b, int64_t* result) {
  *result = std::min(a, b);
  return true;
}
bool MaxOfTwo(int64_t a, int64_t b, int64_t* result) {
  *result = std::max(a, b);
  return true;
}
bool DivOfTwo(int64_t a, int64_t b, int64_t* result) {
  if (b <= 0) return false;
  *result = a / b - (a % b < 0 ? 1 : 0);
  return true;
}

Value Sqrt(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("sqrt"), {"x"});
  double x = args.Number(0);
  if (x < 0) args.Range(0, "must not be negative");
  return Value::Float(std::sqrt(x));
}

Value ToFloat(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("float"), {"x"});
  return Value::Float(args.Number(0));
}

Value Digits(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("digits"), {"n"});
  return MakeString(fmt::format("{}", args.Int(0)));
}

Value Len(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("len"), {"xs"});
  const NativeArg& arg = args.Need(0);
  switch (arg.value.kind()) {
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kQueue:
      return Value::Int(static_cast<int64_t>(ItemsOf(arg.value).size() - arg.value.as<ListObject>().head));
    case ValueKind::kRange:
      return Value::Int(
          std::max<int64_t>(0, arg.value.as<RangeObject>().end - arg.value.as<RangeObject>().begin));
    case ValueKind::kString:
      return Value::Int(static_cast<int64_t>(TextOf(arg.value).size()));
    case ValueKind::kSchedule:
      return Value::Int(static_cast<int64_t>(arg.value.as<ScheduleObject>().schedule.steps.size()));
    default:
      in.FailType(arg.range, "what len measures", "a list, a range, a string or a schedule", arg.value);
  }
}

Value Range(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("range"), {"begin", "end", "step"});
  int64_t first = args.Int(0);
  if (!args.Has(1)) return MakeRange(0, first);
  int64_t end = args.Int(1), step = args.Int(2, 1);
  if (step == 0) args.Range(2, "must not be zero");
  if (step == 1) return MakeRange(first, end);
  std::vector<Value> items;
  if (step > 0 ? first >= end : first <= end) return MakeList(std::move(items));
  // Differences of 64-bit numbers, exact in 128.
  auto distance = step > 0 ? static_cast<__int128>(end) - first : static_cast<__int128>(first) - end;
  auto stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  auto count = static_cast<int64_t>(std::min<__int128>((distance + stride - 1) / stride, INT64_MAX));
  in.BurnLoop(count, call.range);
  for (int64_t i = 0; i < count; ++i) items.push_back(Value::Int(first + i * step));
  return MakeList(std::move(items));
}

// zip(xs, ys, ..): tuples up to the shortest; with `pad`, up to the longest, continued by selectors of
// nothing.
Value Zip(Interpreter& in, NativeCall& call) {
  bool pad = false;
  std::vector<std::vector<Value>> lists;
  for (NativeArg& arg : call.args) {
    if (arg.expr != nullptr && arg.expr->kind == ExprKind::kName &&
        As<NameExpr>(*arg.expr).name == names::kPad && arg.value.is(ValueKind::kNone)) {
      pad = true;
      continue;
    }
    lists.push_back(in.Elements(arg.value, arg.range, "what zip joins"));
  }
  if (lists.size() < 2) in.Fail(call.range, DiagKind::kBadArguments, "zip joins two lists or more");
  size_t shortest = SIZE_MAX, longest = 0;
  for (const auto& list : lists) {
    shortest = std::min(shortest, list.size());
    longest = std::max(longest, list.size());
  }
  ir::Selector nothing;
  nothing.optional = true;
  nothing.range = call.range;
  Value empty = MakeSelector(nothing);
  std::vector<Value> result;
  for (size_t i = 0; i < (pad ? longest : shortest); ++i) {
    in.Burn(1, call.range);
    std::vector<Value> tuple;
    for (const auto& list : lists) tuple.push_back(i < list.size() ? list[i] : empty);
    result.push_back(MakeList(std::move(tuple), ValueKind::kTuple));
  }
  return MakeList(std::move(result));
}

Value Sum(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("sum"), {"xs"});
  Value total = Value::Int(0);
  bool first = true;
  for (const Value& item : in.Elements(args.Need(0).value, call.range, "what sum adds")) {
    total = first ? item : in.Add(total, item, call.range);
    first = false;
  }
  return total;
}

Value Sorted(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("sorted"), {"xs", "key"});
  std::vector<Value> items = in.Elements(args.Need(0).value, call.range, "what sorted sorts");
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items) {
    Value key = args.Has(1) ? in.Call(args.Need(1).value, {item}, call.range) : item;
    keyed.emplace_back(std::move(key), std::move(item));
  }
  // Every comparison is checked once before sorting, so that the order is total.
  for (size_t i = 1; i < keyed.size(); ++i)
    in.Order(BinaryOp::kLess, keyed[i - 1].first, keyed[i].first, call.range);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return in.Order(BinaryOp::kLess, a.first, b.first, call.range);
  });
  items.clear();
  for (auto& [_, item] : keyed) items.push_back(std::move(item));
  return MakeList(std::move(items));
}

Value Reversed(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("reversed"), {"xs"});
  std::vector<Value> items = in.Elements(args.Need(0).value, call.range, "what reversed turns round");
  std::reverse(items.begin(), items.end());
  return MakeList(std::move(items));
}

// ---- the
// model

Value Size(Interpreter& in, NativeCall& call) {
  if (call.args.size() != 1)
    in.Fail(call.range, DiagKind::kBadArguments, "size takes the name of a dimension");
  NativeArg& arg = call.args[0];
  int64_t size = 0;
  if (in.ToInt(arg.value, &size)) return Value::Int(size);
  return Value::Int(in.SizeOfDim(in.NameOf(*arg.expr), arg.range));
}

Value Count(Interpreter& in, NativeCall& call) {
  if (call.args.size() != 1 || call.args[0].expr == nullptr) {
    in.Fail(call.range, DiagKind::kBadArguments, "count takes the name of a tag");
  }
  return Value::Int(in.CountOfTag(in.NameOf(*call.args[0].expr), call.args[0].range));
}

Value MakeNamedDim(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("named"), {"name", "size"});
  int64_t size = args.Int(1);
  if (size < 1) args.Range(1, "must be at least 1");
  return MakeDim({args.String(0), size});
}

Value MakeInitializer(ir::Initializer init) {
  auto* object = new InitializerObject;
  object->init = init;
  return Value::Of(ValueKind::kInitializer, object);
}
Value Zeros() { return MakeInitializer({ir::Initializer::Kind::kZeros, 0, 0}); }
Value Ones() { return MakeInitializer({ir::Initializer::Kind::kOnes, 0, 0}); }
// Parameters begin as f32 numbers, a normal one within 8 deviations or so.
constexpr double kLargestInitial = 1e37;

Value Normal(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("normal"), {"std"});
  double deviation = args.Number(0);
  if (!(deviation >= 0)) args.Range(0, "must not be negative");
  if (deviation > kLargestInitial) args.Range(0, "must be at most 1e37, so that samples fit f32");
  return MakeInitializer({ir::Initializer::Kind::kNormal, deviation, 0});
}
Value Uniform(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("uniform"), {"low", "high"});
  double low = args.Number(0), high = args.Number(1);
  if (!(low <= high)) args.Range(1, "must not lie below 'low'");
  if (low < -kLargestInitial) args.Range(0, "must be at least -1e37, so that samples fit f32");
  if (high > kLargestInitial) args.Range(1, "must be at most 1e37, so that samples fit f32");
  return MakeInitializer({ir::Initializer::Kind::kUniform, low, high});
}

// ---- training

Value MakeRate(ir::LearningRate rate) {
  auto* object = new LearningRateObject;
  object->rate = rate;
  return Value::Of(ValueKind::kLearningRate, object);
}

Value Warmup(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("warmup"), {"steps", "lr"});
  ir::LearningRate rate;
  rate.kind = ir::LearningRate::Kind::kWarmup;
  rate.warmup = args.Int(0);
  rate.peak = args.Number(1);
  if (rate.warmup < 0) args.Range(0, "must not be negative");
  if (!(rate.peak >= 0)) args.Range(1, "must not be negative");
  return MakeRate(rate);
}

Value Cosine(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("cosine"), {"lr", "total", "warmup", "floor"});
  ir::LearningRate rate;
  rate.kind = ir::LearningRate::Kind::kCosine;
  rate.peak = args.Number(0);
  rate.total = args.Int(1);
  rate.warmup = args.Int(2, 0);
  rate.floor = args.Number(3, 0);
  if (!(rate.peak >= 0)) args.Range(0, "must not be negative");
  if (rate.warmup < 0) args.Range(2, "must not be negative");
  if (rate.total <= rate.warmup)
    args.Range(1, fmt::format("must lie behind the {} steps of warm-up", rate.warmup));
  if (rate.floor < 0 || rate.floor > rate.peak) args.Range(3, "must lie between 0 and 'lr'");
  return MakeRate(rate);
}

ir::LearningRate RateOf(Interpreter& in, Args& args, size_t i) {
  const NativeArg& arg = args.Need(i);
  if (arg.value.is(ValueKind::kLearningRate)) return arg.value.as<LearningRateObject>().rate;
  ir::LearningRate rate;
  if (!arg.value.is(ValueKind::kInt) && !arg.value.is(ValueKind::kFloat)) {
    in.FailType(arg.range, "a learning rate", "a number, warmup(..) or cosine(..)", arg.value);
  }
  rate.peak = args.Number(i);
  if (!(rate.peak >= 0)) args.Range(i, "must not be negative", DiagKind::kBadOptimizer);
  return rate;
}

std::vector<std::string> Patterns(Interpreter& in, Args& args, size_t i) {
  std::vector<std::string> names;
  if (!args.Has(i)) return names;
  const NativeArg& arg = args.Need(i);
  if (arg.value.is(ValueKind::kString)) return {TextOf(arg.value)};
  for (const Value& item : in.Elements(arg.value, arg.range, args.What(i))) {
    if (!item.is(ValueKind::kString))
      in.FailType(arg.range, "a pattern of parameter names", "a string", item);
    names.push_back(TextOf(item));
  }
  return names;
}

Value MakeOptimizer(ir::OptimizerSpec spec) {
  auto* object = new OptimizerObject;
  object->spec = std::move(spec);
  return Value::Of(ValueKind::kOptimizer, object);
}

Value AdamW(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("adamw"),
            {"lr", "weight_decay", "beta1", "beta2", "eps", "matrices_only", "names"});
  ir::OptimizerSpec spec;
  spec.kind = ir::OptimizerSpec::Kind::kAdamW;
  spec.range = call.range;
  spec.lr = RateOf(in, args, 0);
  spec.weight_decay = args.Number(1, 0);
  spec.beta1 = args.Number(2, 0.9);
  spec.beta2 = args.Number(3, 0.999);
  spec.eps = args.Number(4, 1e-8);
  spec.matrices_only = args.Flag(5, false);
  spec.parameter_names = Patterns(in, args, 6);
  constexpr DiagKind kKind = DiagKind::kBadOptimizer;
  if (spec.weight_decay < 0) args.Range(1, "must not be negative", kKind);
  if (!(spec.beta1 >= 0 && spec.beta1 < 1)) args.Range(2, "lies in [0, 1)", kKind);
  if (!(spec.beta2 >= 0 && spec.beta2 < 1)) args.Range(3, "lies in [0, 1)", kKind);
  if (!(spec.eps > 0)) args.Range(4, "must be positive", kKind);
  return MakeOptimizer(std::move(spec));
}

Value Sgd(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("sgd"), {"lr", "momentum", "nesterov", "weight_decay", "matrices_only", "names"});
  ir::OptimizerSpec spec;
  spec.kind = ir::OptimizerSpec::Kind::kSgd;
  spec.range = call.range;
  spec.lr = RateOf(in, args, 0);
  spec.momentum = args.Number(1, 0);
  spec.nesterov = args.Flag(2, false);
  spec.weight_decay = args.Number(3, 0);
  spec.matrices_only = args.Flag(4, false);
  spec.parameter_names = Patterns(in, args, 5);
  if (!(spec.momentum >= 0 && spec.momentum < 1)) args.Range(1, "lies in [0, 1)", DiagKind::kBadOptimizer);
  if (spec.nesterov && spec.momentum == 0)
    args.Range(2, "needs a positive momentum", DiagKind::kBadOptimizer);
  if (spec.weight_decay < 0) args.Range(3, "must not be negative", DiagKind::kBadOptimizer);
  return MakeOptimizer(std::move(spec));
}

Value MakeData(ir::DataSpec spec) {
  auto* object = new DataObject;
  object->spec = std::move(spec);
  return Value::Of(ValueKind::kData, object);
}

Value FileData(Interpreter& in, NativeCall& call, ir::DataSpec::Kind kind, std::string_view name) {
  Args args(in, call, Self(name), {"path", "validation", "shuffle"});
  ir::DataSpec spec;
  spec.kind = kind;
  spec.range = call.range;
  spec.path = args.String(0);
  if (spec.path.empty()) args.Range(0, "must not be empty", DiagKind::kBadData);
  if (spec.path.find('\0') != std::string::npos)
    args.Range(0, "must not hold a NUL byte", DiagKind::kBadData);
  if (args.Has(1) && args.Need(1).value.is(ValueKind::kString)) {
    spec.validation_path = args.String(1);
  } else {
    spec.validation = args.Number(1, 0);
    if (!(spec.validation >= 0 && spec.validation < 1))
      args.Range(1, "is a share below 1, or a file", DiagKind::kBadData);
  }
  spec.shuffle = args.Flag(2, true);
  return MakeData(std::move(spec));
}
Value TextData(Interpreter& in, NativeCall& call) {
  return FileData(in, call, ir::DataSpec::Kind::kText, "text");
}
Value TokenData(Interpreter& in, NativeCall& call) {
  return FileData(in, call, ir::DataSpec::Kind::kTokens, "tokens");
}

Value RandomData(Interpreter& in, NativeCall& call) {
  Args args(in, call, Self("random"), {"vocab"});
  ir::DataSpec spec;
  spec.kind = ir::DataSpec::Kind::kRandom;
  spec.range = call.range;
  spec.vocab = args.Int(0, 256);
  if (spec.vocab < 1) args.Range(0, "must be at least 1", DiagKind::kBadData);
  return MakeData(std::move(spec));
}

// ---- tests

// plan(model, strategy, on = topology, global_batch = n)
Value PlanOf(Interpreter& in, NativeCall& call) {
  std::vector<std::pair<std::string, Value>> settings;
  std::vector<Value> positional;
  for (NativeArg& arg : call.args) {
    if (arg.name == kNoName) {
      positional.push_back(arg.value);
      continue;
    }
    std::string name = in.Text(arg.name);
    if (name != "on" && name != "global_batch") {
      in.FailNearest(arg.range, DiagKind::kBadArguments, fmt::format("plan has no parameter '{}'", name),
                     name, {"on", "global_batch"}, fmt::format("the form is {}", Self("plan").signature));
    }
    settings.emplace_back(name, arg.value);
  }
  if (positional.size() != 2) {
    in.Fail(call.range, DiagKind::kBadArguments, "plan takes a model and a strategy",
            fmt::format("the form is {}", Self("plan").signature));
  }
  return in.MakePlan(positional[0], positional[1], call.range, settings);
}

}  // namespace

const std::vector<Native>& Natives() {
  static const std::vector<Native>* const natives = new std::vector<Native>{
      {"min", "min(a, b, ..) or min(xs)", Min, nullptr, false, MinOfTwo},
      {"max", "max(a, b, ..) or max(xs)", Max, nullptr, false, MaxOfTwo},
      {"abs", "abs(x)", Abs, nullptr, false},
      {"floor", "floor(x)", Floor, nullptr, false},
      {"ceil", "ceil(x)", Ceil, nullptr, false},
      {"round", "round(x)", Round, nullptr, false},
      {"div", "div(a: int, b: int)", Div, nullptr, false, DivOfTwo},
      {"sqrt", "sqrt(x)", Sqrt, nullptr, false},
      {"float", "float(x)", ToFloat, nullptr, false},
      {"digits", "digits(n: int)", Digits, nullptr, false},
      {"len", "len(xs)", Len, nullptr, false},
      {"range", "range(end) or range(begin, end, step = 1)", Range, nullptr, false},
      {"zip", "zip(xs, ys, .., pad)", Zip, nullptr, true},
      {"sum", "sum(xs)", Sum, nullptr, false},
      {"sorted", "sorted(xs, key = fn)", Sorted, nullptr, false},
      {"reversed", "reversed(xs)", Reversed, nullptr, false},
      {"size", "size(dimension)", Size, nullptr, true},
      {"count", "count(tag)", Count, nullptr, true},
      {"named", "named(name: string, size: int)", MakeNamedDim, nullptr, false},
      {"zeros", "zeros", nullptr, Zeros, false},
      {"ones", "ones", nullptr, Ones, false},
      {"normal", "normal(std)", Normal, nullptr, false},
      {"uniform", "uniform(low, high)", Uniform, nullptr, false},
      {"warmup", "warmup(steps, lr)", Warmup, nullptr, false},
      {"cosine", "cosine(lr, total, warmup = 0, floor = 0)", Cosine, nullptr, false},
      {"adamw",
       "adamw(lr, weight_decay = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, matrices_only = false, names = "
       "[])",
       AdamW, nullptr, false},
      {"sgd", "sgd(lr, momentum = 0, nesterov = false, weight_decay = 0, matrices_only = false, names = [])",
       Sgd, nullptr, false},
      {"text", "text(path, validation = 0, shuffle = true)", TextData, nullptr, false},
      {"tokens", "tokens(path, validation = 0, shuffle = true)", TokenData, nullptr, false},
      {"random", "random(vocab = 256)", RandomData, nullptr, false},
      {"plan", "plan(model, strategy, on = topology, global_batch = n)", PlanOf, nullptr, false},
      {"fails", "fails(expression, \"kind\")", nullptr, nullptr, false},
  };
  return *natives;
}

int FindNative(std::string_view name) {
  static const auto* const index = [] {
    auto* map = new std::unordered_map<std::string_view, int>;
    for (size_t i = 0; i < Natives().size(); ++i) map->emplace(Natives()[i].name, static_cast<int>(i));
    return map;
  }();
  auto it = index->find(name);
  return it == index->end() ? kNoSlot : it->second;
}

// ---- calls
// of them

std::vector<std::string> Interpreter::KindsReported(Expr& expr) {
  ir::DiagnosticEngine captured(sources_);
  Restore<ir::DiagnosticEngine*> swap(&diag_, &captured);
  try {
    Value value = Eval(expr);
    // A plan is made when it is looked at.
    if (value.is(ValueKind::kPlan)) {
      NameRef figure;
      figure.name = program_.ast.names.Intern("step_time");
      figure.range = expr.range;
      (void)MemberOf(value, figure, expr.range);
    }
  } catch (const Abort&) {
  }
  std::vector<std::string> kinds;
  for (const ir::Diagnostic& diagnostic : captured.diagnostics()) {
    if (diagnostic.severity == ir::Severity::kError) kinds.emplace_back(ir::DiagKindName(diagnostic.kind));
  }
  return kinds;
}

Value Interpreter::CallNative(int index, CallExpr& call) {
  const Native& native = Natives()[static_cast<size_t>(index)];
  if (native.constant != nullptr) {
    Fail(call.range, DiagKind::kNotCallable,
         fmt::format("{} is a value; write it without brackets", native.name));
  }
  if (native.name == "fails") {
    if (call.args.size() != 2)
      Fail(call.range, DiagKind::kBadArguments, "fails takes an expression and a kind of error");
    Value kind = Eval(*call.args[1].value);
    if (!kind.is(ValueKind::kString)) FailType(call.args[1].range, "a kind of error", "a string", kind);
    std::vector<std::string> known;
    for (ir::DiagKind k : ir::AllDiagKinds()) known.emplace_back(ir::DiagKindName(k));
    if (std::find(known.begin(), known.end(), TextOf(kind)) == known.end()) {
      FailNearest(call.args[1].range, DiagKind::kUnknownName,
                  fmt::format("there is no kind of error '{}'", TextOf(kind)), TextOf(kind), known);
    }
    std::vector<std::string> kinds = KindsReported(*call.args[0].value);
    return Value::Bool(std::find(kinds.begin(), kinds.end(), TextOf(kind)) != kinds.end());
  }
  NativeCall native_call;
  native_call.range = call.range;
  native_call.args.reserve(call.args.size());
  for (Arg& arg : call.args) {
    bool bare = arg.value->kind == ExprKind::kName && As<NameExpr>(*arg.value).frame == kFrameUnresolved;
    bool lazy = native.takes_names && arg.value->kind == ExprKind::kName &&
                (bare || (native.name == "count" && As<NameExpr>(*arg.value).frame != kFrameLocal));
    Value value = lazy ? Value() : Eval(*arg.value);
    // `sum` of a tensor is the operation of that name; its other arguments are for the operation to read.
    if (IsTensor(value) && native_call.args.empty()) {
      if (const ir::OperationRule* rule = ir::FindOperation(native.name);
          rule != nullptr && rule->user_visible()) {
        return CallOperation(*rule, call, &value);
      }
    }
    native_call.args.push_back({arg.key.name, std::move(value), arg.value->range, arg.value});
  }
  Burn(1, call.range);
  if (native.of_two_ints != nullptr && native_call.args.size() == 2) {
    const NativeArg& a = native_call.args[0];
    const NativeArg& b = native_call.args[1];
    int64_t result = 0;
    if (a.name == kNoName && b.name == kNoName && a.value.is(ValueKind::kInt) &&
        b.value.is(ValueKind::kInt) && native.of_two_ints(a.value.integer(), b.value.integer(), &result))
      return Value::Int(result);
  }
  return native.call(*this, native_call);
}

Value Interpreter::CallNativeWith(int index, NativeCall& call) {
  const Native& native = Natives()[static_cast<size_t>(index)];
  if (native.call == nullptr || native.takes_names) {
    Fail(call.range, DiagKind::kNotCallable, fmt::format("{} cannot be called as a value", native.name));
  }
  return native.call(*this, call);
}

bool Interpreter::Order(BinaryOp op, const Value& left, const Value& right, SourceRange range) {
  return Compare(op, left, right, range).boolean();
}

Value Interpreter::Add(const Value& left, const Value& right, SourceRange range) {
  return Binary(BinaryOp::kAdd, left, right, range);
}

Value Interpreter::MakePlan(const Value& model, const Value& strategy, SourceRange range,
                            const std::vector<std::pair<std::string, Value>>& settings) {
  if (!program_maker_) Fail(range, DiagKind::kUnsupported, "plans are made in tests only");
  auto* object = new PlanObject;
  Value plan = Value::Of(ValueKind::kPlan, object);
  object->program = program_maker_(*this, model, strategy, range, settings);
  return plan;
}

}  // namespace piper::frontend
