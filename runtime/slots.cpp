// Acquisition and release of slots: what the executor measures of the packed memory, and the poison of tests.
#include <cstring>

#include "runtime/executor_state.h"

namespace piper::runtime {
namespace {

void RaiseTo(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (seen < value && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

void Executor::State::AcquireOperands(ProgramState& program, const Task& task) {
  for (uint32_t i = 0; i < task.operand_count; ++i) {
    uint32_t index = program.program->task_operands[task.first_operand + i];
    if (program.uses[index] == 0) continue;
    if (program.acquired[index].load(std::memory_order_relaxed) == run) continue;
    if (program.acquired[index].exchange(run) == run) continue;
    const Buffer& buffer = program.program->buffers[index];
    const bool on_host = buffer.kind == BufferKind::kHost;
    RaiseTo(on_host ? host_high_water : high_water, EndOf(buffer));
    RaiseTo(on_host ? host_peak_live : peak_live,
            (on_host ? host_live : live).fetch_add(buffer.bytes) + buffer.bytes);
    // A body may look at the whole of what it writes in check mode: no remains of an earlier slot may stand
    // there.
    if (checking) {
      std::memset(At(program, index), 0, buffer.bytes);
      program.health[index].store(static_cast<uint8_t>(Health::kFinite), std::memory_order_relaxed);
    }
  }
}

void Executor::State::ReleaseOperands(ProgramState& program, const Task& task) {
  for (uint32_t i = 0; i < task.operand_count; ++i) {
    uint32_t index = program.program->task_operands[task.first_operand + i];
    if (program.uses[index] == 0) continue;
    if (program.remaining[index].fetch_sub(1) != 1) continue;
    const Buffer& buffer = program.program->buffers[index];
    (buffer.kind == BufferKind::kHost ? host_live : live).fetch_sub(buffer.bytes);
    if (setup.options.poison) std::memset(At(program, index), 0xff, buffer.bytes);
  }
}

}  // namespace piper::runtime
