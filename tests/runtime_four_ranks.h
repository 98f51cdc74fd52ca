// A small job with everything that ranks do together: two stages (two roles) times two replicas, four
// microbatches a step over two ranks each, tokens from the job's data, gradients and the loss reduced over
// replicas, AdamW. Ranks 0 and 2 run stage 0, ranks 1 and 3 stage 1. PIPER_TEST_SLEEP_US makes every forward
// sleep.
#pragma once

#include <unistd.h>

#include <cstdlib>

#include "tests/runtime_test_job.h"

namespace piper::runtime::testing {

class FourRanks {
 public:
  static constexpr int kElements = 4096;  // beyond what a small all-reduce takes
  static constexpr int kSequence = 16;
  static constexpr uint32_t kMicrobatches = 2;

  FourRanks() {
    uint32_t adam = job_.AdamW(0.01);
    job_.Input("tokens", ElementType::kI32, kSequence, 256);
    job_.Input("targets", ElementType::kI32, kSequence, 256);
    uint32_t groups[2] = {job_.Group({0, 2}), job_.Group({1, 3})};
    FirstStage(adam, groups[0]);
    SecondStage(adam, groups[1]);
    Job& fields = job_.fields;
    fields.name = "four ranks";
    fields.parameter_count = 2;
    fields.replicas = 2;
    fields.microbatches = kMicrobatches;
    fields.samples_per_microbatch = 1;
    fields.global_batch = 4;
    fields.sequence = fields.targets_per_sample = kSequence;
    fields.steps = 12;
    fields.shuffle = 1;
    job_.Finish();
  }
  Job& job() { return job_.fields; }

 private:
  static void Forward(BodyContext& c) {  // w, tokens -> out
    static const char* sleep = std::getenv("PIPER_TEST_SLEEP_US");
    if (sleep != nullptr) usleep(static_cast<useconds_t>(std::atoi(sleep)));
    const auto* tokens = static_cast<const int32_t*>(c.operands[1]);
    for (int i = 0; i < kElements; ++i)
      F(c, 2)[i] = F(c, 0)[i] * static_cast<float>(tokens[i % kSequence]) / 256;
  }
  static void Backward(BodyContext& c) {  // cotangent, tokens -> gradient part
    const auto* tokens = static_cast<const int32_t*>(c.operands[1]);
    for (int i = 0; i < kElements; ++i)
      F(c, 2)[i] = F(c, 0)[i] * static_cast<float>(tokens[i % kSequence]) / 256;
  }
  static void LossAndBackward(
      BodyContext& c) {  // v, x, targets, scale -> cotangent, gradient part, loss part
    const auto* targets = static_cast<const int32_t*>(c.operands[2]);
    float scale = F(c, 3)[0], loss = 0;
    for (int i = 0; i < kElements; ++i) {
      float error = F(c, 0)[i] * F(c, 1)[i] - static_cast<float>(targets[i % kSequence]) / 256;
      loss += error * error * scale / 256;
      F(c, 4)[i] = 2 * error * F(c, 0)[i] * scale / 256;
      F(c, 5)[i] = 2 * error * F(c, 1)[i] * scale / 256;
    }
    F(c, 6)[0] = loss;
  }

  void Reduce(TestRole& role, uint32_t gradient, std::vector<uint32_t> wait) {
    role.collectives.push_back(
        {CollectiveKind::kAllReduce, ElementType::kF32, 0, kElements, 0, 0, 1, "dp.reduce"});
    role.Task(TaskKind::kCollective, "dp.reduce", 0, {gradient, gradient}, std::move(wait), -1,
              kElements * 4);
  }

