// Programs in a few lines for the tests of ir/dag, ir/directives and ir/check: a small chain model, and
// directives that carry a source line each, so that diagnostics can be compared as a user sees them.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ir/check/gradients.h"
#include "ir/check/order.h"
#include "ir/dag/dag_text.h"
#include "ir/dag/verifier.h"
#include "ir/directives/directives.h"
#include "ir/model/operations.h"
#include "ir/program/program.h"

namespace piper::ir {

struct TermSpec {
  const char* name;
  int64_t begin = -1, end = -1;  // begin < 0: any index; end < 0: begin alone
  bool negated = false;
};

inline Selector Sel(PassSet passes, std::initializer_list<TermSpec> terms) {
  Selector selector;
  selector.any_of.emplace_back();
  selector.any_of[0].passes = passes;
  for (const TermSpec& spec : terms) {
    SelectorTerm term;
    term.name = InternName(spec.name);
    term.negated = spec.negated;
    term.has_range = spec.begin >= 0;
    term.begin = spec.begin;
    term.end = spec.end < 0 ? spec.begin + 1 : spec.end;
    selector.any_of[0].terms.push_back(std::move(term));
  }
  return selector;
}
constexpr PassSet kPassF = PassBit(Pass::kF), kPassBI = PassBit(Pass::kBI), kPassBW = PassBit(Pass::kBW),
                  kPassU = PassBit(Pass::kU);
inline Selector F(int64_t stage, int64_t mb) { return Sel(kPassF, {{"stage", stage}, {"mb", mb}}); }
inline Selector B(int64_t stage, int64_t mb) { return Sel(kPassB, {{"stage", stage}, {"mb", mb}}); }

struct ModelSpec {
  int64_t layers = 2, batch = 8, width = 4;
  bool tied = false;      // the head's product uses the embedding's weight
  bool skip = false;      // the head also reads the embedding's output
  bool untagged = false;  // operations between the units without a tag
};

// embed: tanh(x @ wte); layer i: x + tanh(x @ w1) @ w2; head: the mean of (x @ wh)^2.
Graph ChainModel(const ModelSpec& spec);

// A program under construction.
class TestProgram {
 public:
  explicit TestProgram(const ModelSpec& spec = {}, int64_t devices = 1);

  // The source line of the next directive; every directive takes one.
  SourceRange Line(std::string text);
  Directive& Add(std::string text, DirectiveBody body);

  void Mesh(std::vector<std::pair<std::string, int64_t>> axes);
  void Cut(int64_t parts);  // cut embed, layer, head into parts as stage
  void Split(int64_t m);    // split batch into m as mb
  void ShardBatch(std::vector<std::string> axes);
  void Place(int64_t stage, const std::string& axis, int64_t at);
  // mesh (pp = p), cut into p, split into m, stage s on pp[s].
  void Pipeline(int64_t p, int64_t m, int64_t dp = 1);
  GroupExpr At(const std::string& axis, int64_t at);
  Step Do(Selector select);
  Step Fused(std::vector<Selector> parts);
  void Order(const std::string& axis, int64_t at, std::vector<Step> steps);
  void OneForwardOneBackward(int64_t p, int64_t m);

  std::optional<BuiltDag> Build(bool forward_only = false);
  // Builds and proves; the test fails on any error.
  BuiltDag MustBuild();
  // The rendered diagnostics of a build (and the proofs) that must fail.
  std::string Refusal();
  std::string Diagnostics() const { return diag_->Render(DiagnosticEngine::Format::kHuman, false); }

  Program program;
  SourceManager& sources() const { return *sources_; }
  DiagnosticEngine& diag() { return *diag_; }

 private:
  std::unique_ptr<SourceManager> sources_;
  std::unique_ptr<DiagnosticEngine> diag_;
};

// Two stages with two copies each, one a direction (tied embedding), on (pp = 2, dp).
TestProgram Bidirectional(int64_t dp);

// The lines of a text that contain one of the words.
std::string LinesWith(const std::string& text, const std::vector<std::string>& words);

// Compares with tests/goldens/<name>; PIPER_UPDATE_GOLDENS=1 rewrites it.
void ExpectGolden(const std::string& name, const std::string& text);

}  // namespace piper::ir
