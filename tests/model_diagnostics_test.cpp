// What the operation table says to bad input: located, both shapes, the rule, a hint; and the text of a
// graph.
#include <gtest/gtest.h>

#include "tests/model_test_support.h"

namespace piper::ir {
namespace {

class Refused : public testing::Test {
 protected:
  Refused() : file_(sources_.Add("m.piper", "let y = f(x)\n")), diag_(sources_), builder_(&graph_, &diag_) {
    graph_.AddInput({"tokens", {DType::kI32, {{"batch", 8}, {"seq", 4}}}, {}});
    x_ = Param("x", {{"batch", 8}, {"seq", 4}, {"embed", 16}});
  }
  ValueId Param(const std::string& name, std::vector<Dim> dims) {
    Parameter parameter;
    parameter.name = name;
    parameter.type = {DType::kF32, std::move(dims)};
    return graph_.AddParameter(std::move(parameter));
  }
  // The rendering of the only diagnostic, without the source lines.
  std::string Message(std::string_view kind, const std::vector<ValueId>& operands,
                      std::vector<Attribute> attributes = {}) {
    EXPECT_TRUE(builder_.Add(kind, operands, std::move(attributes), {file_, 8, 12}).empty());
    EXPECT_EQ(diag_.diagnostics().size(), 1u);
    if (diag_.diagnostics().empty()) return "";
    const Diagnostic& d = diag_.diagnostics()[0];
    EXPECT_EQ(sources_.Describe(d.range), "m.piper:1:9");
    std::string text = std::string(DiagKindName(d.kind)) + ": " + d.message;
    for (const DiagNote& note : d.notes) text += "\n" + note.message;
    diag_.Clear();
    return text;
  }

