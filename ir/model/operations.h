// The vocabulary of operations. One operation is one file in ir/model/operations/: its signature, its shape rule
// (checked, with source ranges), its derivative, and its lowering to kernel calls (kernels/). The front end resolves
// calls inside `forward` blocks through this table, so a new operation needs no front-end change.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/model/graph.h"
#include "ir/support/diagnostics.h"

namespace piper::ir {

class BodyBuilder;      // body.h: emits kernel calls
class GradientBuilder;  // gradient.h: emits backward operations

// A formal of an operation as the language sees it.
struct OperandInfo {
  std::string name;
  bool optional = false;
};
struct AttributeInfo {
  enum class Kind : uint8_t { kInt, kNumber, kFlag, kText, kDim, kDims } kind;
  std::string name;
  std::optional<AttributeValue> default_value;  // none: required
};

class OperationRule {
 public:
  virtual ~OperationRule() = default;
  virtual std::string_view name() const = 0;
  // The form that docs/language.md heads and that messages cite: "layer_norm(x, gamma, beta, eps = 1e-5)".
  virtual const std::vector<OperandInfo>& operands() const = 0;
  virtual bool variadic() const { return false; }  // concat(a, b, c, ..)
  virtual const std::vector<AttributeInfo>& attributes() const = 0;
  virtual bool user_visible() const { return true; }  // backward operations are not

  // Result types, or nothing after an error was reported at op.range.
  virtual std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                                       DiagnosticEngine& diag) const = 0;
  // Adds the cotangents of the operands, given those of the results. Default: not differentiable (the operands get
  // none), right for integer and stop_gradient operations.
  virtual void Differentiate(GradientBuilder& builder, const Operation& op) const;
  virtual void Lower(BodyBuilder& body, const Operation& op) const = 0;
};

// Every rule, sorted by name; nullptr when unknown.
const std::vector<const OperationRule*>& AllOperations();
const OperationRule* FindOperation(std::string_view name);

// Appends checked operations to a graph. `@` is "matmul", `+ - * /` are "add" etc.; numbers become attributes of
// "affine". Used by the elaborator and by tests.
class GraphBuilder {
 public:
  GraphBuilder(Graph* graph, DiagnosticEngine* diag) : graph_(graph), diag_(diag) {}

  // Where the next operations come from.
  void SetTags(TagPathId tags) { tags_ = tags; }
  void SetPath(std::string module_path) { path_ = std::move(module_path); }

  // Results' values; empty after an error was reported. Attributes may come in any order; defaults are filled in.
  std::vector<ValueId> Add(std::string_view kind, const std::vector<ValueId>& operands,
                           std::vector<Attribute> attributes, SourceRange range);

  Graph& graph() { return *graph_; }

 private:
  Graph* graph_;
  DiagnosticEngine* diag_;
  TagPathId tags_ = 0;
  std::string path_;
};

}  // namespace piper::ir
