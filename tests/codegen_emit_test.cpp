// The emitted text: functions, tables, what is shared, what hostile names become, equal bytes.
#include "codegen/emit.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "codegen/body_text.h"
#include "tests/codegen_job.h"

namespace piper::codegen {
namespace {

Emitted EmitSmall(const ir::JobStorage& storage) {
  EmitInput input;
  input.job = &storage.job();
  input.target_cpu = "x86-64-v3";
  input.include_directory = "/opt/piper/include";
  input.libraries = {"/opt/piper/lib/libpiper_runtime.a", "/opt/piper/lib/libpiper_kernels.a"};
  return Emit(input);
}

std::string File(const Emitted& emitted, const std::string& path) {
  for (const EmittedFile& file : emitted.files) {
    if (file.path == path) return file.text;
  }
  ADD_FAILURE() << "no " << path;
  return {};
}

// From the line that starts with `begin` to the first line that is `end`.
std::string Excerpt(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t first = text.find(begin);
  if (first == std::string::npos) return "no '" + begin + "' in:\n" + text;
  const size_t last = text.find("\n" + end + "\n", first);
  return text.substr(first, last == std::string::npos ? last : last + end.size() + 2 - first);
}

TEST(CodegenEmit, AFunctionReadsTopToBottom) {
  const auto storage = test::MakeSmallJob();
  EXPECT_EQ(Excerpt(File(EmitSmall(*storage), "src/role1.cpp"), "void head_bwd_input", "}"),
            R"(void head_bwd_input(BodyContext& context) {
  const float* arg0_logits = Input<float>(context, 0);
  const int32_t* arg1_targets = Input<int32_t>(context, 1);
  const float* arg2_lse = Input<float>(context, 2);
  const float* arg3_scale = Input<float>(context, 3);
  const float* arg4_b = Input<float>(context, 4);
  float* arg5_dlogits = Output<float>(context, 5);
  float* arg6_c = Output<float>(context, 6);
  float* tmp_y = Scratch<float>(context, 0);

  BeginCall(context, 0);
  kernels::fill(tmp_y, /*n=*/1, /*value=*/1.0);
  BeginCall(context, 1);
  kernels::cross_entropy_backward(arg0_logits, arg1_targets, arg2_lse, arg3_scale, tmp_y, arg5_dlogits,
                                  /*rows=*/16, /*vocab=*/256);
  BeginCall(context, 2);
  kernels::gemm(arg5_dlogits, arg4_b, arg6_c, /*m=*/16, /*n=*/16, /*k=*/256, /*trans_a=*/0, /*trans_b=*/1);
}
)");
}

TEST(CodegenEmit, NamesAndShapesComeFromTheBody) {
  ir::Body detail;
  detail.region = 7;
  const ir::TensorType x{ir::DType::kF32, {{"seq", 8}, {"embed", 16}}};
  detail.formals = {{ir::FormalKind::kValue, false, x, "x", 0, ir::kNone, ir::kNone, ir::kNone, ir::kNone},
                    {ir::FormalKind::kParameter, false, x, "delete", 1, 0, ir::kNone, ir::kNone, ir::kNone},
                    {ir::FormalKind::kOutput, true, x, "y", 2, ir::kNone, ir::kNone, ir::kNone, ir::kNone}};
  detail.locals = {{x, "sum", 0}};
  using Ref = ir::OperandRef;
  detail.calls = {
      {"mul", {{Ref::Kind::kFormal, 0}, {Ref::Kind::kFormal, 1}, {Ref::Kind::kLocal, 0}}, {128}, {}, 0, 0},
      {"affine", {{Ref::Kind::kLocal, 0}, {Ref::Kind::kFormal, 2}}, {128}, {0.5, 1}, 0, 1}};
  detail.scratch_bytes = 512;
  detail.flops = 3e6;

  runtime::Body body{"mix_fwd", nullptr, 0, 2, 3, 512};
  const runtime::Call calls[] = {{"mul", 0, 3, 0, 1, 0, 0, 0, "m#0"}, {"affine", 3, 2, 1, 1, 0, 2, 0, "m#1"}};
  const runtime::CallOperand operands[] = {{0, 0}, {0, 1}, {1, 0}, {1, 0}, {0, 2}};
  const int64_t ints[] = {128, 128};
  const double scalars[] = {0.5, 1};
  runtime::RankProgram program{};
  program.calls = calls;
  program.call_operands = operands;
  program.call_ints = ints;
  program.call_scalars = scalars;
  EXPECT_EQ(BodyFunctionText(program, body, &detail, "mix_fwd"),
            R"(// Region 7, pass F: 2 calls, 512 bytes of scratch, 3 MFLOP
void mix_fwd(BodyContext& context) {
  const float* in_x = Input<float>(context, 0);          // f32[seq=8, embed=16]
  const float* param_delete = Input<float>(context, 1);  // f32[seq=8, embed=16]
  float* out_y = Output<float>(context, 2);              // f32[seq=8, embed=16]
  float* tmp_sum = Scratch<float>(context, 0);           // f32[seq=8, embed=16]

  BeginCall(context, 0);
  kernels::mul(in_x, param_delete, tmp_sum, /*n=*/128);
  BeginCall(context, 1);
  kernels::affine(tmp_sum, out_y, /*n=*/128, /*slope=*/0.5, /*offset=*/1.0);
}
)");
}

TEST(CodegenEmit, TheScheduleIsATableWithLegibleRows) {
  const auto storage = test::MakeSmallJob();
  const std::string text = File(EmitSmall(*storage), "src/role0.cpp");
  EXPECT_EQ(Excerpt(text, "constexpr Stream kTrainStreams[]", "};"),
            R"(constexpr Stream kTrainStreams[] = {
    // name, first task, tasks, computes, scratch
    {"compute", 0,  9, 1, kNone},  // 0
    {"send>1",  9,  2, 0, kNone},  // 1
    {"recv<1",  11, 2, 0, kNone},  // 2
    {"reduce",  13, 1, 0, kNone},  // 3
};
)");
  const std::string tasks = Excerpt(text, "constexpr Task kTrainTasks[]", "};");
  EXPECT_NE(tasks.find("    {TaskKind::kCompute,    0, 0, 1,  0, "), std::string::npos) << tasks;
  EXPECT_NE(tasks.find("// 3: F embed mb 1 @ small.piper:20:5\n"), std::string::npos) << tasks;
  EXPECT_NE(text.find("RunMain(MakeTrainJob(kTrainRoles, {}), 0, argc, argv)"), std::string::npos);
  // What another role is: its name and ranks.
  EXPECT_NE(text.find("constexpr RankProgram kTrainRole1Program = {\n    \"role1\",  // name\n"),
            std::string::npos);
  EXPECT_EQ(text.find("head_fwd"), std::string::npos) << "role 0 holds code of role 1";
}

