#include "codegen/body_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "ir/support/result.h"
#include "kernels/registry.h"

namespace piper::codegen {
namespace {

using kernels::KernelInfo;
using kernels::OperandElement;
using kernels::OperandRole;

const char* ElementName(OperandElement element) {
  switch (element) {
    case OperandElement::kI32:
      return "int32_t";
    case OperandElement::kF64:
      return "double";
    case OperandElement::kT:
      return "float";
  }
  return "float";
}

bool EndsWithPass(std::string_view name) {
  return name.ends_with("_fwd") || name.ends_with("_bwd") || name.ends_with("_bwd_input") ||
         name.ends_with("_bwd_weight");
}

const char* FormalPrefix(ir::FormalKind kind) {
  switch (kind) {
    case ir::FormalKind::kValue:
      return "in_";
    case ir::FormalKind::kParameter:
      return "param_";
    case ir::FormalKind::kSaved:
      return "saved_";
    case ir::FormalKind::kOutput:
      return "out_";
    case ir::FormalKind::kCotangent:
      return "d_";
    case ir::FormalKind::kInputCotangent:
      return "d_";
    case ir::FormalKind::kGradient:
      return "grad_";
    case ir::FormalKind::kScale:
      return "scale_";
  }
  return "in_";
}

const char* PassText(ir::Pass pass) {
  return pass == ir::Pass::kF ? "F" : pass == ir::Pass::kBI ? "BI" : pass == ir::Pass::kBW ? "BW" : "R";
}

// "in_x" for a formal called "x"; "d_x" stays "d_x".
std::string Prefixed(std::string_view prefix, std::string_view name) {
  const std::string word = Word(name);
  return word.starts_with(prefix) && word.size() > prefix.size() ? word : std::string(prefix) + word;
}

// A pointer that the function declares before its calls.
struct Variable {
  std::string name;
  OperandElement element = OperandElement::kT;
  bool written = false;
  bool formal = false;
  uint32_t place = 0;  // formal index, or offset into the scratch / 64
  std::string shape;   // "f32[batch=4, embed=128]", or empty
};

class Writer {
 public:
  Writer(const runtime::RankProgram& program, const runtime::Body& body, const ir::Body* detail)
      : program_(program), body_(body), detail_(Matches(detail) ? detail : nullptr) {}

  std::string Text(const std::string& function) {
    for (uint32_t i = 0; i < body_.call_count; ++i) AddCall(i);
    std::string text = fmt::format("// {}\n", Summary());
    if (body_.call_count == 0) return text + fmt::format("void {}(BodyContext&) {{}}\n", function);
    text += fmt::format("void {}({}) {{\n", function, BodyFunctionParameters(program_, body_));
    // Operands in the order of the formals, then scratch in the order of use.
    std::stable_sort(variables_.begin(), variables_.end(), [](const Variable& a, const Variable& b) {
      return a.formal != b.formal ? a.formal : a.formal && a.place < b.place;
    });
    std::vector<std::pair<std::string, std::string>> lines;
    for (const Variable& v : variables_) {
      const std::string place =
          v.formal ? fmt::format("{}", v.place) : fmt::format("{}", int64_t{v.place} * runtime::kAlignment);
      const char* get = !v.formal ? "Scratch" : v.written ? "Output" : "Input";
      lines.emplace_back(
          fmt::format("  {}{}* {} = {}<{}>(context, {});", v.formal && !v.written ? "const " : "",
                      ElementName(v.element), v.name, get, ElementName(v.element), place),
          v.shape);
    }
    text += AlignComments(lines);
    if (!variables_.empty()) text += '\n';
    return text + calls_ + "}\n";
  }

 private:
  // Names are taken from a body only if it is plainly the one that the rows came from.
  bool Matches(const ir::Body* detail) const {
    if (detail == nullptr || detail->calls.size() != body_.call_count) return false;
    if (detail->formals.size() != body_.formal_count) return false;
    for (uint32_t i = 0; i < body_.call_count; ++i) {
      const runtime::Call& call = program_.calls[body_.first_call + i];
      if (detail->calls[i].kernel != call.kernel || detail->calls[i].operands.size() != call.operand_count) {
        return false;
      }
    }
    return true;
  }

