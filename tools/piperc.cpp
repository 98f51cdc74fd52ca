// The main of `piperc`: a `.piper` file becomes readable C++ and executables, or one of the stages in between
// as text.
#include <fmt/format.h>

#include <boost/program_options/value_semantic.hpp>
#include <cstdio>

#include "codegen/body_text.h"
#include "codegen/compile.h"
#include "codegen/emit.h"
#include "codegen/output_directory.h"
#include "codegen/process.h"
#include "codegen/toolchain.h"
#include "frontend/parser.h"
#include "ir/dag/dag_text.h"
#include "ir/directives/directives.h"
#include "ir/lower/sample_job.h"
#include "tools/command_line.h"
#include "tools/exit_codes.h"
#include "tools/files.h"
#include "tools/job_dump.h"
#include "tools/session.h"

namespace piper::tools {
namespace {

void Declare(options::options_description& shown, options::options_description& hidden) {
  // clang-format off
  shown.add_options()
      ("output,o", options::value<std::string>()->value_name("DIR"), "directory for sources and executables")
      ("emit", options::value<std::string>()->value_name("STAGE"),
       "print ast, model, dag or program; cpp: only the sources, to DIR or printed")
      ("target-cpu", options::value<std::string>()->default_value("native")->value_name("CPU"),
       "what to compile for (-march); checked when the program starts")
      ("jobs,j", options::value<int>()->value_name("N"), "compilers at a time (default: one a processor)");
  // clang-format on
  DeclareCommonOptions(shown);
  hidden.add_options()("toolchain", options::value<std::string>());
}

int Print(const std::string& text) {
  const bool whole =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return whole ? kExitOk : Fail(kExitIo, "cannot write to standard output");
}

int EmitAst(Session& session) {
  Result<std::string> text = ReadFile(session.path(), frontend::kMaxFileBytes);
  if (!text.ok()) return Fail(kExitIo, text.error());
  frontend::Ast ast;
  const ir::FileId file = session.sources().Add(session.path(), *text);
  const frontend::File* parsed = frontend::ParseFile(session.sources(), file, ast, session.diag());
  if (const int code = session.Finish(); code != kExitOk) return code;
  return Print(frontend::DumpAst(*parsed, ast.names));
}

int WriteSources(const codegen::Emitted& emitted, codegen::OutputDirectory& directory) {
  for (const codegen::EmittedFile& file : emitted.files) {
    if (Status status = directory.Write(file.path, file.text); !status.ok())
      return Fail(kExitIo, status.error());
  }
  return kExitOk;
}

std::vector<std::string> Paths(const codegen::Emitted& emitted, bool executables) {
  std::vector<std::string> paths;
  for (const codegen::EmittedFile& file : emitted.files) paths.push_back(file.path);
  if (executables) {
    for (const codegen::EmittedExecutable& executable : emitted.executables) paths.push_back(executable.name);
  }
  return paths;
}

struct CompileOptions {
  std::string output, emit, target_cpu;
  int jobs = 1;
};

// From a plan to the directory.
int EmitCode(const ir::Program& program, const ir::Plan& plan, const codegen::Toolchain& toolchain,
             const CompileOptions& options) {
  const runtime::Job& job = plan.job->job();
  const ir::SampleJob sample = ir::LowerSample(program.model, job);
  codegen::DetailIndex detail, sample_detail;
  detail.Add(plan.regions);
  sample_detail.Add(sample.regions);

  codegen::EmitInput input;
  input.job = &job;
  input.sample = sample.job != nullptr ? &sample.job->job() : nullptr;
  input.detail = [&](const runtime::RankProgram& role, uint32_t body) {
    return detail.Find(role, role.bodies[body]);
  };
  input.sample_detail = [&](const runtime::RankProgram& role, uint32_t body) {
    return sample_detail.Find(role, role.bodies[body]);
  };
  input.target_cpu = options.target_cpu;
  input.include_directory = toolchain.include_directory;
  input.libraries = toolchain.libraries;
  const codegen::Emitted emitted = codegen::Emit(input);

  const bool only_sources = options.emit == "cpp";
  if (only_sources && options.output.empty()) {
    std::string text;
    for (const codegen::EmittedFile& file : emitted.files)
      text += fmt::format("// ==== {}\n{}\n", file.path, file.text);
    return Print(text);
  }
  Result<codegen::OutputDirectory> directory = codegen::OutputDirectory::Open(options.output);
  if (!directory.ok()) return Fail(kExitIo, directory.error());
  const std::string key =
      (only_sources ? "sources " : "") + codegen::BuildKey(emitted, toolchain, options.target_cpu);
  if (directory->committed_key() == key) return kExitOk;  // exactly this is there
  if (const int code = WriteSources(emitted, *directory); code != kExitOk) return code;
  if (!only_sources) {
    Status status =
        codegen::CompileEmitted(emitted, toolchain, options.target_cpu, directory->staging(), options.jobs);
    if (!status.ok()) {
      const int signal = codegen::StopSignal();
      return Fail(signal != 0 ? 128 + signal : kExitIo, status.error());
    }
  }
  if (Status status = directory->Commit(Paths(emitted, !only_sources), key); !status.ok()) {
    return Fail(kExitIo, status.error());
  }
  if (sample.job == nullptr && !only_sources) {
    fmt::print(stderr, "piperc: note: no sampling program: {}\n", sample.why);
  }
  return kExitOk;
}

int Run(const options::variables_map& values) {
  Session session(values);
  if (!session.usage_error().empty()) return Fail(kExitUsage, session.usage_error());
  CompileOptions options;
  if (values.count("output") != 0) options.output = values["output"].as<std::string>();
  if (values.count("emit") != 0) options.emit = values["emit"].as<std::string>();
  options.target_cpu = values["target-cpu"].as<std::string>();
  options.jobs = values.count("jobs") != 0 ? values["jobs"].as<int>() : codegen::AvailableProcessors();
  const std::string& emit = options.emit;
  if (!emit.empty() && emit != "ast" && emit != "model" && emit != "dag" && emit != "program" &&
      emit != "cpp") {
    return Fail(kExitUsage, fmt::format("--emit={}: expected ast, model, dag, program or cpp", emit));
  }
  if (emit.empty() && options.output.empty()) return Fail(kExitUsage, "no output directory given: -o DIR");
  if (!codegen::IsTargetCpu(options.target_cpu)) {
    return Fail(kExitUsage, fmt::format("--target-cpu={}: not the name of a processor", options.target_cpu));
  }
  if (options.jobs < 1) return Fail(kExitUsage, "--jobs: expected a number of at least 1");

  if (emit == "ast") return EmitAst(session);
  std::optional<ir::Program> program = session.Load();
  if (!program) return session.Finish(kExitInput);
  if (emit == "model") {
    const int code = session.Finish();
    return code == kExitOk ? Print(program->model.ToText()) : code;
  }
  if (emit == "dag") {
    const std::optional<ir::BuiltDag> built = ir::BuildDag(*program, false, session.diag());
    const int code = session.Finish(built ? kExitOk : kExitInput);
    return code == kExitOk ? Print(ir::DagToText(built->dag, &session.sources())) : code;
  }
  std::optional<ir::Plan> plan = session.Plan(*program);
  if (const int code = session.Finish(plan ? kExitOk : kExitInput); code != kExitOk) return code;
  if (emit == "program") return Print(DumpJob(plan->job->job()));

  Result<codegen::Toolchain> toolchain = values.count("toolchain") != 0
                                             ? codegen::ReadToolchain(values["toolchain"].as<std::string>())
                                             : codegen::FindToolchain();
  if (!toolchain.ok()) return Fail(kExitIo, toolchain.error());
  return EmitCode(*program, *plan, *toolchain, options);
}

}  // namespace
}  // namespace piper::tools

int main(int argc, char** argv) {
  using namespace piper::tools;
  return RunCommandLine("piperc", "",
                        {{"", "FILE", "compiles a .piper file to one executable a role", Declare, Run}}, argc,
                        argv);
}
