#include "kernels/scratch.h"

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "kernels/gemm.h"

namespace piper::kernels {
namespace {

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<void, Free>;

void* Take(Buffer& buffer, size_t bytes) {
  if (buffer == nullptr) {
    buffer.reset(std::aligned_alloc(4096, bytes));
    if (buffer == nullptr) {
      std::fprintf(stderr, "out of memory: %zu bytes of kernel scratch\n", bytes);
      std::abort();
    }
  }
  return buffer.get();
}

thread_local float* lent = nullptr;

}  // namespace

bool UsesScratch(std::string_view kernel) {
  return kernel == "gemm" || kernel == "gemm_batched" || kernel == "attention_forward" ||
         kernel == "attention_backward";
}

LentScratch::LentScratch(void* memory) : before_(lent) {
  if (memory != nullptr) lent = static_cast<float*>(memory);
}

LentScratch::~LentScratch() { lent = before_; }

float* ScratchF32() {
  if (lent != nullptr) return lent;
  thread_local Buffer buffer;
  return static_cast<float*>(Take(buffer, static_cast<size_t>(kGemmScratchBytes)));
}

double* ScratchF64() {
  thread_local Buffer buffer;
  return static_cast<double*>(Take(buffer, 2 * static_cast<size_t>(kGemmScratchBytes)));
}

}  // namespace piper::kernels