  std::string Summary() const {
    std::string text = fmt::format("{} call{}", body_.call_count, body_.call_count == 1 ? "" : "s");
    if (body_.scratch_bytes > 0) text += fmt::format(", {} bytes of scratch", body_.scratch_bytes);
    if (detail_ == nullptr) return text;
    return fmt::format("Region {}, pass {}: {}, {:.4g} MFLOP", detail_->region, PassText(detail_->pass), text,
                       detail_->flops / 1e6);
  }

  // The position in variables_ of the pointer for operand k of call i.
  size_t VariableOf(uint32_t i, uint32_t k, const kernels::OperandInfo& info) {
    const runtime::Call& call = program_.calls[body_.first_call + i];
    const runtime::CallOperand& operand = program_.call_operands[call.first_operand + k];
    const bool formal = operand.local == 0;
    // Locals may share bytes; with names at hand each local is its own pointer.
    uint64_t key = uint64_t{operand.value} << 2 | uint64_t{formal};
    const ir::OperandRef* ref = detail_ != nullptr ? &detail_->calls[i].operands[k] : nullptr;
    if (!formal && ref != nullptr) key = uint64_t{ref->index} << 2 | 2;
    // A pointer has one element type; scratch bytes may be reused with another.
    key = key << 2 | static_cast<uint64_t>(info.element);
    auto [it, fresh] = index_.emplace(key, variables_.size());
    if (fresh) {
      Variable v;
      v.formal = formal;
      v.place = operand.value;
      v.element = info.element;
      std::string name;
      if (formal && detail_ != nullptr) {
        const ir::Formal& f = detail_->formals[operand.value];
        name = Prefixed(FormalPrefix(f.kind), f.name);
        v.shape = CommentText(f.type.ToString(), 90);
      } else if (!formal && ref != nullptr) {
        const ir::Local& local = detail_->locals[ref->index];
        name = Prefixed("tmp_", local.name);
        v.shape = CommentText(local.type.ToString(), 90);
      } else if (formal) {
        name = fmt::format("arg{}_{}", operand.value, Word(info.name));
      } else {
        name = fmt::format("tmp_{}", Word(info.name));
      }
      v.name = names_.Unique(name);
      variables_.push_back(std::move(v));
    }
    if (info.role != OperandRole::kIn) variables_[it->second].written = true;
    return it->second;
  }

  void AddCall(uint32_t i) {
    const runtime::Call& call = program_.calls[body_.first_call + i];
    const KernelInfo* kernel = kernels::FindKernel(call.kernel);
    PIPER_CHECK(kernel != nullptr, call.kernel);
    PIPER_CHECK(kernel->operands.size() == call.operand_count && kernel->int_names.size() == call.int_count &&
                    kernel->scalar_names.size() == call.scalar_count,
                call.kernel);
    std::vector<std::string> arguments;
    for (uint32_t k = 0; k < call.operand_count; ++k) {
      arguments.push_back(variables_[VariableOf(i, k, kernel->operands[k])].name);
    }
    for (uint32_t k = 0; k < call.int_count; ++k) {
      arguments.push_back(
          fmt::format("/*{}=*/{}", kernel->int_names[k], IntLiteral(program_.call_ints[call.first_int + k])));
    }
    for (uint32_t k = 0; k < call.scalar_count; ++k) {
      arguments.push_back(fmt::format("/*{}=*/{}", kernel->scalar_names[k],
                                      DoubleLiteral(program_.call_scalars[call.first_scalar + k])));
    }
    if (kernel->random) arguments.push_back(fmt::format("Key(context, key_{})", random_calls_++));
    calls_ += fmt::format("  BeginCall(context, {});\n", i);
    calls_ += WrapCall(fmt::format("kernels::{}", kernel->name), arguments, ");", 2);
  }

