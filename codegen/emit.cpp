#include "codegen/emit.h"

#include <fmt/format.h>

#include "codegen/body_text.h"
#include "codegen/build_file.h"
#include "codegen/job_text.h"
#include "codegen/program_text.h"
#include "codegen/text.h"
#include "ir/support/result.h"

namespace piper::codegen {
namespace {

// Users of functions, as BodySet counts them: roles, then sampling.
constexpr uint32_t kSampleUser = UINT32_MAX;

constexpr const char* kBanner = "// Printed by piperc; edit the .piper file instead.\n";

constexpr const char* kFunctionNames =
    "using runtime::BeginCall;\n"
    "using runtime::BodyContext;\n"
    "using runtime::Input;\n"
    "using runtime::Key;\n"
    "using runtime::Output;\n"
    "using runtime::Scratch;\n";

constexpr const char* kTargetSource = R"(
// Compiled with -march, as all the rest: what this program needs of the processor.
)"
                                      "#include \"runtime/processor_target.h\"\n"
                                      R"(
namespace piper::generated {

extern const runtime::FeatureSet kTargetFeatures;
constexpr runtime::FeatureSet kFeatures = runtime::CompiledFeatures();
const runtime::FeatureSet kTargetFeatures = kFeatures;

}  // namespace piper::generated
)";

constexpr const char* kStartSource = R"(
// The one source that is compiled without -march: it looks at the processor before anything else runs.
)"
                                     "#include \"runtime/processor.h\"\n"
                                     R"(
namespace piper::generated {{

extern const runtime::FeatureSet kTargetFeatures;
int Run(int argc, char** argv);

}}  // namespace piper::generated

int main(int argc, char** argv) {{
  using piper::generated::kTargetFeatures;
  const int refused =
      piper::runtime::CheckTarget({}, kTargetFeatures, piper::runtime::ProcessorFeatures(), stderr);
  return refused != 0 ? refused : piper::generated::Run(argc, argv);
}}
)";

struct Emitter {
  const EmitInput& input;
  Emitted result;
  BodySet bodies;
  // function position of each body: [program order as visited][body]
  std::vector<std::vector<size_t>> train_functions, eval_functions;
  std::vector<size_t> sample_functions;

  void Collect();
  bool Shared(const BodySet::Function& f) const { return f.users.size() > 1; }
  std::vector<std::string> Expressions(const runtime::RankProgram& program,
                                       const std::vector<size_t>& functions) const;
  std::string OwnFunctions(uint32_t user) const;
  bool AnyShared() const;
  void AddFile(std::string path, std::string text) {
    result.files.push_back({std::move(path), std::move(text)});
  }
  void AddExecutable(const std::string& name);
  void BodiesFiles();
  void JobFiles();
  void RoleFile(uint32_t role);
  void SampleFile();
  void TrainFile();
};

void Emitter::Collect() {
  auto add = [&](const runtime::RankProgram& program, const BodyDetail& detail, uint32_t user) {
    std::vector<size_t> functions;
    for (uint32_t i = 0; i < program.bodies.size(); ++i) {
      functions.push_back(
          bodies.Add(program, program.bodies[i], detail ? detail(program, i) : nullptr, user));
    }
    return functions;
  };
  const runtime::Job& job = *input.job;
  for (uint32_t r = 0; r < job.train.size(); ++r)
    train_functions.push_back(add(job.train[r], input.detail, r));
  for (uint32_t r = 0; r < job.eval.size(); ++r) eval_functions.push_back(add(job.eval[r], input.detail, r));
  if (input.sample != nullptr) {
    sample_functions = add(input.sample->train[0], input.sample_detail, kSampleUser);
  }
}

std::vector<std::string> Emitter::Expressions(const runtime::RankProgram& program,
                                              const std::vector<size_t>& functions) const {
  std::vector<std::string> expressions;
  for (size_t i = 0; i < functions.size(); ++i) {
    expressions.push_back(
        BodyFunctionExpression(program, program.bodies[i], bodies.functions()[functions[i]].name));
  }
  return expressions;
}

std::string Emitter::OwnFunctions(uint32_t user) const {
  std::string text;
  for (const BodySet::Function& f : bodies.functions()) {
    if (!Shared(f) && f.users.contains(user)) text += f.text + '\n';
  }
  return text;
}