  void FirstStage(uint32_t adam, uint32_t group) {
    TestRole& role = job_.Role("stage0");
    role.Rank(0, 0, {1}, {group});
    role.Rank(2, 1, {3}, {group});
    role.Parameter("first.w", kElements, {3, 0.5, 0}, adam, 2, 0);
    uint32_t w = role.parameters[0].value, g = role.parameters[0].gradient;
    role.Body("forward", Forward, 3);
    role.Body("backward", Backward, 3);
    uint32_t tokens[kMicrobatches], out[kMicrobatches], back[kMicrobatches], part[kMicrobatches];
    for (uint32_t i = 0; i < kMicrobatches; ++i) {
      tokens[i] = role.Buffer("tokens", BufferKind::kInput, kSequence, ElementType::kI32);
      out[i] = role.Buffer("out", BufferKind::kActivation, kElements);
      back[i] = role.Buffer("back", BufferKind::kCotangent, kElements);
      part[i] = role.Buffer("part", BufferKind::kTransient, kElements);
    }
    constexpr int64_t kBytes = kElements * 4;
    constexpr uint32_t m = kMicrobatches, send = 4 * m + 1, receive = send + m, reduce = receive + m;
    role.Stream("compute", true);
    for (uint32_t i = 0; i < m; ++i) {  // tasks 2i, 2i + 1
      role.Task(TaskKind::kLoad, "load", 0, {tokens[i]}, {}, static_cast<int32_t>(i));
      role.Task(TaskKind::kCompute, "F", 0, {w, tokens[i], out[i]}, {}, static_cast<int32_t>(i));
    }
    for (uint32_t i = 0; i < m; ++i) {  // tasks 2m + 2i, 2m + 2i + 1
      role.Task(TaskKind::kCompute, "B", 1, {back[i], tokens[i], part[i]}, {receive + i},
                static_cast<int32_t>(i));
      role.Task(TaskKind::kAccumulate, "acc", 0, {g, part[i]}, {}, static_cast<int32_t>(i), kBytes, i == 0);
    }
    role.Task(TaskKind::kUpdate, "U", 0, {}, {reduce});
    role.Stream("send", false);
    for (uint32_t i = 0; i < m; ++i) {
      role.Task(TaskKind::kSend, "send", 0, {out[i]}, {2 * i + 1}, static_cast<int32_t>(i), kBytes);
    }
    role.Stream("recv", false);
    for (uint32_t i = 0; i < m; ++i) {
      role.Task(TaskKind::kRecv, "recv", 0, {back[i]}, {}, static_cast<int32_t>(i), kBytes);
    }
    role.Stream("reduce", false);
    Reduce(role, g, {4 * m - 1});
  }

  void SecondStage(uint32_t adam, uint32_t group) {
    TestRole& role = job_.Role("stage1");
    role.Rank(1, 0, {0}, {group});
    role.Rank(3, 1, {2}, {group});
    role.Parameter("second.v", kElements, {4, -0.5, 0.5}, adam, 2, 1);
    uint32_t v = role.parameters[0].value, g = role.parameters[0].gradient;
    role.loss_scale = role.Buffer("scale", BufferKind::kScalar, 1);
    role.loss = role.Buffer("loss", BufferKind::kScalar, 1);
    role.Body("loss", LossAndBackward, 7);
    uint32_t targets[kMicrobatches], in[kMicrobatches], cot[kMicrobatches], part[kMicrobatches];
    std::vector<uint32_t> fold = {role.loss};
    for (uint32_t i = 0; i < kMicrobatches; ++i) {
      targets[i] = role.Buffer("targets", BufferKind::kInput, kSequence, ElementType::kI32);
      in[i] = role.Buffer("in", BufferKind::kActivation, kElements);
      cot[i] = role.Buffer("cot", BufferKind::kCotangent, kElements);
      part[i] = role.Buffer("part", BufferKind::kTransient, kElements);
      fold.push_back(role.Buffer("loss part", BufferKind::kTransient, 1));
    }
    constexpr int64_t kBytes = kElements * 4;
    constexpr uint32_t m = kMicrobatches, send = 3 * m + 2, receive = send + m, reduce = receive + m;
    role.Stream("compute", true);
    for (uint32_t i = 0; i < m; ++i) {
      role.Task(TaskKind::kLoad, "load", 1, {targets[i]}, {}, static_cast<int32_t>(i));
      role.Task(TaskKind::kCompute, "FB", 0,
                {v, in[i], targets[i], role.loss_scale, cot[i], part[i], fold[i + 1]}, {receive + i},
                static_cast<int32_t>(i));
      role.Task(TaskKind::kAccumulate, "acc", 0, {g, part[i]}, {}, static_cast<int32_t>(i), kBytes, i == 0);
    }
    role.Task(TaskKind::kLossFold, "loss", 0, fold);
    role.Task(TaskKind::kUpdate, "U", 0, {}, {reduce});
    role.Stream("send", false);
    for (uint32_t i = 0; i < m; ++i) {
      role.Task(TaskKind::kSend, "send", 0, {cot[i]}, {3 * i + 1}, static_cast<int32_t>(i), kBytes);
    }
    role.Stream("recv", false);
    for (uint32_t i = 0; i < m; ++i) {
      role.Task(TaskKind::kRecv, "recv", 0, {in[i]}, {}, static_cast<int32_t>(i), kBytes);
    }
    role.Stream("reduce", false);
    Reduce(role, g, {3 * m - 1});
    role.collectives.push_back({CollectiveKind::kAllReduce, ElementType::kF32, 0, 1, 0, 0, 1, "loss.reduce"});
    role.Task(TaskKind::kCollective, "loss.reduce", 1, {role.loss, role.loss}, {3 * m}, -1, 4);
  }

  TestJob job_;
};

}  // namespace piper::runtime::testing
