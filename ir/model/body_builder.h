// What a rule's lowering is written with: it reads and writes values and emits kernel calls. Where a value
// lives (a formal, scratch, the bytes of another value) was decided before; the builder resolves it, appends
// workspaces, and packs what is left over, the locals, by liveness.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/model/body.h"
#include "ir/model/graph.h"

namespace piper::ir {

class BodyBuilder {
 public:
  // `graph` and `body` outlive the builder; body->formals are complete.
  BodyBuilder(const Graph& graph, Body* body) : graph_(graph), body_(body) {}

  // ---- for rules
  // ------------------------------------------------------------------------------------------------
  const Graph& graph() const { return graph_; }
  const TensorType& Type(ValueId value) const { return graph_.Type(value); }
  // Where a value is, to be read or to be written.
  OperandRef At(ValueId value);
  // Whether anything reads the value: a call for the sake of an unwanted result can be left out.
  bool Wanted(ValueId value) const;
  // Scratch for the calls of one operation.
  OperandRef Temporary(const TensorType& type, std::string name);
  OperandRef Temporary(int64_t elements, std::string name);
  // The step's loss scale.
  OperandRef Scale() const;
  // Operands without the workspace, which is added here; in the kernel's order, like ints and scalars.
  void Call(std::string kernel, std::vector<OperandRef> operands, std::vector<int64_t> ints,
            std::vector<double> scalars = {});

  // ---- for BuildRegions
  // ----------------------------------------------------------------------------------------- Binds a value
  // to a formal; values that are not bound become locals when first mentioned.
  void Bind(ValueId value, uint32_t formal) { places_[value] = {OperandRef::Kind::kFormal, formal}; }
  // The value's bytes are those of `root`.
  void SetRoot(ValueId value, ValueId root) { roots_[value] = root; }
  // The roots that anything reads. Outlives the builder.
  void SetWanted(const std::set<ValueId>* wanted) { wanted_ = wanted; }
  // Names locals; outlives the builder.
  void SetNames(const std::function<std::string(ValueId)>* names) { names_ = names; }
  // The operation that the next calls belong to.
  void Begin(OpId forward, const std::string& path);
  // Packs the locals and adds up flops and bytes.
  void Finish();

 private:
  OperandRef AddLocal(const TensorType& type, std::string name);

  const Graph& graph_;
  Body* body_;
  std::unordered_map<ValueId, OperandRef> places_;  // looked up only, never iterated
  std::unordered_map<ValueId, ValueId> roots_;
  const std::set<ValueId>* wanted_ = nullptr;
  const std::function<std::string(ValueId)>* names_ = nullptr;
  uint64_t random_key_ = 0;
  OpId operation_ = kNone;
};

// Gives every local its offset, by liveness over the calls, and sets scratch_bytes.
void PackLocals(Body* body);

// The key of an operation's random numbers: a 64-bit hash of its path (FNV-1a), never 0.
uint64_t PathHash(std::string_view path);

}  // namespace piper::ir
