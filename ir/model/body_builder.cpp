#include "ir/model/body_builder.h"

#include <algorithm>
#include <string_view>

#include "ir/support/result.h"
#include "kernels/registry.h"

namespace piper::ir {

uint64_t PathHash(std::string_view path) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : path) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash == 0 ? 1 : hash;
}

OperandRef BodyBuilder::AddLocal(const TensorType& type, std::string name) {
  body_->locals.push_back({type, std::move(name), 0});
  return {OperandRef::Kind::kLocal, static_cast<uint32_t>(body_->locals.size() - 1)};
}

OperandRef BodyBuilder::At(ValueId value) {
  auto root = roots_.find(value);
  if (root != roots_.end()) value = root->second;
  auto found = places_.find(value);
  if (found != places_.end()) return found->second;
  OperandRef place = AddLocal(graph_.Type(value), (*names_)(value));
  places_[value] = place;
  return place;
}

bool BodyBuilder::Wanted(ValueId value) const { return wanted_->count(value) > 0; }

OperandRef BodyBuilder::Temporary(const TensorType& type, std::string name) {
  return AddLocal(type, std::move(name));
}

OperandRef BodyBuilder::Temporary(int64_t elements, std::string name) {
  return AddLocal({DType::kF32, {{"n", elements}}}, std::move(name));
}

OperandRef BodyBuilder::Scale() const {
  for (uint32_t i = 0; i < body_->formals.size(); ++i) {
    if (body_->formals[i].kind == FormalKind::kScale) return {OperandRef::Kind::kFormal, i};
  }
  PIPER_CHECK(false, "no scale: the rule does not say that it reads one");
  return {OperandRef::Kind::kFormal, 0};
}

void BodyBuilder::Begin(OpId forward, const std::string& path) {
  operation_ = forward;
  random_key_ = PathHash(path);
}

void BodyBuilder::Call(std::string kernel, std::vector<OperandRef> operands, std::vector<int64_t> ints,
                       std::vector<double> scalars) {
  const kernels::KernelInfo* info = kernels::FindKernel(kernel);
  PIPER_CHECK(info != nullptr, kernel);
  PIPER_CHECK(info->int_names.size() == ints.size() && info->scalar_names.size() == scalars.size(), kernel);
  int workspace = info->workspace_index();
  if (workspace >= 0) {
    int64_t elements = std::max<int64_t>(1, info->workspace_elements(ints.data()));
    operands.insert(operands.begin() + workspace, Temporary(elements, "workspace"));
  }
  PIPER_CHECK(info->operands.size() == operands.size(), kernel);
  KernelCall call;
  call.kernel = std::move(kernel);
  call.operands = std::move(operands);
  call.ints = std::move(ints);
  call.scalars = std::move(scalars);
  call.random_key = info->random ? random_key_ : 0;
  call.operation = operation_;
  body_->flops += info->flops(call.ints.data());
  body_->bytes_moved += info->bytes(call.ints.data(), DTypeBytes(DType::kF32));
  body_->calls.push_back(std::move(call));
}

void BodyBuilder::Finish() { PackLocals(body_); }

void PackLocals(Body* body) {
  body->scratch_bytes = 0;
  // Lives as call ranges, both ends included: an input and an output of one call never share bytes.
  struct Life {
    size_t local, first, last;
    int64_t bytes;
  };
  std::vector<Life> lives;
  for (size_t i = 0; i < body->locals.size(); ++i) {
    constexpr int64_t kAlign = 64;
    int64_t bytes = (body->locals[i].type.bytes() + kAlign - 1) / kAlign * kAlign;
    lives.push_back({i, SIZE_MAX, 0, bytes});
  }
  for (size_t c = 0; c < body->calls.size(); ++c) {
    for (OperandRef operand : body->calls[c].operands) {
      if (operand.kind != OperandRef::Kind::kLocal) continue;
      Life& life = lives[operand.index];
      life.first = std::min(life.first, c);
      life.last = c;
    }
  }
  // The largest first, each at the lowest offset where it overlaps nothing that lives at the same time.
  std::stable_sort(lives.begin(), lives.end(),
                   [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  std::vector<const Life*> placed;
  for (const Life& life : lives) {
    if (life.first == SIZE_MAX) continue;  // mentioned but never part of a call
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (const Life* other : placed) {
      if (other->first > life.last || other->last < life.first) continue;
      taken.emplace_back(body->locals[other->local].offset, other->bytes);
    }
    std::sort(taken.begin(), taken.end());
    int64_t offset = 0;
    for (auto [begin, bytes] : taken) {
      if (begin - offset >= life.bytes) break;
      offset = std::max(offset, begin + bytes);
    }
    body->locals[life.local].offset = offset;
    body->scratch_bytes = std::max(body->scratch_bytes, offset + life.bytes);
    placed.push_back(&life);
  }
}

}  // namespace piper::ir
