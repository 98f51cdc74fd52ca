// The instruction sets that the kernels are compiled for, and the choice among them. All give the same bits;
// the choice is made once, from the processor and from PIPER_ISA=plain|v3|v4 (for tests and comparisons).
#pragma once

#include <string_view>

namespace piper::kernels {

// plain: the compiler's default target, portable code. v3: x86-64-v3 (AVX2, FMA). v4: x86-64-v4 (AVX-512).
enum class Isa { kPlain, kV3, kV4 };

std::string_view IsaName(Isa isa);

// Compiled in, and the processor has it.
bool IsaAvailable(Isa isa);

Isa ActiveIsa();

// Switches all kernels; false (and no change) if the instruction set is not available. Not while kernels run.
bool SelectIsa(Isa isa);

}  // namespace piper::kernels
