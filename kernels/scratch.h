// Thread-local scratch of a fixed size, taken at a thread's first product or attention and kept until it
// ends.
#pragma once

#include <cstdint>

namespace piper::kernels {

// kGemmScratchBytes bytes for f32 and twice that for f64, aligned to 64 bytes; the process ends with a
// message if the system refuses them. Its contents do not survive the kernel that uses it.
float* ScratchF32();
double* ScratchF64();

}  // namespace piper::kernels
