// Operators on numbers, quantities, lists, selectors and tensors.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "frontend/interpreter.h"
#include "frontend/test_runner.h"

namespace piper::frontend {

using ir::DiagKind;
using ir::UnitKind;

Value Interpreter::EvalUnary(UnaryExpr& expr) {
  Value value = Eval(*expr.operand);
  if (expr.op == UnaryOp::kNot) {
    if (value.is(ValueKind::kBool)) return Value::Bool(!value.boolean());
    if (value.is(ValueKind::kSelector)) {
      std::optional<ir::Selector> complement = value.as<SelectorObject>().selector.Full().Complement();
      if (!complement) {
        Fail(expr.range, DiagKind::kFuelExhausted,
             "the complement of this selector has too many alternatives");
      }
      complement->range = expr.range;
      return MakeSelector(std::move(*complement));
    }
    FailType(expr.operand->range, "the operand of 'not'", "a bool or a selector", value);
  }
  int64_t integer = 0;
  if (ToInt(value, &integer)) {
    if (integer == INT64_MIN) Fail(expr.range, DiagKind::kOutOfRange, "the result does not fit 64 bits");
    return Value::Int(-integer);
  }
  if (value.is(ValueKind::kFloat)) return Value::Float(-value.real());
  if (value.is(ValueKind::kQuantity)) return Value::Quantity(-value.real(), value.unit());
  if (IsTensor(value)) return AddOperation("neg", {TensorOf(value, expr.operand->range)}, {}, expr.range);
  FailType(expr.operand->range, "the operand of '-'", "a number or a tensor", value);
}

namespace {

// What loops and schedules compute with all the time; false: not decided here.
bool IntegerResult(BinaryOp op, int64_t a, int64_t b, Value* out) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return false;
      break;
    case BinaryOp::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return false;
      break;
    case BinaryOp::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return false;
      break;
    case BinaryOp::kModulo:
      if (a < 0 || b <= 0) return false;
      result = a % b;
      break;
    case BinaryOp::kEqual:
      *out = Value::Bool(a == b);
      return true;
    case BinaryOp::kNotEqual:
      *out = Value::Bool(a != b);
      return true;
    case BinaryOp::kLess:
      *out = Value::Bool(a < b);
      return true;
    case BinaryOp::kLessEqual:
      *out = Value::Bool(a <= b);
      return true;
    case BinaryOp::kGreater:
      *out = Value::Bool(a > b);
      return true;
    case BinaryOp::kGreaterEqual:
      *out = Value::Bool(a >= b);
      return true;
    default:
      return false;
  }
  *out = Value::Int(result);
  return true;
}

}  // namespace

bool Interpreter::EvalIntOf(const Expr& expr, int64_t* out) const {
  switch (expr.kind) {
    case ExprKind::kNumber:
      *out = As<NumberExpr>(expr).int_value;
      return As<NumberExpr>(expr).is_int;
    case ExprKind::kChain: {
      const auto& chain = As<ChainExpr>(expr);
      int64_t value = 0, operand = 0;
      if (!EvalInt(*chain.first, &value)) return false;
      for (const ChainLink& link : chain.rest) {
        if (!EvalInt(*link.operand, &operand)) return false;
        if (link.op == BinaryOp::kAdd        ? __builtin_add_overflow(value, operand, &value)
            : link.op == BinaryOp::kSubtract ? __builtin_sub_overflow(value, operand, &value)
            : link.op == BinaryOp::kMultiply ? __builtin_mul_overflow(value, operand, &value)
                                             : true) {
          return false;
        }
      }
      *out = value;
      return true;
    }
    default:
      return false;
  }
}

