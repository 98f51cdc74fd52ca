// The main of `piper`.
#include "tools/commands.h"

int main(int argc, char** argv) {
  using namespace piper::tools;
  return RunCommandLine("piper",
                        "checks, runs, tests, formats and exchanges .piper files; piperc compiles them",
                        {CheckCommand(), RunCommandDescription(), TestCommand(), FormatCommand(),
                         ImportCsvCommand(), ExportCsvCommand(), ExportDotCommand(), ExportOrderCommand()},
                        argc, argv);
}
