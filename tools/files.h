// Whole files, for the commands: bounded reading, writing by a temporary name and rename.
#pragma once

#include <string>

#include "ir/support/result.h"

namespace piper::tools {

// A regular file (or standard input for "-") of at most `limit` bytes.
Result<std::string> ReadFile(const std::string& path, size_t limit);
// The file is complete or as it was before.
Status WriteFile(const std::string& path, const std::string& text);

}  // namespace piper::tools
