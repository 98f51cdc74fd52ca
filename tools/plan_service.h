// What `test` blocks of `.piper` files ask of the pipeline (frontend/test_runner.h): figures of a plan, and
// whether two plans learn the same.
#pragma once

#include "frontend/test_runner.h"

namespace piper::tools {

class PipelinePlanService : public frontend::PlanService {
 public:
  // step_time, bubble, busy, peak_memory, bytes, messages, ranks.
  std::optional<Figures> Plan(const ir::Program& program, ir::DiagnosticEngine& diag) override;
  // Two steps of both on random tokens. Bit for bit where both divide the batch alike and evaluate the same
  // expression; else losses and gradient norms within 1e-6 relative (docs/language.md, numerics).
  std::optional<bool> Learns(const ir::Program& a, const ir::Program& b, std::string* why,
                             ir::DiagnosticEngine& diag) override;
};

}  // namespace piper::tools
