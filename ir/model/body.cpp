#include "ir/model/body.h"

#include <fmt/format.h>

namespace piper::ir {
namespace {

std::string_view FormalKindName(FormalKind kind) {
  switch (kind) {
    case FormalKind::kValue:
      return "value";
    case FormalKind::kParameter:
      return "parameter";
    case FormalKind::kSaved:
      return "saved";
    case FormalKind::kOutput:
      return "output";
    case FormalKind::kCotangent:
      return "cotangent";
    case FormalKind::kInputCotangent:
      return "input_cotangent";
    case FormalKind::kGradient:
      return "gradient";
    case FormalKind::kScale:
      return "scale";
  }
  return "?";
}

}  // namespace

std::string BodyKey(const Body& body) {
  std::string key = fmt::format("{} {}", PassName(body.pass), body.scratch_bytes);
  for (const Formal& formal : body.formals) {
    key += fmt::format("\n{} {} {} {}", FormalKindName(formal.kind), formal.written ? "w" : "r",
                       static_cast<int64_t>(static_cast<int32_t>(formal.alias_of)),
                       DTypeName(formal.type.dtype));
    for (const Dim& dim : formal.type.dims) key += fmt::format(" {}", dim.size);
  }
  for (const KernelCall& call : body.calls) {
    key += fmt::format("\n{}", call.kernel);
    for (OperandRef operand : call.operands) {
      bool local = operand.kind == OperandRef::Kind::kLocal;
      key +=
          fmt::format(" {}{}", local ? "+" : "f", local ? body.locals[operand.index].offset : operand.index);
    }
    for (int64_t value : call.ints) key += fmt::format(" {}", value);
    for (double value : call.scalars) key += fmt::format(" {:a}", value);
  }
  return key;
}

std::string BodyText(const Body& body) {
  std::string text = fmt::format("{}: scratch {} bytes\n", PassName(body.pass), body.scratch_bytes);
  for (const Formal& formal : body.formals) {
    text += fmt::format("  {} {} {}: {}", formal.written ? "out" : "in", FormalKindName(formal.kind),
                        formal.name, formal.type.ToString());
    if (formal.saved != kNone) text += fmt::format(" key {}", formal.saved);
    if (formal.alias_of != kNone) text += fmt::format(" = {}", body.formals[formal.alias_of].name);
    text += '\n';
  }
  for (const KernelCall& call : body.calls) {
    text += fmt::format("  {}(", call.kernel);
    bool first = true;
    for (OperandRef operand : call.operands) {
      bool local = operand.kind == OperandRef::Kind::kLocal;
      text += fmt::format("{}{}", first ? "" : ", ",
                          local ? body.locals[operand.index].name : body.formals[operand.index].name);
      first = false;
    }
    for (int64_t value : call.ints) text += fmt::format(", {}", value);
    for (double value : call.scalars) text += fmt::format(", {}", value);
    text += ")\n";
  }
  return text;
}

}  // namespace piper::ir
