// `piper test FILE`: runs the test blocks.
#include <fmt/format.h>

#include <boost/program_options/value_semantic.hpp>

#include "frontend/test_runner.h"
#include "tools/commands.h"
#include "tools/exit_codes.h"
#include "tools/plan_service.h"
#include "tools/session.h"

namespace piper::tools {
namespace {

void Declare(options::options_description& shown, options::options_description&) {
  DeclareCommonOptions(shown);
  shown.add_options()("filter", options::value<std::string>()->default_value("")->value_name("TEXT"),
                      "only tests whose name contains TEXT");
}

int Run(const options::variables_map& values) {
  Session session(values);
  if (!session.usage_error().empty()) return Fail(kExitUsage, session.usage_error());
  PipelinePlanService plans;
  const auto results =
      frontend::RunTests(session.path(), session.load_options(), values["filter"].as<std::string>(), plans,
                         session.sources(), session.diag());
  if (!results) return session.Finish(kExitInput);
  const std::string& filter = values["filter"].as<std::string>();
  if (results->empty() && !filter.empty() && !session.diag().HasErrors()) {
    return Fail(kExitUsage,
                fmt::format("--filter {}: no test of '{}' has that in its name", filter, session.path()));
  }
  size_t passed = 0;
  for (const frontend::TestResult& result : *results) {
    fmt::print("{} {}\n", result.passed ? "ok    " : "FAILED", result.name);
    passed += result.passed ? 1 : 0;
  }
  fmt::print("{} of {} tests passed\n", passed, results->size());
  std::fflush(stdout);
  return session.Finish(passed == results->size() ? kExitOk : kExitInput);
}

}  // namespace

Command TestCommand() { return {"test", "FILE", "run the file's test blocks", Declare, Run}; }

}  // namespace piper::tools
