// Thread-local scratch of a fixed size, taken at a thread's first product or attention and kept until it
// ends.
#pragma once

#include <cstdint>
#include <string_view>

namespace piper::kernels {

// kGemmScratchBytes bytes for f32 and twice that for f64, aligned to 64 bytes; the process ends with a
// message if the system refuses them. Its contents do not survive the kernel that uses it.
float* ScratchF32();
double* ScratchF64();

// Whether a kernel of the registry uses the scratch: a plan then counts kGemmScratchBytes for the thread.
bool UsesScratch(std::string_view kernel);

// While it lives, the calling thread's f32 scratch is the caller's memory: kGemmScratchBytes bytes, aligned
// to 64, so that an executor's arena holds all that a step touches. nullptr changes nothing.
class LentScratch {
 public:
  explicit LentScratch(void* memory);
  ~LentScratch();
  LentScratch(const LentScratch&) = delete;
  LentScratch& operator=(const LentScratch&) = delete;

 private:
  float* before_;
};

}  // namespace piper::kernels
