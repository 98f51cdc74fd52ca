// `piper check FILE`: everything that can be known before a run, and nothing printed if all is well.
#include "tools/commands.h"
#include "tools/exit_codes.h"
#include "tools/session.h"

namespace piper::tools {
namespace {

void Declare(options::options_description& shown, options::options_description&) {
  DeclareCommonOptions(shown);
}

int Run(const options::variables_map& values) {
  Session session(values);
  if (!session.usage_error().empty()) return Fail(kExitUsage, session.usage_error());
  if (std::optional<ir::Program> program = session.Load()) session.Plan(*program);
  return session.Finish();
}

}  // namespace

Command CheckCommand() {
  return {"check", "FILE", "parse, type-check, apply the directives, prove the plan; silent if all is well",
          Declare, Run};
}

}  // namespace piper::tools