Value Interpreter::EvalChain(ChainExpr& expr) {
  BinaryOp first_op = expr.rest[0].op;
  if (first_op == BinaryOp::kBy) return EvalBy(Eval(*expr.first), *expr.rest[0].operand, expr.range);
  Value value;
  if (expr.rest.size() == 1) {
    int64_t left = 0, right = 0;
    if (EvalInt(*expr.first, &left) && EvalInt(*expr.rest[0].operand, &right) &&
        IntegerResult(first_op, left, right, &value)) {
      return value;
    }
  }
  value = Eval(*expr.first);
  for (ChainLink& link : expr.rest) {
    if ((link.op == BinaryOp::kAnd || link.op == BinaryOp::kOr) && value.is(ValueKind::kBool)) {
      if (value.boolean() == (link.op == BinaryOp::kOr)) continue;  // decided; later operands may be skipped
      Value right = Eval(*link.operand);
      if (!right.is(ValueKind::kBool)) {
        FailType(link.operand->range, fmt::format("the operand of '{}'", BinaryOpText(link.op)), "a bool",
                 right);
      }
      value = std::move(right);
      continue;
    }
    Value right = Eval(*link.operand);
    if (value.is(ValueKind::kInt) && right.is(ValueKind::kInt) &&
        IntegerResult(link.op, value.integer(), right.integer(), &value)) {
      continue;
    }
    if (value.is(ValueKind::kNone) || right.is(ValueKind::kNone)) {
      Fail(value.is(ValueKind::kNone) ? expr.first->range : link.operand->range, DiagKind::kTypeMismatch,
           fmt::format("an operand of '{}' has no value", BinaryOpText(link.op)));
    }
    value = Binary(link.op, value, right, expr.range);
  }
  return value;
}

Value Interpreter::Binary(BinaryOp op, const Value& left, const Value& right, SourceRange range) {
  switch (op) {
    case BinaryOp::kOr:
    case BinaryOp::kAnd: {
      if (left.is(ValueKind::kSelector) && right.is(ValueKind::kSelector)) {
        const ir::Selector a = left.as<SelectorObject>().selector.Full();
        const ir::Selector b = right.as<SelectorObject>().selector.Full();
        ir::Selector result = op == BinaryOp::kOr ? a.Union(b) : a.Intersect(b);
        Burn(static_cast<int64_t>(result.any_of.size()), range);
        result.range = range;
        return MakeSelector(std::move(result));
      }
      const Value& wrong = left.is(ValueKind::kBool) || left.is(ValueKind::kSelector) ? right : left;
      FailType(range, fmt::format("an operand of '{}'", BinaryOpText(op)), "a bool or a selector", wrong);
    }
    case BinaryOp::kEqual:
      return Value::Bool(Equal(left, right, range));
    case BinaryOp::kNotEqual:
      return Value::Bool(!Equal(left, right, range));
    case BinaryOp::kLess:
    case BinaryOp::kLessEqual:
    case BinaryOp::kGreater:
    case BinaryOp::kGreaterEqual:
      return Compare(op, left, right, range);
    case BinaryOp::kDivides: {
      int64_t divisor = IntOf(left, range, "the left side of 'divides'");
      int64_t number = IntOf(right, range, "the right side of 'divides'");
      if (divisor == 0) Fail(range, DiagKind::kDivisionByZero, "zero divides nothing");
      return Value::Bool(divisor == -1 || number % divisor == 0);
    }
    case BinaryOp::kLearns: {
      if (!left.is(ValueKind::kPlan)) FailType(range, "the left side of 'learns'", "a plan", left);
      if (!right.is(ValueKind::kPlan)) FailType(range, "the right side of 'learns'", "a plan", right);
      if (plans_ == nullptr) Fail(range, DiagKind::kUnsupported, "plans are compared by `piper test` only");
      std::string why;
      ir::DiagnosticEngine behind(sources_);
      std::optional<bool> same =
          plans_->Learns(left.as<PlanObject>().program, right.as<PlanObject>().program, &why, behind);
      TakeDiagnostics(behind);
      if (!same) Throw();
      if (!*same) {
        diag_->Error(range, DiagKind::kExpectFailed,
                     fmt::format("the two plans do not learn the same: {}", why));
      }
      return Value::Bool(*same);
    }
    case BinaryOp::kRange: {
      int64_t begin = IntOf(left, range, "the start of a range");
      int64_t end = IntOf(right, range, "the end of a range");
      // Lengths are differences: keep them far from the ends of 64 bits.
      constexpr int64_t kMost = int64_t{1} << 62;
      if (begin < -kMost || begin > kMost || end < -kMost || end > kMost) {
        Fail(range, DiagKind::kOutOfRange, "the range does not fit 62 bits");
      }
      return MakeRange(begin, end);
    }
    case BinaryOp::kContract:
      if (!IsTensor(left) || !IsTensor(right)) {
        FailType(range, "an operand of '@'", "a tensor", IsTensor(left) ? right : left);
      }
      return AddOperation("matmul", {TensorOf(left, range), TensorOf(right, range)}, {}, range);
    case BinaryOp::kBy:
      return {};
    default:
      return Arithmetic(op, left, right, range);
  }
}

