// What the commands share: the options that all of them have, the sources and diagnostics of one invocation,
// and the road from a file to a plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "frontend/frontend.h"
#include "ir/pipeline.h"
#include "ir/program/program.h"
#include "ir/support/diagnostics.h"
#include "ir/support/source.h"
#include "tools/command_line.h"

namespace piper::tools {

void DeclareDiagnosticsFormat(options::options_description& shown);
// --set, --train, --diagnostics-format.
void DeclareCommonOptions(options::options_description& shown);

// For commands that write a text: to the file that --output names, whole or not at all, else to standard
// output.
int WriteOutput(const options::variables_map& values, const std::string& text);

class Session {
 public:
  // Reads the common options; usage_error() is not empty if they make no sense.
  explicit Session(const options::variables_map& values);

  const std::string& usage_error() const { return usage_error_; }
  const std::string& path() const { return path_; }
  const frontend::LoadOptions& load_options() const { return load_; }

  std::optional<ir::Program> Load();
  std::optional<ir::Plan> Plan(const ir::Program& program);

  // Prints what has been reported so far, once; `code`, or 1 if there are errors.
  int Finish(int code = 0);

  ir::SourceManager& sources() { return sources_; }
  ir::DiagnosticEngine& diag() { return diag_; }

 private:
  ir::SourceManager sources_;
  ir::DiagnosticEngine diag_;
  std::string path_, usage_error_;
  frontend::LoadOptions load_;
  ir::DiagnosticEngine::Format format_ = ir::DiagnosticEngine::Format::kHuman;
};

}  // namespace piper::tools