TEST(CodegenEmit, EqualBodiesAreOneFunctionAndSharedOnesAreCompiledOnce) {
  test::JobNames names;
  const auto storage = test::MakeSmallJob(names);
  runtime::RankProgram first = storage->job().train[1];
  runtime::RankProgram second = first;
  BodySet set;
  EXPECT_EQ(set.Add(first, first.bodies[0], nullptr, 0), 0u);
  EXPECT_EQ(set.Add(second, second.bodies[0], nullptr, 1), 0u);
  EXPECT_EQ(set.Add(first, first.bodies[1], nullptr, 0), 1u);
  EXPECT_EQ(set.Add(first, first.bodies[0], nullptr, 0), 0u);
  ASSERT_EQ(set.functions().size(), 2u);
  EXPECT_EQ(set.functions()[0].users, (std::set<uint32_t>{0, 1}));
  EXPECT_EQ(set.functions()[1].users, (std::set<uint32_t>{0}));
}

TEST(CodegenEmit, LayersThatDifferInTheirRandomKeysShareAFunction) {
  const runtime::Call calls[] = {{"dropout_forward", 0, 2, 0, 2, 0, 1, 0xa1, "layer0.drop"},
                                 {"dropout_forward", 0, 2, 0, 2, 0, 1, 0xb2, "layer1.drop"}};
  const runtime::CallOperand operands[] = {{0, 0}, {0, 1}};
  const int64_t ints[] = {128, 64};
  const double scalars[] = {0.1};
  runtime::RankProgram program{};
  program.calls = calls;
  program.call_operands = operands;
  program.call_ints = ints;
  program.call_scalars = scalars;
  const runtime::Body first{"layer_fwd", nullptr, 0, 1, 2, 0}, second{"layer_fwd", nullptr, 1, 1, 2, 0};
  BodySet set;
  EXPECT_EQ(set.Add(program, first, nullptr, 0), 0u);
  EXPECT_EQ(set.Add(program, second, nullptr, 0), 0u);
  EXPECT_EQ(set.functions()[0].parameters, "BodyContext& context, uint64_t key_0");
  EXPECT_NE(set.functions()[0].text.find("Key(context, key_0));"), std::string::npos)
      << set.functions()[0].text;
  EXPECT_EQ(BodyFunctionExpression(program, second, "layer_fwd"),
            "[](BodyContext& context) { layer_fwd(context, 0x00000000000000b2); }");
}