  SourceManager sources_;
  FileId file_;
  DiagnosticEngine diag_;
  Graph graph_;
  GraphBuilder builder_;
  ValueId x_;
};

TEST_F(Refused, Matmul) {
  ValueId hidden = Param("w", {{"hidden", 32}, {"embed", 16}});
  EXPECT_EQ(
      Message("matmul", {x_, hidden}),
      "shape-mismatch: the left operand f32[batch=8, seq=4, embed=16] of @ ends in 'embed=16', the right one "
      "f32[hidden=32, embed=16] begins with 'hidden=32': @ contracts the dimensions that trail the left and "
      "lead "
      "the right\nhint: transpose the right operand: a @ b.T");
  ValueId size = Param("w2", {{"embed", 12}, {"out", 4}});
  EXPECT_NE(Message("matmul", {x_, size}).find("hint: 'embed' has two sizes here: 16 and 12"),
            std::string::npos);
  ValueId alike = Param("w3", {{"model", 16}, {"out", 4}});
  EXPECT_NE(Message("matmul", {x_, alike})
                .find("hint: if they are the same, name them alike: rename(b, model, embed)"),
            std::string::npos);
}

TEST_F(Refused, Broadcast) {
  ValueId b = Param("b", {{"embed", 12}});
  EXPECT_EQ(Message("add", {x_, b}),
            "shape-mismatch: add of f32[batch=8, seq=4, embed=16] and f32[embed=12]: the dimension 'embed' "
            "is 16 on the "
            "left and 12 on the right\nhint: dimensions are the same only if names and sizes agree");
  ValueId c = Param("c", {{"heads", 4}});
  EXPECT_EQ(Message("mul", {x_, c}),
            "shape-mismatch: mul of f32[batch=8, seq=4, embed=16] and f32[heads=4]: only the left has "
            "'batch=8', only "
            "the right has 'heads=4'; one operand's dimensions must be among the other's\nhint: sum over one "
            "of them, "
            "or repeat the other operand along it first");
}

TEST_F(Refused, NamesAndArguments) {
  EXPECT_EQ(
      Message("layer_nrm", {x_}),
      "bad-operation: there is no operation 'layer_nrm'\nhint: did you mean layer_norm(x, gamma, beta, eps = "
      "1e-05)?");
  EXPECT_EQ(Message("gelu", {x_, x_}),
            "bad-arguments: gelu takes 1 tensor, not 2\nhint: the form is gelu(x, approximate = \"tanh\")");
  EXPECT_EQ(Message("softmax", {x_}),
            "bad-arguments: softmax needs 'dim', a dimension\nhint: the form is softmax(x, dim)");
  EXPECT_EQ(Message("softmax", {x_}, {{"dim", std::string("embd")}}),
            "unknown-dim: 'x' of softmax is f32[batch=8, seq=4, embed=16], which has no dimension "
            "'embd'\nhint: its "
            "dimensions are batch, seq, embed");
  EXPECT_EQ(
      Message("gelu", {x_}, {{"aproximate", std::string("none")}}),
      "bad-arguments: gelu has no argument 'aproximate'\nhint: the form is gelu(x, approximate = \"tanh\")");
  EXPECT_EQ(Message("dropout", {x_}, {{"p", std::string("high")}}),
            "bad-arguments: 'p' of dropout must be a number\nhint: the form is dropout(x, p)");
  EXPECT_EQ(Message("matmul_backward_left", {x_, x_}).substr(0, 51),
            "bad-operation: there is no operation 'matmul_backwa");
}

TEST_F(Refused, TypesAndValues) {
  ValueId tokens = graph_.InputValue(0);
  EXPECT_EQ(Message("gelu", {tokens}),
            "dtype-mismatch: 'x' of gelu is i32[batch=8, seq=4], but must hold real numbers (f32)\nhint: "
            "integers index "
            "a table: embedding(table, ids)");
  EXPECT_EQ(
      Message("cast", {x_}, {{"dtype", std::string("bf16")}}),
      "unsupported: cast of f32[batch=8, seq=4, embed=16] to bf16: no element type can be changed yet\nhint: "
      "computation is in f32");
  EXPECT_EQ(Message("dropout", {x_}, {{"p", 1.5}}),
            "out-of-range: dropout's p is 1.5, a probability below 1\nhint: 0.1 is usual; 0 drops nothing");
  EXPECT_NE(Message("dropout", {Param("v", {{"embed", 16}})}, {{"p", 0.5}})
                .find("must be the inputs' first, 'batch'"),
            std::string::npos);
}

TEST_F(Refused, Shapes) {
  EXPECT_EQ(Message("reshape", {x_}, {{"dims", std::vector<std::string>{"batch", "seq", "half=7", "two"}}}),
            "shape-mismatch: reshape of f32[batch=8, seq=4, embed=16] (512 elements) to [batch, seq, half=7, "
            "two]: the "
            "elements do not match\nhint: leave out one size and it follows from the rest");
  EXPECT_EQ(Message("reshape", {x_}, {{"dims", std::vector<std::string>{"seq", "batch", "embed"}}}),
            "shape-mismatch: reshape of f32[batch=8, seq=4, embed=16] to f32[seq=4, batch=8, embed=16] would "
            "move the "
            "dimension 'seq'\nhint: reshape only merges and splits neighbours; permute(x, [..]) reorders");
  ValueId q = Param("q", {{"batch", 8}, {"seq", 4}, {"heads", 6}, {"head_dim", 8}});
  ValueId k = Param("k", {{"batch", 8}, {"seq", 4}, {"kv_heads", 4}, {"head_dim", 8}});
  EXPECT_NE(Message("attention", {q, k, k}).find("q has 6 heads and k has 4"), std::string::npos);
  EXPECT_NE(
      Message("attention", {x_, k, k}).find("hint: they are, by position, [batch, seq, heads, head_dim]"),
      std::string::npos);
  ValueId gamma = Param("gamma", {{"hidden", 16}});
  EXPECT_EQ(
      Message("rms_norm", {x_, gamma}),
      "shape-mismatch: 'gamma' of rms_norm is f32[hidden=16], but rms_norm normalises f32[batch=8, seq=4, "
      "embed=16] along its last dimension 'embed=16'\nhint: it must be [embed]");
  EXPECT_NE(Message("cross_entropy", {Param("l", {{"batch", 8}, {"vocab", 9}}), graph_.InputValue(0)})
                .find("the logits must have the targets' dimensions, then the classes"),
            std::string::npos);
  EXPECT_NE(
      Message("matmul", {x_, Param("again", {{"embed", 16}, {"seq", 4}})}).find("the dimension 'seq' twice"),
      std::string::npos);
}

TEST_F(Refused, EveryOperationRefusesNothingAtAll) {
  for (const OperationRule* rule : AllOperations()) {
    if (!rule->user_visible()) continue;
    EXPECT_TRUE(builder_.Add(rule->name(), {}, {}, {file_, 8, 12}).empty()) << rule->name();
    EXPECT_TRUE(diag_.HasErrors()) << rule->name();
    for (const Diagnostic& d : diag_.diagnostics()) {
      EXPECT_FALSE(d.notes.empty()) << rule->name();
      if (!d.notes.empty()) {
        EXPECT_EQ(d.notes.back().message.rfind("hint: ", 0), 0u) << rule->name();
      }
    }
    diag_.Clear();
  }
}

TEST_F(Refused, SlicesThatDoNotFollow) {
  // A reshape that fixes a size which the batch contributes to.
  std::vector<ValueId> rows = builder_.Add(
      "embedding", {Param("table", {{"vocab", 9}, {"embed", 16}}), graph_.InputValue(0)}, {}, {});
  builder_.Add("reshape", {rows[0]}, {{"dims", std::vector<std::string>{"rows=32", "embed"}}},
               {file_, 8, 12});
  EXPECT_FALSE(diag_.HasErrors());
  EXPECT_FALSE(graph_.TryWithDim("batch", 2, diag_).has_value());
  ASSERT_EQ(diag_.diagnostics().size(), 1u);  // the parameter x has a batch
  EXPECT_NE(diag_.diagnostics()[0].message.find("the parameter 'x' has the dimension 'batch'"),
            std::string::npos);
}

TEST_F(Refused, SizesBeyondAnyMachine) {
  int64_t huge = int64_t{1} << 39;
  ValueId wide = Param("wide", {{"embed", 16}, {"out", huge}});
  EXPECT_NE(Message("matmul", {x_, wide}).find("too many elements for matmul"), std::string::npos);
  EXPECT_NE(Message("gelu", {Param("none", {{"a", 0}})}).find("has an empty dimension"), std::string::npos);
  EXPECT_NE(Message("reshape", {x_}, {{"dims", std::vector<std::string>{"a=9223372036854775807", "b=2"}}})
                .find("the elements do not match"),
            std::string::npos);
  EXPECT_NE(Message("constant", {},
                    {{"value", 1.0}, {"dims", std::vector<std::string>{"a=99999999999", "b=99999999"}}})
                .find("too many elements"),
            std::string::npos);
}

TEST(Losses, MustBeNormalised) {
  SourceManager sources;
  DiagnosticEngine diag(sources);
  TestModel m;
  ValueId x = m.Input("x", {{"batch", 2}, {"embed", 3}});
  ValueId y = m.Op("mul", {x, m.Param("w", {{"embed", 3}})});
  m.Loss(m.Op("mean", {y}));
  EXPECT_FALSE(CheckLosses(m.graph(), diag));
  EXPECT_NE(diag.diagnostics()[0].message.find("not normalised over the global batch"), std::string::npos);
  m.graph().losses.clear();
  diag.Clear();
  m.Loss(m.Op("sub", {m.Op("mean_loss", {y}), m.Op("affine", {m.Op("mse", {y, x})}, {{"scale", 0.5}})}));
  EXPECT_TRUE(CheckLosses(m.graph(), diag));
  EXPECT_EQ(FindLossScale(m.graph()).kind, LossScale::Kind::kSamples);
}

TEST(GraphText, OneLineAnOperation) {
  TestModel m;
  ValueId tokens = m.Input("tokens", {{"batch", 2}, {"seq", 3}}, DType::kI32);
  ValueId table = m.Param("wte", {{"vocab", 7}, {"embed", 4}});
  m.Path("head");
  m.Tag({{"layer", 2}, {"attn", 0}});
  ValueId x = m.Op("embedding", {table, tokens});
  m.Loss(m.Op("cross_entropy", {m.Op("matmul", {x, m.Op("transpose", {table})}), tokens}));
  EXPECT_EQ(m.graph().ToText(),
            "model model {\n"
            "  input tokens: i32[batch=2, seq=3]\n"
            "  param @wte: f32[vocab=7, embed=4] = zeros\n"
            "  %2 = embedding(@wte, tokens) : f32[batch=2, seq=3, embed=4]  # head.embedding#0 in "
            "layer[2].attn[0]\n"
            "  %3 = transpose(@wte) : f32[embed=4, vocab=7]  # head.transpose#0 in layer[2].attn[0]\n"
            "  %4 = matmul(%2, @wte, transpose_b = true) : f32[batch=2, seq=3, vocab=7]  # head.matmul#0 in "
            "layer[2].attn[0]\n"
            "  %5, %6 = cross_entropy(%4, tokens) : f32[], f32[batch=2, seq=3]  # head.cross_entropy#0 in "
            "layer[2].attn[0]\n"
            "  loss loss = %5\n"
            "}\n");
  // The transpose is dead: the product reads the table as it lies.
  RegionGraph regions = BuildRegions(m.graph());
  ASSERT_EQ(regions.regions.size(), 1u);
  EXPECT_EQ(regions.regions[0].name, "layer2.attn");
  std::vector<std::string> kernels;
  for (const KernelCall& call : regions.regions[0].forward.calls) kernels.push_back(call.kernel);
  EXPECT_EQ(kernels, (std::vector<std::string>{"embedding_forward", "gemm", "cross_entropy_forward"}));
}

TEST(Mixing, WhatForbidsASplit) {
  TestModel m;
  ValueId tokens = m.Input("tokens", {{"batch", 2}, {"seq", 3}}, DType::kI32);
  ValueId x = m.Op("embedding", {m.Param("wte", {{"vocab", 7}, {"embed", 4}}), tokens});
  EXPECT_EQ(FirstMixing(m.graph(), "batch"), kNone);
  m.Op("softmax", {x}, {{"dim", std::string("seq")}});
  EXPECT_EQ(FirstMixing(m.graph(), "batch"), kNone);
  EXPECT_EQ(FirstMixing(m.graph(), "seq"), 1u);
  // Merged into rows, the batch is mixed by what mixes rows.
  ValueId rows = m.Op("reshape", {x}, {{"dims", std::vector<std::string>{"rows", "embed"}}});
  m.Op("softmax", {rows}, {{"dim", std::string("embed")}});
  EXPECT_EQ(FirstMixing(m.graph(), "batch"), kNone);
  m.Op("softmax", {rows}, {{"dim", std::string("rows")}});
  EXPECT_EQ(FirstMixing(m.graph(), "batch"), 4u);
}

}  // namespace
}  // namespace piper::ir
