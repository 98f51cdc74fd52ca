// What the terminal can show. NO_COLOR (any value but the empty one) wins over everything; a stream that is
// no terminal, or TERM=dumb, has no colour.
#pragma once

#include <cstdio>

namespace piper::tools {

bool WantsColour(std::FILE* stream);

}  // namespace piper::tools
