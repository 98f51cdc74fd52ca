#include "runtime/interpreter.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/registry.h"

namespace piper::runtime {
namespace {

[[noreturn]] void Broken(const Call& call, const std::string& what) {
  std::fprintf(stderr, "piper: internal error: operation '%s', kernel '%s': %s\n", call.operation,
               call.kernel, what.c_str());
  std::exit(kExitInternal);
}

// f64 programs are references: all their tensors are f64.
bool IsDouble(const RankProgram& program) {
  for (const Buffer& buffer : program.buffers) {
    bool tensor = buffer.kind == BufferKind::kParameter || buffer.kind == BufferKind::kActivation ||
                  buffer.kind == BufferKind::kCotangent;
    if (tensor && buffer.type == ElementType::kF64) return true;
    if (tensor && buffer.type == ElementType::kF32) return false;
  }
  return false;
}

class Interpreter : public BodyRunner {
 public:
  explicit Interpreter(const RankProgram& program) : program_(program) {
    bool f64 = IsDouble(program);
    functions_.reserve(program.calls.size());
    for (const Call& call : program.calls) {
      const kernels::KernelInfo* kernel = kernels::FindKernel(call.kernel);
      if (kernel == nullptr) Broken(call, "no such kernel");
      if (kernel->operands.size() != call.operand_count || kernel->int_names.size() != call.int_count ||
          kernel->scalar_names.size() != call.scalar_count) {
        Broken(call, "it takes " + std::to_string(kernel->operands.size()) + " operands, " +
                         std::to_string(kernel->int_names.size()) + " integers and " +
                         std::to_string(kernel->scalar_names.size()) + " scalars, not " +
                         std::to_string(call.operand_count) + ", " + std::to_string(call.int_count) +
                         " and " + std::to_string(call.scalar_count));
      }
      functions_.push_back(f64 ? kernel->f64 : kernel->f32);
    }
  }

  void Run(uint32_t index, BodyContext& context) override {
    const Body& body = program_.bodies[index];
    constexpr uint32_t kMaxOperands = 32;
    void* operands[kMaxOperands];
    for (uint32_t i = 0; i < body.call_count; ++i) {
      const Call& call = program_.calls[body.first_call + i];
      if (call.operand_count > kMaxOperands) Broken(call, "too many operands");
      for (uint32_t k = 0; k < call.operand_count; ++k) {
        const CallOperand& operand = program_.call_operands[call.first_operand + k];
        operands[k] = operand.local == 0
                          ? context.operands[operand.value]
                          : static_cast<void*>(context.scratch + int64_t{operand.value} * kAlignment);
      }
      kernels::RandomKey key;
      key.seed = context.seed;
      key.operation = call.random_key;
      key.step = context.step;
      key.first_sample = context.first_sample;
      BeginCall(context, i);
      functions_[body.first_call + i](operands, program_.call_ints.data() + call.first_int,
                                      program_.call_scalars.data() + call.first_scalar, &key);
    }
  }

 private:
  const RankProgram& program_;
  std::vector<kernels::InvokeFn> functions_;  // a call
};

}  // namespace

std::unique_ptr<BodyRunner> MakeInterpreter(const Job&, const RankProgram& program) {
  return std::make_unique<Interpreter>(program);
}

}  // namespace piper::runtime
