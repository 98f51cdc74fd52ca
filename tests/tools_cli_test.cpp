// `piper` and `piperc` as a user runs them: exit codes, what goes where, and that --verify catches each
// fault.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/tools_process.h"

namespace piper::tools {
namespace {

using test::Outcome;

constexpr const char* kSmall = R"(import std.gpt
import std.schedules
import std.strategies
import std.topologies

let layers = 4
model net = gpt.GPT(layers = layers, embed = 16, heads = 2, vocab = 64, seq = 8)

strategy grid(p: int, replicas: int, m: int) {
  mesh (pp = p, dp = replicas)
  cut embed, layer, head into p as stage
  split batch into m as mb
  shard batch over dp
  zero 0 [*] as dp { bucket 4 KiB }
  for s in 0..p {
    place [stage = s] on pp[s]
    order on pp[s] { schedules.one_f_one_b(s, p, m) }
  }
}

train {
  model        net
  data         random()
  global_batch 16
  steps        3
  optimizer    adamw(lr = 1e-3)
  on           topologies.local(ranks = 4)
  using        grid(p = 2, replicas = 2, m = 4)
}

test "1F1B keeps fewer activations" for m in [4, 8] {
  let a = plan(net, strategies.one_f_one_b(p = 4, m = m))
  let b = plan(net, strategies.gpipe(p = 4, m = m))
  expect a.peak_memory < b.peak_memory
  expect a learns b
}
)";

class ToolsCli : public ::testing::Test {
 protected:
  void SetUp() override { Write("small.piper", kSmall); }
  void Write(const std::string& name, const std::string& text) { std::ofstream(scratch_ / name) << text; }
  std::string At(const std::string& name) const { return scratch_ / name; }
  Outcome Piper(std::vector<std::string> arguments, const std::string& input = {}) {
    arguments.insert(arguments.begin(), PIPER_BINARY);
    return test::RunProgram(scratch_, arguments, input);
  }
  Outcome Piperc(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), PIPERC_BINARY);
    return test::RunProgram(scratch_, arguments);
  }
  test::ScratchDirectory scratch_;
};

