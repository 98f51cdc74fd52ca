// How a kernel is declared and called. A kernel is a function of raw pointers, sizes and scalars, for float
// and for double; emitted code calls it by name (`kernels::gemm(a, b, c, 2, 3, 4, 0, 0)`), the interpreter
// through the registry, and both reach the same machine code, so both get the same bits.
//
// Argument order is always: input pointers, output pointers, `T* workspace` where one is needed, int64_t
// sizes and flags, double scalars, and `const RandomKey& key` last for a random kernel. All tensors are
// contiguous and row-major; inputs and outputs do not overlap unless a kernel says that they may. Kernels do
// not allocate once warm: what they need beyond a workspace is thread-local scratch of a fixed size, taken at
// the first use.
//
// Results depend on the arguments alone: not on the instruction set, the number of threads or the tile
// shapes.
#pragma once

#include <atomic>
#include <cstdint>

namespace piper::kernels {

// Identifies a stream of random numbers by what the number is for, never by who draws it: the training seed,
// the operation (a hash of its path in the model, or of a parameter's name), the step, and the global sample.
// Local sample s of a batch slice is global sample first_sample + s * sample_stride.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t operation = 0;
  uint64_t step = 0;
  uint64_t first_sample = 0;
  uint64_t sample_stride = 1;
};

enum class KernelId : int {
#define PIPER_OPERATION(name) name,
#include "kernels/operations.def"
#undef PIPER_OPERATION
};

inline constexpr int kKernelCount = 0
#define PIPER_OPERATION(name) +1
#include "kernels/operations.def"
#undef PIPER_OPERATION
    ;

namespace internal {

using AnyFunction = void (*)();

// The two instantiations of one kernel, for one instruction set.
struct KernelEntry {
  AnyFunction f32;
  AnyFunction f64;
};

// The table in use, one entry a KernelId; null until the first call.
extern std::atomic<const KernelEntry* const*> active_table;
const KernelEntry* const* SelectTable();

inline const KernelEntry& ActiveEntry(KernelId id) {
  const KernelEntry* const* table = active_table.load(std::memory_order_relaxed);
  if (__builtin_expect(table == nullptr, 0)) table = SelectTable();
  return *table[static_cast<int>(id)];
}

template <KernelId id, typename T, typename Signature>
struct Caller;

template <KernelId id, typename... Arguments>
struct Caller<id, float, void(Arguments...)> {
  void operator()(Arguments... arguments) const {
    reinterpret_cast<void (*)(Arguments...)>(ActiveEntry(id).f32)(arguments...);
  }
};

template <KernelId id, typename... Arguments>
struct Caller<id, double, void(Arguments...)> {
  void operator()(Arguments... arguments) const {
    reinterpret_cast<void (*)(Arguments...)>(ActiveEntry(id).f64)(arguments...);
  }
};

}  // namespace internal

// A callable with one overload for float and one for double that runs the best version for this processor.
template <KernelId id, template <typename> class Signature>
struct KernelFunction : internal::Caller<id, float, Signature<float>>,
                        internal::Caller<id, double, Signature<double>> {
  using internal::Caller<id, float, Signature<float>>::operator();
  using internal::Caller<id, double, Signature<double>>::operator();
  static constexpr KernelId kId = id;
};

}  // namespace piper::kernels

// PIPER_KERNEL(name, parameters...) declares the kernel `name`. The parameter list is also kept as text: the
// registry reads the names, the element types and the roles of the operands from it (`const` is an input,
// PIPER_INOUT is read and written, `workspace` is scratch, any other pointer is an output).
#define PIPER_INOUT
#define PIPER_KERNEL(name, ...)                                  \
  template <typename T>                                          \
  using name##_signature = void(__VA_ARGS__);                    \
  inline constexpr const char* name##_parameters = #__VA_ARGS__; \
  inline constexpr KernelFunction<KernelId::name, name##_signature> name {}