bool Emitter::AnyShared() const {
  for (const BodySet::Function& f : bodies.functions()) {
    if (Shared(f)) return true;
  }
  return false;
}

void Emitter::AddExecutable(const std::string& name) {
  EmittedExecutable executable{name,
                               {"src/" + name + ".cpp", "src/job.cpp", "src/start.cpp", "src/target.cpp"}};
  if (AnyShared() && name != "train")
    executable.sources.insert(executable.sources.begin() + 1, "src/bodies.cpp");
  result.executables.push_back(std::move(executable));
}

void Emitter::BodiesFiles() {
  if (!AnyShared()) return;
  std::string header = fmt::format(
      "// The (region, pass) functions that several executables use. {}#pragma once\n\n"
      "#include \"runtime/body.h\"\n\n"
      "namespace piper::generated {{\n\n",
      std::string_view(kBanner).substr(3));
  std::string source = fmt::format(
      "{}#include \"bodies.h\"\n\n#include \"kernels/kernels.h\"\n\nnamespace piper::generated {{\n\n{}\n",
      kBanner, kFunctionNames);
  for (const BodySet::Function& f : bodies.functions()) {
    if (!Shared(f)) continue;
    header += fmt::format("void {}(runtime::{});\n", f.name, f.parameters);
    source += f.text + '\n';
  }
  AddFile("src/bodies.h", header + "\n}  // namespace piper::generated\n");
  AddFile("src/bodies.cpp", source + "}  // namespace piper::generated\n");
}

void Emitter::JobFiles() {
  AddFile("src/job.h",
          fmt::format("// What is the same on every rank. {}#pragma once\n\n"
                      "#include <span>\n\n"
                      "#include \"runtime/program.h\"\n\n"
                      "namespace piper::generated {{\n\n"
                      "// The job, with the programs that an executable has.\n"
                      "runtime::Job MakeTrainJob(std::span<const runtime::RankProgram> train,\n"
                      "                          std::span<const runtime::RankProgram> eval);\n\n"
                      "}}  // namespace piper::generated\n",
                      std::string_view(kBanner).substr(3)));
  AddFile("src/job.cpp", fmt::format("{}#include \"job.h\"\n\nnamespace piper::generated {{\n\n"
                                     "using namespace runtime;  // NOLINT: tables of its types\n\n"
                                     "{}\n}}  // namespace piper::generated\n",
                                     kBanner, JobText(*input.job, "Train")));
}

// The programs of all roles as this executable sees them: its own in full.
std::string RoleArray(std::span<const runtime::RankProgram> programs, uint32_t role, const char* kind) {
  std::string text = fmt::format("// clang-format off\nconstexpr RankProgram k{}Roles[] = {{\n", kind);
  for (uint32_t r = 0; r < programs.size(); ++r) {
    text +=
        r == role ? fmt::format("    k{}Program,\n", kind) : fmt::format("    k{}Role{}Program,\n", kind, r);
  }
  return text + "};\n// clang-format on\n";
}

void Emitter::RoleFile(uint32_t role) {
  const runtime::Job& job = *input.job;
  const std::string name = job.train[role].name;
  // The executable's name is a path: lowering chose it, the user did not.
  PIPER_CHECK(name == Word(name) && name != "train" && name != "sample", name);
  std::string ranks;
  for (const runtime::RankRow& row : job.train[role].ranks) {
    if (ranks.size() > 60) {
      ranks += " ..";
      break;
    }
    ranks += fmt::format(" {}", row.rank);
  }
  std::string text =
      fmt::format("// Role {}: rank{}{}. {}", role, job.train[role].ranks.size() == 1 ? "" : "s", ranks,
                  std::string_view(kBanner).substr(3));
  if (AnyShared()) text += "#include \"bodies.h\"\n";
  text +=
      "#include \"job.h\"\n#include \"kernels/kernels.h\"\n#include \"runtime/body.h\"\n#include "
      "\"runtime/main.h\"\n\nnamespace piper::generated {\nnamespace {\n\n"
      "using namespace runtime;  // NOLINT: tables of its types\n\n";
  text += OwnFunctions(role);
  auto programs = [&](std::span<const runtime::RankProgram> all,
                      const std::vector<std::vector<size_t>>& functions, const char* kind) {
    text += fmt::format("// ---- {} ----\n\n", kind);
    text += ProgramText(all[role], kind, Expressions(all[role], functions[role]), job.strings) + '\n';
    for (uint32_t r = 0; r < all.size(); ++r) {
      if (r != role) text += OutlineText(all[r], fmt::format("{}Role{}", kind, r)) + '\n';
    }
    text += RoleArray(all, role, kind) + '\n';
  };
  programs(job.train, train_functions, "Train");
  if (!job.eval.empty()) programs(job.eval, eval_functions, "Eval");
  text += fmt::format(
      "}}  // namespace\n\n"
      "int Run(int argc, char** argv);\n"
      "int Run(int argc, char** argv) {{ return RunMain(MakeTrainJob(kTrainRoles, {}), {}, argc, argv); "
      "}}\n\n"
      "}}  // namespace piper::generated\n",
      job.eval.empty() ? "{}" : "kEvalRoles", role);
  AddFile("src/" + name + ".cpp", text);
  AddExecutable(name);
}