TEST_F(ToolsCli, HelpAndUsage) {
  Outcome outcome = Piper({"--help"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.out.find("usage: piper COMMAND"), std::string::npos) << outcome.out;
  for (const char* two : {"import", "export"}) {
    outcome = Piper({two, "--help"});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(outcome.out.find(std::string(two) + " csv"), std::string::npos) << outcome.out;
    EXPECT_EQ(Piper({two}).code, 2);
    outcome = Piper({two, "xml", At("small.piper")});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find(std::string("there is no command '") + two + " xml'"), std::string::npos);
    outcome = Piper({two, "csv", "--help"});
    EXPECT_EQ(outcome.out.rfind(std::string("usage: piper ") + two + " csv [options] FILE", 0), 0u)
        << outcome.out;
  }
  for (const char* command : {"check", "run", "test", "fmt"}) {
    outcome = Piper({command, "--help"});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(outcome.out.rfind(std::string("usage: piper ") + command, 0), 0u) << outcome.out;
    EXPECT_EQ(outcome.out.find("inject"), std::string::npos) << "hidden";
  }
  EXPECT_EQ(Piper({}).code, 2);
  outcome = Piper({"frobnicate"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err, "piper: error: there is no command 'frobnicate'\nhint: see piper --help\n");
  outcome = Piper({"run"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err, "piper: error: no file given\nusage: piper run [options] FILE\n");
  EXPECT_EQ(Piper({"run", At("small.piper"), "--no-such-option"}).code, 2);
  EXPECT_EQ(Piper({"run", At("small.piper"), "--steps", "0"}).code, 2);
  EXPECT_EQ(Piper({"check", At("small.piper"), "--set", "nonsense"}).code, 2);
  EXPECT_EQ(Piper({"check", At("small.piper"), "--diagnostics-format=xml"}).code, 2);
  EXPECT_EQ(Piperc({At("small.piper")}).code, 2) << "no output directory";
  EXPECT_EQ(Piperc({At("small.piper"), "--emit=everything"}).code, 2);
  EXPECT_EQ(Piperc({At("small.piper"), "-o", At("out"), "--target-cpu=native -fplugin=x"}).code, 2);
}

TEST_F(ToolsCli, CheckIsSilentOrLocated) {
  Outcome outcome = Piper({"check", At("small.piper")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out + outcome.err, "");
  Write("bad.piper", std::string(kSmall) + "let x = layersy + 1\n");
  outcome = Piper({"check", At("bad.piper")});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("bad.piper:37:9: error: "), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos) << "colour without a terminal";
  outcome = Piper({"check", At("bad.piper"), "--diagnostics-format=json"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_FALSE(nlohmann::json::parse(outcome.err).empty());
  outcome = Piper({"check", At("bad.piper"), "--diagnostics-format=sarif"});
  EXPECT_EQ(nlohmann::json::parse(outcome.err)["version"], "2.1.0");
  EXPECT_EQ(Piper({"check", At("missing.piper")}).code, 74);
  EXPECT_EQ(Piper({"check", "-"}, kSmall).code, 0);
  EXPECT_EQ(Piper({"check", At("small.piper"), "--set", "m=3"}).code, 1)
      << "16 samples over 2 replicas do not divide by 3";
}

// What a user may get wrong on the command line is said, with the way out; nothing is ignored.
TEST_F(ToolsCli, Mistakes) {
  const std::string file = At("small.piper");
  struct Mistake {
    std::vector<std::string> arguments;
    int code;
    const char* part;
  };
  const std::vector<Mistake> mistakes = {
      {{"check", ""}, 2, "the name of the file is empty"},
      {{"check", At("missing.piper")}, 74, "cannot open"},
      {{"check", At("")}, 74, "it is not a regular file"},
      {{"run", At("missing.piper")}, 74, "cannot open"},
      {{"test", At("missing.piper")}, 74, "cannot open"},
      {{"check", file, file}, 2, "more than one file given"},
      {{"check", file, "--vers"}, 2, "unrecognised option '--vers'"},
      {{"check", file, "--set", "m"}, 2, "expected NAME=VALUE"},
      {{"check", file, "--set", "=4"}, 2, "expected NAME=VALUE"},
      {{"check", file, "--set", "m="}, 1, "expected an expression"},
      {{"check", file, "--set", "m=2)"}, 1, "closes nothing"},
      {{"check", file, "--set", "m=2", "--set", "m=4"}, 1, "--set gives 'm' twice"},
      {{"check", file, "--set", "mm=2"}, 1, "did you mean 'm'?"},
      {{"check", file, "--set", "m=-1"}, 1, "a split into -1 parts"},
      {{"check", file, "--set", "m=99999999999999999999"}, 1, "out of range"},
      {{"check", file, "--set", "m=9223372036854775807"}, 1, "do not divide"},
      {{"check", file, "--set", "layers=1000000000"}, 1, "fuel-exhausted"},
      {{"check", file, "--set", "p=1000000000"}, 1, "error: "},
      {{"check", file, "--set", "global_batch=0"}, 1, "must be at least 1"},
      {{"check", file, "--set", "global_batch=9223372036854775807"}, 1, "must be at most"},
      {{"check", file, "--train", "nope"}, 1, "it has one without a name"},
      {{"run", file, "--data", "x"}, 2, "--data goes with --execute or --verify"},
      {{"run", file, "--execute", "--synthetic", "--data", "x"}, 2, "contradict"},
      {{"run", file, "--execute", "--data", "x"}, 1, "the program trains on random(..)"},
      {{"run", file, "--execute", "--steps", "1e3"}, 2, "'1e3'"},
      {{"run", file, "--execute", "--steps", "99999999999999999999"}, 2, "--steps"},
      {{"run", file, "--trace", At("")}, 74, "cannot write"},
      {{"run", file, "--svg", At("")}, 74, "cannot write"},
      {{"run", file, "--comms"}, 2, "--comms goes with --svg"},
      {{"test", file, "--filter", "nothing of that name"}, 2, "no test of"},
      {{"fmt", file, At("missing.piper")}, 74, "cannot open"},
      {{"fmt", At("")}, 74, "is not a regular file"},
  };
  for (const Mistake& mistake : mistakes) {
    const Outcome outcome = Piper(mistake.arguments);
    std::string line;
    for (const std::string& argument : mistake.arguments) line += argument + " ";
    EXPECT_EQ(outcome.code, mistake.code) << line << outcome.err;
    EXPECT_NE(outcome.err.find(mistake.part), std::string::npos) << line << outcome.err;
  }
  EXPECT_EQ(Piperc({file, "-o", file}).code, 74);
  EXPECT_EQ(Piperc({file, "-o", "/proc/piper"}).code, 74);
  EXPECT_EQ(Piperc({file, "-o", At("a"), "-o", At("b")}).code, 2);
  EXPECT_EQ(Piperc({file, "-o", At("a"), "--jobs", "0"}).code, 2);
  EXPECT_EQ(Piper({"--version"}).out.rfind("piper ", 0), 0u);
  EXPECT_EQ(Piperc({"--version"}).out.rfind("piperc ", 0), 0u);
}

// A path need not be UTF-8, and what machines read stays valid all the same.
TEST_F(ToolsCli, PathsOfAnyBytes) {
  const std::string name = "caf\xff \x1b[31m\n.piper";
  Write(name, kSmall);
  EXPECT_EQ(Piper({"check", At(name)}).code, 0);
  Write(name, std::string(kSmall) + "let x = y\n");
  for (const char* format : {"json", "sarif"}) {
    const Outcome outcome = Piper({"check", At(name), std::string("--diagnostics-format=") + format});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_TRUE(nlohmann::json::accept(outcome.err)) << outcome.err;
  }
  const Outcome outcome = Piper({"check", At(name)});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos) << "the path acts on the terminal";
  EXPECT_NE(outcome.err.find("caf?  [31m .piper:37:9: error: "), std::string::npos) << outcome.err;
}

TEST_F(ToolsCli, RunPrintsFiguresAndATimelineOf80Columns) {
  const Outcome outcome = Piper({"run", At("small.piper")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.rfind("step time ", 0), 0u) << outcome.out;
  for (const char* part : {"bubble ", "busy", "messages ", "peak memory", "rank 0, 1 |", "rank 2, 3 |"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << "\n" << outcome.out;
  }
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_EQ(Piper({"run", At("small.piper")}).out, outcome.out) << "two runs differ";
  EXPECT_EQ(Piper({"run", At("small.piper"), "--no-timeline"}).out.find(" |"), std::string::npos);
  const Outcome expanded = Piper({"run", At("small.piper"), "--expand"});
  EXPECT_NE(expanded.out.find("rank 3 |"), std::string::npos) << expanded.out;
  EXPECT_EQ(expanded.out.substr(0, expanded.out.find('\n')), outcome.out.substr(0, outcome.out.find('\n')));
}

TEST_F(ToolsCli, SchedulesGoOutAsCsvAndComeBack) {
  Outcome outcome = Piper({"export", "csv", At("small.piper"), "--idle", "none"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n");
  ASSERT_EQ(Piper({"export", "csv", At("small.piper"), "-o", At("out.csv")}).code, 0);
  EXPECT_EQ(test::Contents(At("out.csv")),
            "0F0,0F1,,0B0,0F2,0B1,0F3,0B2,,0B3\n,1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n");
  outcome = Piper({"export", "csv", At("small.piper"), "--comms"});
  EXPECT_NE(outcome.out.find("0REDUCE_GRAD\n"), std::string::npos) << outcome.out;

  outcome = Piper({"import", "csv", At("out.csv")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("  schedules.one_f_one_b(rank, ranks, microbatches)\n"), std::string::npos)
      << outcome.out;
  EXPECT_EQ(Piper({"check", "-"}, outcome.out).err, "");
  outcome = Piper({"import", "csv", At("out.csv"), "--literals"});
  EXPECT_NE(outcome.out.find("steps \"F 3*(F B) B\""), std::string::npos) << outcome.out;
  ASSERT_EQ(Piper({"import", "csv", At("out.csv"), "--literals", "-o", At("imported.piper")}).code, 0);
  EXPECT_EQ(test::Contents(At("imported.piper")), outcome.out);
  EXPECT_EQ(Piper({"import", "csv", "-"}, test::Contents(At("out.csv"))).code, 0);
  EXPECT_EQ(Piper({"fmt", "--check", At("imported.piper")}).code, 0);
  EXPECT_EQ(Piper({"check", At("imported.piper")}).out, "");
  EXPECT_EQ(Piper({"export", "csv", At("imported.piper")}).out, test::Contents(At("out.csv")));

  // Another file uses the strategy on its own model; it learns what the reference learns.
  std::string user = kSmall;
  user.insert(0, "import \"imported.piper\" as imported\n");
  const std::string from = "using        grid(p = 2, replicas = 2, m = 4)";
  user.replace(user.find(from), from.size(), "using        imported.pipeline(dp = 2)");
  Write("user.piper", user);
  outcome = Piper({"run", At("user.piper"), "--no-timeline", "--verify", "--steps", "1"});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("bitwise equal"), std::string::npos) << outcome.out;
}

TEST_F(ToolsCli, KnownSchedulesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"ScheduleGPipe_p4_v1_m8", "  schedules.gpipe(rank, ranks, microbatches)\n"},
      {"Schedule1F1B_p4_v1_m8", "  schedules.one_f_one_b(rank, ranks, microbatches)\n"},
      {"ScheduleInterleaved1F1B_p4_v2_m8", "  schedules.interleaved(rank, ranks, 2, microbatches)\n"},
      {"ScheduleZBVZeroBubble_p4_v2_m8", "  schedules.zbv(rank, ranks, microbatches)\n"},
      {"ScheduleDualPipeV_p4_v2_m8", "  schedules.dualpipev(rank, ranks, microbatches)\n"},
      {"ScheduleLoopedBFS_p4_v2_m8", "if rank == 0 { steps \"8*0F 8*4F 4B7 "},
      {"ScheduleInterleavedZeroBubble_p4_v2_m8",
       "  schedules.interleaved_zb(rank, ranks, 2, microbatches)\n"},
  };
  for (const auto& [name, part] : cases) {
    const Outcome outcome =
        Piper({"import", "csv", std::string("tests/golden/pytorch_schedules/") + name + ".csv"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find(part), std::string::npos) << name << "\n" << outcome.out;
    EXPECT_EQ(Piper({"check", "-"}, outcome.out).code, 0) << name;
    EXPECT_EQ(Piper({"fmt", "-"}, outcome.out).out, outcome.out) << name;
  }
}

// Files of PyTorch's, in and out again: the same bytes, with idle cells and with all that its runtime adds.
TEST_F(ToolsCli, PyTorchsFilesComeBack) {
  for (const char* name :
       {"ScheduleGPipe_p4_v1_m8", "Schedule1F1B_p4_v1_m8", "ScheduleInterleaved1F1B_p4_v2_m8",
        "ScheduleInterleavedZeroBubble_p4_v2_m8", "ScheduleLoopedBFS_p4_v2_m8",
        "ScheduleZBVZeroBubble_p4_v2_m8", "ScheduleDualPipeV_p4_v2_m8"}) {
    SCOPED_TRACE(name);
    const std::string golden = std::string("tests/golden/pytorch_schedules/") + name;
    ASSERT_EQ(Piper({"import", "csv", golden + ".csv", "-o", At("in.piper")}).code, 0);
    EXPECT_EQ(Piper({"export", "csv", At("in.piper"), "--idle", "pytorch"}).out,
              test::Contents(golden + ".csv"));
    ASSERT_EQ(Piper({"import", "csv", golden + ".lowered.csv", "-o", At("in.piper")}).code, 0);
    EXPECT_EQ(Piper({"export", "csv", At("in.piper"), "--lowered"}).out,
              test::Contents(golden + ".lowered.csv"));
  }
  ASSERT_EQ(Piper({"import", "csv", "tests/golden/pytorch_schedules/ScheduleDualPipeV_p2_v2_m4.csv", "-o",
                   At("in.piper")})
                .code,
            0);
  const Outcome refused = Piper({"export", "csv", At("in.piper"), "--lowered", "--active-stages", "1"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("a step of two stages needs 2"), std::string::npos) << refused.err;
}

TEST_F(ToolsCli, PyTorchsDualPipeVRuns) {
  const std::string golden = "tests/golden/pytorch_schedules/ScheduleDualPipeV_p2_v2_m4.csv";
  ASSERT_EQ(Piper({"import", "csv", golden, "-o", At("imported.piper")}).code, 0);
  const Outcome outcome = Piper({"run", At("imported.piper"), "--verify", "--steps", "1"});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("f3&B1"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("bitwise equal"), std::string::npos) << outcome.out;
}

TEST_F(ToolsCli, BadCsvIsLocated) {
  Write("bad.csv", "0F0,0B0\n1F0,2F0garbage,1B0\n");
  Outcome outcome = Piper({"import", "csv", At("bad.csv"), "-o", At("never.piper")});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("bad.csv:2:8: error: 'garbage' behind the step [bad-csv]\n"), std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("hint: "), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(At("never.piper")));
  outcome = Piper({"import", "csv", At("bad.csv"), "--diagnostics-format=json"});
  EXPECT_FALSE(nlohmann::json::parse(outcome.err).empty());
  EXPECT_EQ(Piper({"import", "csv", At("missing.csv")}).code, 74);
  EXPECT_EQ(Piper({"import", "csv", "-"}, "").code, 1);
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"--waits"},
                                             {"--unshard"},
                                             {"--active-stages", "2"},
                                             {"--lowered", "--active-stages", "0"},
                                             {"--lowered", "--active-stages", "x"},
                                             {"--idle", "some"},
                                             {"--idle", "none", "--comms"}}) {
    std::vector<std::string> arguments = {"export", "csv", At("small.piper")};
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    EXPECT_EQ(Piper(arguments).code, 2) << wrong.back();
  }
  EXPECT_EQ(Piper({"export", "dot", At("small.piper"), "--graph", "picture"}).code, 2);
  EXPECT_EQ(Piper({"export", "csv", At("missing.piper")}).code, 74);
  EXPECT_EQ(Piper({"export", "csv", At("small.piper"), "-o", At("")}).code, 74);
}

TEST_F(ToolsCli, GraphsAreDot) {
  for (const char* graph : {"model", "dag"}) {
    const Outcome outcome = Piper({"export", "dot", "--graph", graph, At("small.piper")});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out.rfind("digraph ", 0), 0u) << outcome.out.substr(0, 200);
    ASSERT_EQ(Piper({"export", "dot", "--graph", graph, At("small.piper"), "-o", At("g.dot")}).code, 0);
    EXPECT_EQ(test::Contents(At("g.dot")), outcome.out);
  }
}

TEST_F(ToolsCli, SvgIsTheSamePictureEveryTime) {
  ASSERT_EQ(Piper({"run", At("small.piper"), "--no-timeline", "--svg", At("a.svg")}).code, 0);
  ASSERT_EQ(Piper({"run", At("small.piper"), "--no-timeline", "--svg", At("b.svg")}).code, 0);
  const std::string svg = test::Contents(At("a.svg"));
  EXPECT_EQ(svg, test::Contents(At("b.svg")));
  EXPECT_EQ(svg.rfind("<svg xmlns=", 0), 0u);
  for (const char* part : {">rank 0, 1<", ">rank 2, 3<", "forward, stage 0, microbatch 3", ">backward<"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(svg.find("class=\"send\""), std::string::npos);
  ASSERT_EQ(Piper({"run", At("small.piper"), "--expand", "--svg", At("a.svg"), "--comms"}).code, 0);
  const std::string expanded = test::Contents(At("a.svg"));
  for (const char* part : {">rank 3<", "class=\"send\"", "class=\"recv\"", "class=\"coll\""}) {
    EXPECT_NE(expanded.find(part), std::string::npos) << part;
  }
}

TEST_F(ToolsCli, TracesAreJson) {
  for (const char* execute : {"", "--execute"}) {
    std::vector<std::string> arguments = {"run", At("small.piper"), "--no-timeline", "--trace",
                                          At("trace.json")};
    if (*execute != '\0') arguments.push_back(execute);
    const Outcome outcome = Piper(arguments);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto trace = nlohmann::json::parse(test::Contents(At("trace.json")));
    const auto& events = trace.is_array() ? trace : trace["traceEvents"];
    EXPECT_GT(events.size(), 50u);
  }
  EXPECT_EQ(Piper({"run", At("small.piper"), "--trace", At("no/such/trace.json")}).code, 74);
}

// A dry run of several steps: their period is the step's own time, unless they overlap.
TEST_F(ToolsCli, RunTimesStepsBackToBack) {
  std::ofstream(At("overlapped.piper")) << R"(import std.gpt
import std.strategies
import std.topologies
model net = gpt.GPT(layers = 6, embed = 16, heads = 2, vocab = 32, seq = 8)
train {
  model net; data random(32); global_batch 16; optimizer adamw(lr = 1e-3); clip 1.0
  on topologies.local(ranks = 2); using strategies.zb2p_overlapped(p = 2, m = 8)
}
)";
  for (const char* name : {"small.piper", "overlapped.piper"}) {
    const Outcome outcome =
        Piper({"run", At(name), "--no-timeline", "--steps", "20", "--json", At("figures.json")});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find("20 steps back to back"), std::string::npos) << outcome.out;
    const auto figures = nlohmann::json::parse(test::Contents(At("figures.json")));
    const int64_t step = figures["step_time_ps"], period = figures["steps"]["period_ps"],
                  total = figures["steps"]["total_ps"];
    EXPECT_EQ(figures["steps"]["count"], 20);
    if (name[0] == 's') {
      EXPECT_EQ(period, step);
      EXPECT_EQ(total, 20 * step);
    } else {
      EXPECT_LT(period, step);
      EXPECT_LT(total, 20 * step);
      EXPECT_GT(total, 19 * period);
    }
  }
}

TEST_F(ToolsCli, VerifyIsBitwiseAndCatchesEachFault) {
  Outcome outcome = Piper({"run", At("small.piper"), "--no-timeline", "--verify", "--steps", "3"});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("bitwise equal to the single-device reference"), std::string::npos)
      << outcome.out;
  for (const char* fault : {"drop-accumulate", "swap-microbatch", "wrong-scale"}) {
    outcome =
        Piper({"run", At("small.piper"), "--no-timeline", "--verify", "--steps", "1", "--inject", fault});
    EXPECT_EQ(outcome.code, 1) << fault << outcome.out << outcome.err;
    EXPECT_NE(outcome.out.find("verify: DIFFERENT"), std::string::npos) << fault << outcome.out;
    EXPECT_NE(outcome.out.find("  largest: "), std::string::npos) << fault;
  }
  EXPECT_EQ(Piper({"run", At("small.piper"), "--verify", "--inject", "gremlin"}).code, 2);
}

TEST_F(ToolsCli, TestsRun) {
  Outcome outcome = Piper({"test", At("small.piper")});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_NE(outcome.out.find("tests passed"), std::string::npos) << outcome.out;
  Write("failing.piper",
        std::string(kSmall) +
            "test \"no bubble\" {\n  expect plan(net, strategies.gpipe(p = 4, m = 4)).bubble < 1 %\n}\n");
  outcome = Piper({"test", At("failing.piper"), "--filter", "no bubble"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.out.find("FAILED no bubble"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.err.find("failing.piper:38:"), std::string::npos) << outcome.err;
}

TEST_F(ToolsCli, FormattingIsIdempotentAndChecked) {
  Write("messy.piper", "let   x=1 // one\n\n\n\nlet y =x+ 1\n");
  Outcome outcome = Piper({"fmt", "--check", At("messy.piper"), At("small.piper")});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, At("messy.piper") + "\n");
  EXPECT_EQ(Piper({"fmt", At("messy.piper")}).code, 0);
  EXPECT_EQ(test::Contents(At("messy.piper")), "let x = 1  // one\n\nlet y = x + 1\n");
  EXPECT_EQ(Piper({"fmt", "--check", At("messy.piper")}).code, 0);
  EXPECT_EQ(Piper({"fmt", "-"}, "let  z=2\n").out, "let z = 2\n");
  EXPECT_EQ(Piper({"fmt", At("missing.piper")}).code, 74);
  Write("broken.piper", "let = = 3\n");
  EXPECT_EQ(Piper({"fmt", At("broken.piper")}).code, 1);
  EXPECT_EQ(test::Contents(At("broken.piper")), "let = = 3\n");
}

TEST_F(ToolsCli, EachStageCanBePrinted) {
  const struct {
    const char* stage;
    const char* part;
  } stages[] = {{"ast", "small.piper"},
                {"model", "cross_entropy"},
                {"dag", "layer"},
                {"program", "train role0"},
                {"cpp", "int main("}};
  for (const auto& [stage, part] : stages) {
    const Outcome outcome = Piperc({At("small.piper"), std::string("--emit=") + stage});
    EXPECT_EQ(outcome.code, 0) << stage << outcome.err;
    if (std::string(stage) != "ast") {
      EXPECT_NE(outcome.out.find(part), std::string::npos) << stage << "\n" << outcome.out.substr(0, 2000);
    }
    EXPECT_FALSE(outcome.out.empty()) << stage;
    EXPECT_EQ(Piperc({At("small.piper"), std::string("--emit=") + stage}).out, outcome.out)
        << stage << ": two runs differ";
  }
  Outcome outcome = Piperc({At("small.piper"), "--emit=cpp", "-o", At("out")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(test::Contents(At("out/src/role0.cpp")), "");
  EXPECT_FALSE(std::filesystem::exists(At("out/role0")));
}

TEST_F(ToolsCli, AForeignDirectoryIsRefused) {
  std::filesystem::create_directory(At("mine"));
  Write("mine/thesis.txt", "important");
  const Outcome outcome = Piperc({At("small.piper"), "--emit=cpp", "-o", At("mine")});
  EXPECT_EQ(outcome.code, 74);
  EXPECT_NE(outcome.err.find("was not written by piperc"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace piper::tools
