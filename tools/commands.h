// The commands of `piper`, one file each.
#pragma once

#include "tools/command_line.h"

namespace piper::tools {

Command CheckCommand();
Command RunCommandDescription();
Command TestCommand();
Command FormatCommand();
Command ImportCsvCommand();
Command ExportCsvCommand();
Command ExportDotCommand();
Command ExportOrderCommand();

}  // namespace piper::tools
