// `piper import csv FILE`: a schedule that PyTorch's pipelining wrote -> a `.piper` file.
#include <boost/program_options/value_semantic.hpp>
#include <cstdio>

#include "ir/schedule_csv/check.h"
#include "ir/schedule_csv/parse.h"
#include "ir/schedule_csv/to_piper.h"
#include "tools/commands.h"
#include "tools/exit_codes.h"
#include "tools/files.h"
#include "tools/known_schedule.h"
#include "tools/session.h"

namespace piper::tools {
namespace {

void Declare(options::options_description& shown, options::options_description&) {
  shown.add_options()("output,o", options::value<std::string>()->value_name("FILE"),
                      "the .piper file (default: standard output)");
  shown.add_options()("literals",
                      "write every step out, also where a schedule of the library lists the same");
  DeclareDiagnosticsFormat(shown);
}

// "dir/zbv.csv" -> "zbv".
std::string Stem(const std::string& path) {
  std::string stem = path.substr(path.rfind('/') + 1);
  if (stem.size() > 4 && stem.substr(stem.size() - 4) == ".csv") stem.resize(stem.size() - 4);
  return stem == "-" ? "schedule" : stem;
}

int Run(const options::variables_map& values) {
  Session session(values);
  if (!session.usage_error().empty()) return Fail(kExitUsage, session.usage_error());
  Result<std::string> text = ReadFile(session.path(), size_t{16} << 20);
  if (!text.ok()) return Fail(kExitIo, text.error());
  const ir::FileId file =
      session.sources().Add(session.path() == "-" ? "<stdin>" : session.path(), std::move(*text));
  std::string piper;
  if (std::optional<ir::schedule_csv::Table> table = ir::schedule_csv::Parse(file, session.diag())) {
    if (std::optional<ir::schedule_csv::Extent> extent =
            ir::schedule_csv::Check(*table, file, session.diag())) {
      piper = ir::schedule_csv::ToPiper(*table, *extent, Stem(session.path()),
                                        values.count("literals") != 0 ? "" : KnownSchedule(*table, *extent));
    }
  }
  if (const int code = session.Finish(); code != kExitOk) return code;
  return WriteOutput(values, piper);
}

}  // namespace

Command ImportCsvCommand() {
  return {"import csv", "FILE", "a pipeline schedule of PyTorch's, as CSV, becomes a .piper file", Declare,
          Run};
}

}  // namespace piper::tools