namespace {

std::string OpName(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "add";
    case BinaryOp::kSubtract:
      return "subtract";
    case BinaryOp::kMultiply:
      return "multiply";
    case BinaryOp::kDivide:
      return "divide";
    default:
      return "take the remainder of";
  }
}

// A percentage is a plain number wherever one is wanted.
bool AsNumber(const Value& value, double* out) {
  switch (value.kind()) {
    case ValueKind::kInt:
      *out = static_cast<double>(value.integer());
      return true;
    case ValueKind::kDim:
      *out = static_cast<double>(value.as<DimObject>().dim.size);
      return true;
    case ValueKind::kFloat:
      *out = value.real();
      return true;
    case ValueKind::kQuantity:
      *out = value.real();
      return value.unit() == UnitKind::kPercent;
    default:
      return false;
  }
}

// The kind and scale of a product or quotient of quantities, where there is one.
bool CombineUnits(BinaryOp op, UnitKind a, UnitKind b, UnitKind* kind, double* scale) {
  constexpr double kPs = static_cast<double>(ir::kPsPerS);
  *scale = 1;
  if (op == BinaryOp::kDivide) {
    if (a == b) return *kind = UnitKind::kNone, true;
    if ((a == UnitKind::kBytes && b == UnitKind::kByteRate) ||
        (a == UnitKind::kFlops && b == UnitKind::kFlopRate)) {
      *scale = kPs;
      return *kind = UnitKind::kTime, true;
    }
    if (b == UnitKind::kTime && (a == UnitKind::kBytes || a == UnitKind::kFlops)) {
      *scale = kPs;
      return *kind = a == UnitKind::kBytes ? UnitKind::kByteRate : UnitKind::kFlopRate, true;
    }
    return false;
  }
  if (op == BinaryOp::kMultiply) {
    if (a == UnitKind::kTime) std::swap(a, b);
    if (b != UnitKind::kTime || (a != UnitKind::kByteRate && a != UnitKind::kFlopRate)) return false;
    *scale = 1 / kPs;
    return *kind = a == UnitKind::kByteRate ? UnitKind::kBytes : UnitKind::kFlops, true;
  }
  return false;
}

}  // namespace

