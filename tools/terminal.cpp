#include "tools/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace piper::tools {

bool WantsColour(std::FILE* stream) {
  const char* no_colour = std::getenv("NO_COLOR");
  if (no_colour != nullptr && *no_colour != '\0') return false;
  const char* terminal = std::getenv("TERM");
  if (terminal == nullptr || std::string_view(terminal) == "dumb") return false;
  return isatty(fileno(stream)) != 0;
}

}  // namespace piper::tools