void Emitter::SampleFile() {
  if (input.sample == nullptr) return;
  const runtime::Job& job = *input.sample;
  std::string text =
      fmt::format("// Sampling: one rank, forward only. {}", std::string_view(kBanner).substr(3));
  if (AnyShared()) text += "#include \"bodies.h\"\n";
  text +=
      "#include \"kernels/kernels.h\"\n#include \"runtime/body.h\"\n#include \"runtime/main.h\"\n\n"
      "namespace piper::generated {\n\nusing namespace runtime;  // NOLINT: tables of its types\n\n";
  text += JobText(job, "Sample") + "\nnamespace {\n\n" + OwnFunctions(kSampleUser);
  text += ProgramText(job.train[0], "Sample", Expressions(job.train[0], sample_functions), job.strings);
  text +=
      "\nconstexpr RankProgram kSampleRoles[] = {kSampleProgram};\n\n}  // namespace\n\n"
      "int Run(int argc, char** argv);\n"
      "int Run(int argc, char** argv) { return RunSample(MakeSampleJob(kSampleRoles, {}), argc, argv); }\n\n"
      "}  // namespace piper::generated\n";
  AddFile("src/sample.cpp", text);
  AddExecutable("sample");
}

void Emitter::TrainFile() {
  const runtime::Job& job = *input.job;
  std::string text =
      fmt::format("// Starts the executable of each rank's role. {}", std::string_view(kBanner).substr(3));
  text +=
      "#include \"job.h\"\n#include \"runtime/main.h\"\n\nnamespace piper::generated {\nnamespace {\n\n"
      "using namespace runtime;  // NOLINT: tables of its types\n\n";
  for (uint32_t r = 0; r < job.train.size(); ++r) {
    text += OutlineText(job.train[r], fmt::format("TrainRole{}", r)) + '\n';
  }
  text += RoleArray(job.train, runtime::kNone, "Train");
  text +=
      "\n}  // namespace\n\n"
      "int Run(int argc, char** argv);\n"
      "int Run(int argc, char** argv) { return RunTrain(MakeTrainJob(kTrainRoles, {}), argc, argv); }\n\n"
      "}  // namespace piper::generated\n";
  AddFile("src/train.cpp", text);
  AddExecutable("train");
}

}  // namespace

Emitted Emit(const EmitInput& input) {
  PIPER_CHECK(input.job != nullptr && !input.job->train.empty());
  Emitter emitter{input, {}, {}, {}, {}, {}};
  emitter.Collect();
  emitter.BodiesFiles();
  emitter.JobFiles();
  for (uint32_t r = 0; r < input.job->train.size(); ++r) emitter.RoleFile(r);
  emitter.SampleFile();
  emitter.TrainFile();
  emitter.AddFile("src/target.cpp", std::string(kBanner) + (kTargetSource + 1));
  std::string start =
      std::string(kBanner) + fmt::format(fmt::runtime(kStartSource + 1), StringLiteral(input.target_cpu));
  emitter.AddFile("src/start.cpp", start);
  emitter.result.baseline_sources = {"src/start.cpp"};
  emitter.AddFile("CMakeLists.txt", BuildFileText(input, emitter.result));
  return std::move(emitter.result);
}

}  // namespace piper::codegen
