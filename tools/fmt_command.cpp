// `piper fmt FILES`: one layout for all `.piper` text.
#include <fmt/format.h>

#include <cstdio>

#include "frontend/formatter.h"
#include "frontend/parser.h"
#include "tools/commands.h"
#include "tools/exit_codes.h"
#include "tools/files.h"
#include "tools/terminal.h"

namespace piper::tools {
namespace {

void Declare(options::options_description& shown, options::options_description&) {
  shown.add_options()("check", "change nothing; exit 1 if a file is not formatted");
}

int Run(const options::variables_map& values) {
  const bool check = values.count("check") != 0;
  int code = kExitOk;
  auto worse = [&](int other) { code = std::max(code, other); };
  for (const std::string& path : values["input"].as<std::vector<std::string>>()) {
    Result<std::string> text = ReadFile(path, frontend::kMaxFileBytes);
    if (!text.ok()) {
      worse(Fail(kExitIo, text.error()));
      continue;
    }
    ir::SourceManager sources;
    ir::DiagnosticEngine diag(sources);
    const ir::FileId file = sources.Add(path == "-" ? "<stdin>" : path, *text);
    const std::optional<std::string> formatted = frontend::FormatSource(sources, file, diag);
    if (!diag.diagnostics().empty()) {
      const std::string report = diag.Render(ir::DiagnosticEngine::Format::kHuman, WantsColour(stderr));
      std::fwrite(report.data(), 1, report.size(), stderr);
    }
    if (!formatted) {
      worse(kExitInput);
    } else if (path == "-" && !check) {
      std::fwrite(formatted->data(), 1, formatted->size(), stdout);
    } else if (*formatted != *text) {
      if (check) {
        fmt::print("{}\n", path);
        worse(kExitInput);
      } else if (Status status = WriteFile(path, *formatted); !status.ok()) {
        worse(Fail(kExitIo, status.error()));
      }
    }
  }
  return code;
}

}  // namespace

Command FormatCommand() {
  return {"fmt", "FILES", "format files in place (- reads standard input)", Declare, Run};
}

}  // namespace piper::tools
