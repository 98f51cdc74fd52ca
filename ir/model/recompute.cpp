#include "ir/model/recompute.h"

#include <algorithm>
#include <vector>

#include "ir/model/body_builder.h"
#include "ir/support/result.h"
#include "kernels/registry.h"

namespace piper::ir {

namespace {

bool Reads(kernels::OperandRole role) {
  return role == kernels::OperandRole::kIn || role == kernels::OperandRole::kInOut;
}
bool Writes(kernels::OperandRole role) {
  return role == kernels::OperandRole::kOut || role == kernels::OperandRole::kInOut;
}

}  // namespace

Body RecomputeBody(const Body& forward, const std::set<ValueId>& outputs, const std::set<uint32_t>& saved) {
  const size_t formals = forward.formals.size();
  std::vector<bool> kept(formals, false);    // written formals that stay, and what they forward
  std::vector<bool> needed(formals, false);  // formals that a live call must have written, or reads
  std::vector<bool> local_needed(forward.locals.size(), false);
  for (size_t f = 0; f < formals; ++f) {
    const Formal& formal = forward.formals[f];
    if (!formal.written) continue;
    const bool wanted =
        formal.kind == FormalKind::kSaved ? saved.count(formal.saved) != 0 : outputs.count(formal.value) != 0;
    if (!wanted) continue;
    kept[f] = true;
    const size_t bytes_of = formal.alias_of == kNone ? f : formal.alias_of;
    kept[bytes_of] = needed[bytes_of] = true;
  }
  std::vector<bool> live(forward.calls.size(), false);
  for (size_t c = forward.calls.size(); c-- > 0;) {
    const KernelCall& call = forward.calls[c];
    const kernels::KernelInfo* info = kernels::FindKernel(call.kernel);
    PIPER_CHECK(info != nullptr && info->operands.size() == call.operands.size(), call.kernel);
    const auto mark = [&](const OperandRef& operand) -> std::vector<bool>::reference {
      return operand.kind == OperandRef::Kind::kFormal ? needed[operand.index] : local_needed[operand.index];
    };
    for (size_t i = 0; i < call.operands.size(); ++i) {
      if (Writes(info->operands[i].role) && mark(call.operands[i])) live[c] = true;
    }
    if (!live[c]) continue;
    for (size_t i = 0; i < call.operands.size(); ++i) {
      if (Reads(info->operands[i].role)) mark(call.operands[i]) = true;
    }
  }

  Body body;
  body.region = forward.region;
  body.pass = Pass::kR;
  std::vector<OperandRef> formal_at(formals, {OperandRef::Kind::kFormal, kNone});
  for (size_t f = 0; f < formals; ++f) {
    const bool stays = forward.formals[f].written ? kept[f] : needed[f];
    if (!stays) continue;
    formal_at[f].index = static_cast<uint32_t>(body.formals.size());
    body.formals.push_back(forward.formals[f]);
  }
  for (Formal& formal : body.formals) {
    if (formal.alias_of != kNone) formal.alias_of = formal_at[formal.alias_of].index;
  }
  std::vector<uint32_t> local_at(forward.locals.size(), kNone);
  for (size_t c = 0; c < forward.calls.size(); ++c) {
    if (!live[c]) continue;
    KernelCall call = forward.calls[c];
    const kernels::KernelInfo* info = kernels::FindKernel(call.kernel);
    for (OperandRef& operand : call.operands) {
      if (operand.kind == OperandRef::Kind::kLocal) {
        if (local_at[operand.index] == kNone) {
          local_at[operand.index] = static_cast<uint32_t>(body.locals.size());
          body.locals.push_back(forward.locals[operand.index]);
        }
        operand.index = local_at[operand.index];
        continue;
      }
      OperandRef& at = formal_at[operand.index];
      if (at.index == kNone) {  // F leaves it, the replay does not
        at = {OperandRef::Kind::kLocal, static_cast<uint32_t>(body.locals.size())};
        body.locals.push_back({forward.formals[operand.index].type, forward.formals[operand.index].name, 0});
      }
      operand = at;
    }
    body.flops += info->flops(call.ints.data());
    body.bytes_moved += info->bytes(call.ints.data(), DTypeBytes(DType::kF32));
    body.calls.push_back(std::move(call));
  }
  PackLocals(&body);
  return body;
}

}  // namespace piper::ir
