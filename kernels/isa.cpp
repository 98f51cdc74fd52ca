#include "kernels/isa.h"

#include <cstdio>
#include <cstdlib>

#include "kernels/kernel.h"

namespace piper::kernels {

namespace isa_plain {
extern const internal::KernelEntry* const kernel_table[];
}
#if PIPER_KERNELS_X86
namespace isa_v3 {
extern const internal::KernelEntry* const kernel_table[];
}
namespace isa_v4 {
extern const internal::KernelEntry* const kernel_table[];
}
#endif

namespace {

const internal::KernelEntry* const* TableOf(Isa isa) {
#if PIPER_KERNELS_X86
  if (isa == Isa::kV4) return isa_v4::kernel_table;
  if (isa == Isa::kV3) return isa_v3::kernel_table;
#endif
  static_cast<void>(isa);
  return isa_plain::kernel_table;
}

constexpr Isa kBestFirst[] = {Isa::kV4, Isa::kV3, Isa::kPlain};

Isa BestIsa() {
  for (Isa isa : kBestFirst) {
    if (IsaAvailable(isa)) return isa;
  }
  return Isa::kPlain;
}

}  // namespace

namespace internal {

constinit std::atomic<const KernelEntry* const*> active_table{nullptr};

// Two threads may both come here at first: they store the same pointer.
const KernelEntry* const* SelectTable() {
  Isa choice = BestIsa();
  if (const char* wanted = std::getenv("PIPER_ISA"); wanted != nullptr && *wanted != '\0') {
    bool found = false;
    for (Isa isa : kBestFirst) {
      if (IsaName(isa) == wanted && IsaAvailable(isa)) {
        choice = isa;
        found = true;
      }
    }
    if (!found) {
      std::fprintf(stderr, "PIPER_ISA=%s is not available on this processor; using %s\n", wanted,
                   IsaName(choice).data());
    }
  }
  active_table.store(TableOf(choice), std::memory_order_relaxed);
  return TableOf(choice);
}

}  // namespace internal

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kPlain:
      return "plain";
    case Isa::kV3:
      return "v3";
    case Isa::kV4:
      return "v4";
  }
  return "plain";
}

bool IsaAvailable(Isa isa) {
  if (isa == Isa::kPlain) return true;
#if PIPER_KERNELS_X86
  __builtin_cpu_init();
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
            __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
            __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt");
  if (isa == Isa::kV3) return v3;
  return v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

Isa ActiveIsa() {
  const internal::KernelEntry* const* table = internal::active_table.load(std::memory_order_relaxed);
  if (table == nullptr) table = internal::SelectTable();
  for (Isa isa : kBestFirst) {
    if (IsaAvailable(isa) && TableOf(isa) == table) return isa;
  }
  return Isa::kPlain;
}

bool SelectIsa(Isa isa) {
  if (!IsaAvailable(isa)) return false;
  internal::active_table.store(TableOf(isa), std::memory_order_relaxed);
  return true;
}

}  // namespace piper::kernels
