#include "tools/session.h"

#include <fmt/format.h>

#include <boost/program_options/value_semantic.hpp>
#include <cstdio>

#include "tools/exit_codes.h"
#include "tools/files.h"
#include "tools/terminal.h"

namespace piper::tools {

void DeclareDiagnosticsFormat(options::options_description& shown) {
  shown.add_options()("diagnostics-format",
                      options::value<std::string>()->default_value("human")->value_name("FORMAT"),
                      "human, json or sarif; to standard error");
}

void DeclareCommonOptions(options::options_description& shown) {
  // clang-format off
  shown.add_options()
      ("set", options::value<std::vector<std::string>>()->composing()->value_name("NAME=VALUE"),
       "replace a top-level let, an argument of the strategy or a number of the train block")
      ("train", options::value<std::string>()->value_name("NAME"), "which train block, where there are several");
  // clang-format on
  DeclareDiagnosticsFormat(shown);
}

int WriteOutput(const options::variables_map& values, const std::string& text) {
  const std::string path = values.count("output") != 0 ? values["output"].as<std::string>() : "-";
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return kExitOk;
  }
  const Status status = WriteFile(path, text);
  return status.ok() ? kExitOk : Fail(kExitIo, status.error());
}

Session::Session(const options::variables_map& values) : diag_(sources_) {
  if (values.count("input") != 0) {
    if (const auto* path = boost::any_cast<std::string>(&values["input"].value())) path_ = *path;
  }
  if (path_.empty()) usage_error_ = "the name of the file is empty";
  if (values.count("set") != 0) load_.overrides = values["set"].as<std::vector<std::string>>();
  for (const std::string& text : load_.overrides) {
    if (text.find('=') == std::string::npos || text[0] == '=') {
      usage_error_ = fmt::format("--set {}: expected NAME=VALUE", text);
    }
  }
  if (values.count("train") != 0) load_.run = values["train"].as<std::string>();
  const std::string& format = values["diagnostics-format"].as<std::string>();
  if (format == "json") {
    format_ = ir::DiagnosticEngine::Format::kJson;
  } else if (format == "sarif") {
    format_ = ir::DiagnosticEngine::Format::kSarif;
  } else if (format != "human") {
    usage_error_ = fmt::format("--diagnostics-format {}: expected human, json or sarif", format);
  }
}

std::optional<ir::Program> Session::Load() {
  if (path_ == "-" && !load_.text.has_value()) {
    Result<std::string> text = ReadFile("-", size_t{16} << 20);
    if (!text.ok()) {
      diag_.Error({}, ir::DiagKind::kCannotReadFile, text.error());
      return std::nullopt;
    }
    load_.text = std::move(*text);
  }
  return frontend::LoadProgram(path_, load_, sources_, diag_);
}

std::optional<ir::Plan> Session::Plan(const ir::Program& program) { return ir::BuildPlan(program, diag_); }

int Session::Finish(int code) {
  const bool machine = format_ != ir::DiagnosticEngine::Format::kHuman;
  if (machine || !diag_.diagnostics().empty()) {
    const std::string text = diag_.Render(format_, !machine && WantsColour(stderr));
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
  // A main file that cannot be read is no error in the input.
  for (const ir::Diagnostic& diagnostic : diag_.diagnostics()) {
    if (diagnostic.kind == ir::DiagKind::kCannotReadFile && !diagnostic.range.valid()) return kExitIo;
  }
  return diag_.HasErrors() && code == 0 ? kExitInput : code;
}

}  // namespace piper::tools
