// The dispatch table of one instruction set: this file is compiled once for each, like the kernels.
#include "kernels/kernel.h"

namespace piper::kernels::PIPER_ISA {

#define PIPER_OPERATION(name) extern const internal::KernelEntry name##_entry;
#include "kernels/operations.def"
#undef PIPER_OPERATION

extern const internal::KernelEntry* const kernel_table[];
const internal::KernelEntry* const kernel_table[] = {
#define PIPER_OPERATION(name) &name##_entry,
#include "kernels/operations.def"
#undef PIPER_OPERATION
};

}  // namespace piper::kernels::PIPER_ISA