  const runtime::RankProgram& program_;
  const runtime::Body& body_;
  const ir::Body* detail_;
  std::vector<Variable> variables_;
  std::map<uint64_t, size_t> index_;
  NameScope names_;
  std::string calls_;
  int random_calls_ = 0;
};

bool IsRandom(const char* kernel) {
  const KernelInfo* info = kernels::FindKernel(kernel);
  return info != nullptr && info->random;
}

std::vector<uint64_t> RandomKeys(const runtime::RankProgram& program, const runtime::Body& body) {
  std::vector<uint64_t> keys;
  for (const runtime::Call& call : program.calls.subspan(body.first_call, body.call_count)) {
    if (IsRandom(call.kernel)) keys.push_back(call.random_key);
  }
  return keys;
}

std::string Scalar(double value) { return fmt::format(" {:x}", std::bit_cast<uint64_t>(value)); }

}  // namespace

std::string BodyFunctionName(std::string_view body_name) {
  std::string word = Word(body_name);
  return EndsWithPass(word) ? word : word + "_body";
}

std::string BodyFunctionText(const runtime::RankProgram& program, const runtime::Body& body,
                             const ir::Body* detail, const std::string& name) {
  return Writer(program, body, detail).Text(name);
}

std::string BodyFunctionParameters(const runtime::RankProgram& program, const runtime::Body& body) {
  std::string text = body.call_count == 0 ? "BodyContext&" : "BodyContext& context";
  for (size_t i = 0; i < RandomKeys(program, body).size(); ++i) text += fmt::format(", uint64_t key_{}", i);
  return text;
}

std::string BodyFunctionExpression(const runtime::RankProgram& program, const runtime::Body& body,
                                   const std::string& name) {
  const std::vector<uint64_t> keys = RandomKeys(program, body);
  if (keys.empty()) return name;
  std::string text = fmt::format("[](BodyContext& context) {{ {}(context", name);
  for (uint64_t key : keys) text += ", " + HashLiteral(key);
  return text + "); }";
}

std::string BodyStructure(const runtime::RankProgram& program, const runtime::Body& body) {
  std::string key = fmt::format("{} {}\n", body.formal_count, body.scratch_bytes);
  for (const runtime::Call& call : program.calls.subspan(body.first_call, body.call_count)) {
    key += call.kernel;
    for (const runtime::CallOperand& o :
         program.call_operands.subspan(call.first_operand, call.operand_count)) {
      key += fmt::format(" {}{}", o.local == 0 ? 'f' : 's', o.value);
    }
    for (int64_t value : program.call_ints.subspan(call.first_int, call.int_count))
      key += fmt::format(" {}", value);
    for (double value : program.call_scalars.subspan(call.first_scalar, call.scalar_count))
      key += Scalar(value);
    key += '\n';
  }
  return key;
}

void DetailIndex::Add(const ir::Body& body) {
  if (body.empty()) return;
  std::string key = fmt::format("{} {}\n", body.formals.size(), body.scratch_bytes);
  for (const ir::KernelCall& call : body.calls) {
    key += call.kernel;
    for (const ir::OperandRef& ref : call.operands) {
      const bool formal = ref.kind == ir::OperandRef::Kind::kFormal;
      key += fmt::format(" {}{}", formal ? 'f' : 's',
                         formal ? ref.index : body.locals[ref.index].offset / runtime::kAlignment);
    }
    for (int64_t value : call.ints) key += fmt::format(" {}", value);
    for (double value : call.scalars) key += Scalar(value);
    key += '\n';
  }
  by_structure_.emplace(std::move(key), &body);
}

void DetailIndex::Add(const ir::RegionGraph& regions) {
  for (const ir::Region& region : regions.regions) {
    for (const ir::Body* body :
         {&region.forward, &region.recompute, &region.backward_input, &region.backward_weight})
      Add(*body);
  }
}

const ir::Body* DetailIndex::Find(const runtime::RankProgram& program, const runtime::Body& body) const {
  const auto it = by_structure_.find(BodyStructure(program, body));
  return it == by_structure_.end() ? nullptr : it->second;
}

size_t BodySet::Add(const runtime::RankProgram& program, const runtime::Body& body, const ir::Body* detail,
                    uint32_t user) {
  auto [it, fresh] = by_structure_.emplace(BodyStructure(program, body), functions_.size());
  if (fresh) {
    Function function;
    function.name = names_.Unique(BodyFunctionName(body.name));
    function.parameters = BodyFunctionParameters(program, body);
    function.text = BodyFunctionText(program, body, detail, function.name);
    functions_.push_back(std::move(function));
  }
  functions_[it->second].users.insert(user);
  return it->second;
}

}  // namespace piper::codegen
