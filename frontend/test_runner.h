// Runs the `test` blocks of a file: evaluates each for every combination of its `for` clauses, checks what it
// expects. Plans are made by a PlanService, which `tools/` implements over the whole pipeline; the front end
// knows none of it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "frontend/frontend.h"
#include "ir/program/program.h"
#include "ir/support/diagnostics.h"
#include "ir/support/source.h"

namespace piper::frontend {

class PlanService {
 public:
  virtual ~PlanService() = default;

  // What a test may read of a plan, by name: step_time (time), bubble and busy (fractions), peak_memory and
  // bytes (bytes), messages, ranks (plain numbers); fractions and plain numbers have UnitKind::kNone.
  using Figures = std::vector<std::pair<std::string, ir::Quantity>>;
  // Lowers and simulates. Nothing after an error was reported to `diag`.
  virtual std::optional<Figures> Plan(const ir::Program& program, ir::DiagnosticEngine& diag) = 0;
  // Runs both numerically and compares by the numerics rules; false, with `why` set, if they differ; nothing
  // after an error was reported.
  virtual std::optional<bool> Learns(const ir::Program& a, const ir::Program& b, std::string* why,
                                     ir::DiagnosticEngine& diag) = 0;
};

struct TestResult {
  std::string name;
  ir::SourceRange range;
  bool passed = false;
};

// Runs the tests of the main file whose name contains `filter` (empty: all), in file order. Failures are
// diagnostics (kExpectFailed and whatever evaluation reports). Nothing if the file does not elaborate.
std::optional<std::vector<TestResult>> RunTests(const std::string& path, const LoadOptions& options,
                                                const std::string& filter, PlanService& plans,
                                                ir::SourceManager& sources, ir::DiagnosticEngine& diag);

}  // namespace piper::frontend