TEST(CodegenEmit, TheSameJobGivesTheSameBytes) {
  const Emitted first = EmitSmall(*test::MakeSmallJob()), second = EmitSmall(*test::MakeSmallJob());
  ASSERT_EQ(first.files.size(), second.files.size());
  for (size_t i = 0; i < first.files.size(); ++i) {
    EXPECT_EQ(first.files[i].path, second.files[i].path);
    EXPECT_EQ(first.files[i].text, second.files[i].text);
  }
}

TEST(CodegenEmit, HostileNamesStayDataAndWords) {
  const auto storage = test::MakeSmallJob(test::HostileNames());
  const Emitted emitted = EmitSmall(*storage);
  const std::string role0 = File(emitted, "src/role0.cpp"), role1 = File(emitted, "src/role1.cpp");
  EXPECT_NE(role0.find("void while_body(BodyContext& context)"), std::string::npos);
  EXPECT_NE(role0.find("void EOF_body(BodyContext& context)"), std::string::npos);
  EXPECT_NE(role0.find("{\"\\\"); system(\\\"true\\\"); (\\\"\", "), std::string::npos);
  for (const std::string& text : {role0, role1}) {
    // None of it is at the start of a line, outside a string or in a comment that continues.
    EXPECT_EQ(text.find("\nint evil"), std::string::npos);
    EXPECT_EQ(text.find("\n#define"), std::string::npos);
    EXPECT_EQ(text.find("\\\n"), std::string::npos);
    for (char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << static_cast<int>(c);
  }
}

// The formatter of this project, where it is installed, changes nothing.
TEST(CodegenEmit, ClangFormatChangesNothing) {
  if (std::system("clang-format --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "no clang-format here";
  const auto storage = test::MakeSmallJob();
  std::string directory = ::testing::TempDir() + "piper_format_XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  for (const EmittedFile& file : EmitSmall(*storage).files) {
    if (!file.path.ends_with(".cpp") && !file.path.ends_with(".h")) continue;
    const std::string path = directory + "/" + std::filesystem::path(file.path).filename().string();
    std::ofstream(path) << file.text;
    const std::string command = "clang-format --style=file:.clang-format --dry-run --Werror " + path;
    EXPECT_EQ(std::system(command.c_str()), 0) << file.path;
  }
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace piper::codegen
