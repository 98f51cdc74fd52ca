// The vocabulary of operations. One operation is one file in ir/model/operations/: its signature, its shape
// rule (checked, with source ranges), its derivative, and its lowering to kernel calls (kernels/). The front
// end resolves calls inside `forward` blocks through this table, so a new operation needs no front-end
// change.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/model/graph.h"
#include "ir/support/diagnostics.h"

namespace piper::ir {

class BodyBuilder;      // body_builder.h: emits kernel calls
class GradientBuilder;  // gradient.h: emits backward operations

// A formal of an operation as the language sees it.
struct OperandInfo {
  std::string name;
  bool optional = false;
};
// What an attribute's value looks like, as a `forward` block writes it -> as AttributeValue holds it:
//   kInt 3 -> int64_t; kNumber 0.1 -> double (an int64_t is converted); kFlag -> bool; kText "none" ->
//   string; kDim seq -> the dimension's name; kDims [batch, seq] -> vector of names; kInts [8, 2, 2] ->
//   vector of int64_t; kShape [batch, inner = 512] -> vector of "batch", "inner=512" (no spaces): a size is
//   given, or is that of the operand's dimension of the same name, or (one of them) follows from the number
//   of elements.
struct AttributeInfo {
  enum class Kind : uint8_t { kInt, kNumber, kFlag, kText, kDim, kDims, kInts, kShape } kind;
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

  // Leading results that a caller sees; those behind them are for the derivative to read (lse, rstd).
  virtual size_t visible_results(size_t results) const { return results - hidden_results().size(); }
  // Their names.
  virtual std::vector<std::string_view> hidden_results() const { return {}; }

  // Result types, or nothing after an error was reported at op.range. Sees every attribute (defaults filled
  // in, types checked) and at least the required operands.
  virtual std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                                       DiagnosticEngine& diag) const = 0;
  // Adds the cotangents of the operands, given those of the results. Default: not differentiable (the
  // operands get none), right for integer and stop_gradient operations.
  virtual void Differentiate(GradientBuilder& builder, const Operation& op) const;
  virtual void Lower(BodyBuilder& body, const Operation& op) const = 0;

  // Called by GraphBuilder before Infer: rewrites the operation into its canonical form (a product with a
  // transposed right operand becomes a flag).
  virtual void Canonicalise(const Graph&, Operation*) const {}

  // The operand whose bytes the only result simply is (reshape, stop_gradient): such an operation is never
  // lowered.
  virtual std::optional<uint32_t> AliasOf(const Operation&) const { return std::nullopt; }
  // Whether the result depends on the operands differentiably (not stop_gradient).
  virtual bool Differentiable() const { return true; }
  // Whether calls read the step's loss scale (BodyBuilder::Scale).
  virtual bool ReadsScale() const { return false; }
  // Whether elements of the result depend on other positions along that dimension of an operand, other than
  // through a sum that losses normalise: then the dimension cannot be split (a softmax over it, say).
  virtual bool Mixes(const Graph&, const Operation&, std::string_view) const { return false; }
};

// "layer_norm(x, gamma, beta, eps = 1e-05)": what docs/language.md heads and messages cite.
std::string Signature(const OperationRule& rule);

// Every rule, sorted by name; nullptr when unknown.
const std::vector<const OperationRule*>& AllOperations();
const OperationRule* FindOperation(std::string_view name);

// The first operation that mixes positions along a dimension, or kNone: what forbids splitting it.
OpId FirstMixing(const Graph& graph, std::string_view dim);

// Every loss must be a sum over samples that the step's scale normalises: cross_entropy, mse, mean_loss, or a
// linear combination of such (+, -, and products with numbers). Reports at the loss otherwise; false after an
// error.
bool CheckLosses(const Graph& graph, DiagnosticEngine& diag);

// What the step's count N counts (the loss scale is 1/N, rounded once to f32): the entries >= 0 of the batch
// field that the cross-entropies' targets come from, over the global batch; or, for models whose losses are
// mse and mean_loss, the samples of the global batch. One model has one count.
struct LossScale {
  enum class Kind : uint8_t { kNone, kTargets, kSamples } kind = Kind::kNone;
  InputId targets = kNone;
};
LossScale FindLossScale(const Graph& graph);

// The graph of a forward pass that draws no random numbers: every dropout's rate is 0. For evaluation.
Graph WithoutDropout(const Graph& graph);

// Appends checked operations to a graph. `@` is "matmul", `.T` "transpose", `+ - * /` are "add" etc.; numbers
// become attributes of "affine" (2 * x, x - 1, 1 - x), a number over a tensor is "div" of a "constant". Used
// by the elaborator and by tests. An operation's path is "<module path>.<kind>#<n>", n counting that kind
// within that module path.
class GraphBuilder {
 public:
  GraphBuilder(Graph* graph, DiagnosticEngine* diag) : graph_(graph), diag_(diag) {}

  // Where the next operations come from.
  void SetTags(TagPathId tags) { tags_ = tags; }
  void SetPath(std::string module_path) { path_ = std::move(module_path); }

  // The visible results' values; empty after an error was reported. Attributes may come in any order;
  // defaults are filled in.
  std::vector<ValueId> Add(std::string_view kind, const std::vector<ValueId>& operands,
                           std::vector<Attribute> attributes, SourceRange range);

  Graph& graph() { return *graph_; }

 private:
  Graph* graph_;
  DiagnosticEngine* diag_;
  TagPathId tags_ = 0;
  std::string path_;
  std::map<std::string, int64_t> counts_;  // by "<module path>.<kind>"
};

}  // namespace piper::ir