Value Interpreter::Arithmetic(BinaryOp op, const Value& left, const Value& right, SourceRange range) {
  int64_t a = 0, b = 0;
  if (ToInt(left, &a) && ToInt(right, &b)) {
    int64_t result = 0;
    bool overflow = false;
    switch (op) {
      case BinaryOp::kAdd:
        overflow = __builtin_add_overflow(a, b, &result);
        break;
      case BinaryOp::kSubtract:
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
      case BinaryOp::kMultiply:
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
      default:
        if (b == 0)
          Fail(range, DiagKind::kDivisionByZero, fmt::format("cannot {} {} by zero", OpName(op), a));
        if (b == -1) {
          if (op == BinaryOp::kModulo) return Value::Int(0);
          overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
          break;
        }
        if (op == BinaryOp::kModulo) {
          result = a % b;
          if (result != 0 && (result < 0) != (b < 0)) result += b;
          break;
        }
        if (a % b != 0) {
          Fail(range, DiagKind::kOutOfRange, fmt::format("{} / {} is not a whole number", a, b),
               fmt::format("div({}, {}) rounds down; write one of them with a point for a float", a, b));
        }
        result = a / b;
    }
    if (overflow) {
      Fail(range, DiagKind::kOutOfRange,
           fmt::format("{} {} {} does not fit 64 bits", a, BinaryOpText(op), b));
    }
    return Value::Int(result);
  }
  if (IsTensor(left) || IsTensor(right)) return TensorArithmetic(op, left, right, range);
  double x = 0, y = 0;
  bool left_number = AsNumber(left, &x), right_number = AsNumber(right, &y);
  auto finite = [&](Value value) {
    if (!std::isfinite(value.real())) {
      Fail(range, DiagKind::kOutOfRange,
           fmt::format("{} {} {} is too large", ValueText(left), BinaryOpText(op), ValueText(right)),
           "numbers with a point reach 1.8e308");
    }
    return value;
  };
  if (left_number && right_number) {
    bool percents = left.is(ValueKind::kQuantity) && right.is(ValueKind::kQuantity) &&
                    (op == BinaryOp::kAdd || op == BinaryOp::kSubtract);
    double result = 0;
    switch (op) {
      case BinaryOp::kAdd:
        result = x + y;
        break;
      case BinaryOp::kSubtract:
        result = x - y;
        break;
      case BinaryOp::kMultiply:
        result = x * y;
        break;
      default:
        if (y == 0)
          Fail(range, DiagKind::kDivisionByZero, fmt::format("cannot {} {} by zero", OpName(op), x));
        result = op == BinaryOp::kDivide ? x / y : x - std::floor(x / y) * y;
    }
    return finite(percents ? Value::Quantity(result, UnitKind::kPercent) : Value::Float(result));
  }
  if (left.is(ValueKind::kQuantity) || right.is(ValueKind::kQuantity)) {
    bool both = left.is(ValueKind::kQuantity) && right.is(ValueKind::kQuantity);
    if (both && left.unit() == right.unit() && (op == BinaryOp::kAdd || op == BinaryOp::kSubtract)) {
      return finite(Value::Quantity(
          op == BinaryOp::kAdd ? left.real() + right.real() : left.real() - right.real(), left.unit()));
    }
    if (right_number && (op == BinaryOp::kMultiply || op == BinaryOp::kDivide)) {
      if (op == BinaryOp::kDivide && y == 0)
        Fail(range, DiagKind::kDivisionByZero, "cannot divide a quantity by zero");
      return finite(
          Value::Quantity(op == BinaryOp::kMultiply ? left.real() * y : left.real() / y, left.unit()));
    }
    if (left_number && op == BinaryOp::kMultiply)
      return finite(Value::Quantity(x * right.real(), right.unit()));
    UnitKind kind = UnitKind::kNone;
    double scale = 1;
    if (both && CombineUnits(op, left.unit(), right.unit(), &kind, &scale)) {
      if (op == BinaryOp::kDivide && right.real() == 0) {
        Fail(range, DiagKind::kDivisionByZero, "cannot divide by a quantity of zero");
      }
      double value =
          (op == BinaryOp::kMultiply ? left.real() * right.real() : left.real() / right.real()) * scale;
      return finite(kind == UnitKind::kNone ? Value::Float(value) : Value::Quantity(value, kind));
    }
    bool quantities =
        (left_number || left.is(ValueKind::kQuantity)) && (right_number || right.is(ValueKind::kQuantity));
    if (quantities) {
      Fail(range, DiagKind::kUnitMismatch,
           fmt::format("cannot {} {} and {}", OpName(op), DescribeValue(left), DescribeValue(right)),
           "quantities add up only with their own kind");
    }
  }
  if (op == BinaryOp::kAdd && left.is(ValueKind::kString) && right.is(ValueKind::kString)) {
    if (static_cast<int64_t>(TextOf(left).size() + TextOf(right).size()) > kMaxTextBytes) {
      Fail(range, DiagKind::kFuelExhausted, fmt::format("the string grows beyond {} bytes", kMaxTextBytes));
    }
    return MakeString(TextOf(left) + TextOf(right));
  }
  if (op == BinaryOp::kAdd && left.is(ValueKind::kList) && right.is(ValueKind::kList)) {
    std::vector<Value> items = Elements(left, range, "a list");
    std::vector<Value> more = Elements(right, range, "a list");
    items.insert(items.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    return MakeList(std::move(items));
  }
  if (left.is(ValueKind::kTagSum) || right.is(ValueKind::kTagSum)) {
    auto* object = new TagSumObject;
    Value result = Value::Of(ValueKind::kTagSum, object);
    if (op == BinaryOp::kAdd && left.is(ValueKind::kTagSum) && right.is(ValueKind::kTagSum)) {
      object->terms = left.as<TagSumObject>().terms;
      const auto& more = right.as<TagSumObject>().terms;
      object->terms.insert(object->terms.end(), more.begin(), more.end());
      return result;
    }
    const Value& sum = left.is(ValueKind::kTagSum) ? left : right;
    if (op == BinaryOp::kMultiply && (ToInt(left, &a) || ToInt(right, &a))) {
      if (a < 0) Fail(range, DiagKind::kOutOfRange, fmt::format("a cut takes {} of a tag", a));
      object->terms = sum.as<TagSumObject>().terms;
      for (ir::CutDirective::Term& term : object->terms) {
        if (__builtin_mul_overflow(term.count, a, &term.count)) {
          Fail(range, DiagKind::kOutOfRange, "the count of a tag does not fit 64 bits");
        }
      }
      return result;
    }
  }
  if (op == BinaryOp::kMultiply && left.is(ValueKind::kAxis) && right.is(ValueKind::kAxis)) {
    auto* object = new AxisObject;
    object->axes = left.as<AxisObject>().axes;
    const auto& more = right.as<AxisObject>().axes;
    object->axes.insert(object->axes.end(), more.begin(), more.end());
    return Value::Of(ValueKind::kAxis, object);
  }
  if (op == BinaryOp::kMultiply && left.is(ValueKind::kGroup) && right.is(ValueKind::kGroup)) {
    auto* object = new GroupObject;
    Value result = Value::Of(ValueKind::kGroup, object);
    const ir::GroupExpr& x_group = left.as<GroupObject>().group;
    const ir::GroupExpr& y_group = right.as<GroupObject>().group;
    if (x_group.mesh != y_group.mesh)
      Fail(range, DiagKind::kTypeMismatch, "the groups belong to different meshes");
    object->group = x_group;
    object->group.range = range;
    object->group.slices.insert(object->group.slices.end(), y_group.slices.begin(), y_group.slices.end());
    return result;
  }
  Fail(range, DiagKind::kTypeMismatch,
       fmt::format("cannot {} {} and {}", OpName(op), DescribeValue(left), DescribeValue(right)));
}

Value Interpreter::Compare(BinaryOp op, const Value& left, const Value& right, SourceRange range) {
  auto decide = [&](auto a, auto b) {
    switch (op) {
      case BinaryOp::kLess:
        return Value::Bool(a < b);
      case BinaryOp::kLessEqual:
        return Value::Bool(a <= b);
      case BinaryOp::kGreater:
        return Value::Bool(a > b);
      default:
        return Value::Bool(a >= b);
    }
  };
  int64_t a = 0, b = 0;
  if (ToInt(left, &a) && ToInt(right, &b)) return decide(a, b);
  double x = 0, y = 0;
  if (AsNumber(left, &x) && AsNumber(right, &y)) return decide(x, y);
  if (left.is(ValueKind::kQuantity) && right.is(ValueKind::kQuantity) && left.unit() == right.unit()) {
    return decide(left.real(), right.real());
  }
  if (left.is(ValueKind::kString) && right.is(ValueKind::kString)) return decide(TextOf(left), TextOf(right));
  bool units = left.is(ValueKind::kQuantity) || right.is(ValueKind::kQuantity);
  Fail(range, units ? DiagKind::kUnitMismatch : DiagKind::kTypeMismatch,
       fmt::format("cannot compare {} with {}", DescribeValue(left), DescribeValue(right)));
}

bool Interpreter::Equal(const Value& left, const Value& right, SourceRange range) {
  double x = 0, y = 0;
  int64_t a = 0, b = 0;
  if (ToInt(left, &a) && ToInt(right, &b)) return a == b;
  if (AsNumber(left, &x) && AsNumber(right, &y)) return x == y;
  if (left.kind() == right.kind()) {
    switch (left.kind()) {
      case ValueKind::kBool:
        return left.boolean() == right.boolean();
      case ValueKind::kString:
        return TextOf(left) == TextOf(right);
      case ValueKind::kQuantity:
        if (left.unit() == right.unit()) return left.real() == right.real();
        break;
      case ValueKind::kRange:
        return left.as<RangeObject>().begin == right.as<RangeObject>().begin &&
               left.as<RangeObject>().end == right.as<RangeObject>().end;
      case ValueKind::kSelector:
        return left.as<SelectorObject>().selector.ToString() ==
               right.as<SelectorObject>().selector.ToString();
      case ValueKind::kList:
      case ValueKind::kTuple: {
        const auto& items = ItemsOf(left);
        const auto& others = ItemsOf(right);
        if (items.size() != others.size()) return false;
        BurnLoop(static_cast<int64_t>(items.size()), range);
        CheckStack(range);
        for (size_t i = 0; i < items.size(); ++i) {
          if (!Equal(items[i], others[i], range)) return false;
        }
        return true;
      }
      default:
        break;
    }
  }
  bool units = left.is(ValueKind::kQuantity) || right.is(ValueKind::kQuantity);
  Fail(range, units ? DiagKind::kUnitMismatch : DiagKind::kTypeMismatch,
       fmt::format("cannot compare {} with {}", DescribeValue(left), DescribeValue(right)));
}

}  // namespace piper::frontend
