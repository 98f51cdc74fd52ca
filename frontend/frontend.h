// The front end's door: text of a `.piper` file -> a checked ir::Program.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/program/program.h"
#include "ir/support/diagnostics.h"
#include "ir/support/source.h"

namespace piper::frontend {

struct LoadOptions {
  // `name=expression`: replaces a top-level let of the main file, an argument of `using s(..)`, or a number
  // of the train block, whichever is there.
  std::vector<std::string> overrides;
  // The main file's text, if it does not come from the file system (`piper check -`).
  std::optional<std::string> text;
  // Which `train NAME { .. }` block; empty: the only one, or the one without a name.
  std::string run;
};

// Parses the file and what it imports, evaluates the train block, and everything that it needs. Reports what
// is wrong anywhere in the files, not only in what the train block reaches. Nothing after an error was
// reported. Bounded: any input is accepted or refused in about a second.
std::optional<ir::Program> LoadProgram(const std::string& path, const LoadOptions& options,
                                       ir::SourceManager& sources, ir::DiagnosticEngine& diag);

// Checks a file that need not have a train block (a library): everything up to the values of its lets and
// models.
bool CheckFile(const std::string& path, const LoadOptions& options, ir::SourceManager& sources,
               ir::DiagnosticEngine& diag);

}  // namespace piper::frontend
