// Messages meet without any buffer, and nothing but the tasks that need a message waits for it. Every job
// runs as the transport runs by default and in its rendezvous mode, where the receive goes first.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "runtime/executor.h"
#include "runtime/local_runner.h"
#include "runtime/segment.h"
#include "runtime/shared_memory_transport.h"
#include "tests/runtime_test_job.h"

namespace piper::runtime::testing {
namespace {

// What of a message the receiver can see before it has posted the receive: nothing, in the rendezvous mode.
TEST(RuntimeRendezvous, NothingOfAMessageWaitsAtTheOtherEnd) {
  for (bool rendezvous : {false, true}) {
    std::unique_ptr<Segment> segment = std::move(*Segment::CreateLocal(2));
    segment->header().rendezvous = rendezvous ? 1 : 0;
    SharedMemoryTransport sender(*segment, 0, {}), receiver(*segment, 1, {});
    std::byte *from = nullptr, *to = nullptr;
    std::thread other([&] { from = *sender.AllocateArena(64); });
    to = *receiver.AllocateArena(64);
    other.join();
    for (uint32_t run = 1; run < 4; ++run) {
      for (uint64_t tag = 0; tag < 3; ++tag) {
        from[0] = static_cast<std::byte>(16 * run + tag);
        Message send{1, 2, from, 1, 0, 0, tag, run}, receive{0, 5, to, 1, 0, 0, tag, run};
        sender.StartSend(send);
        EXPECT_EQ(sender.TestSend(send), Progress::kPending);
        EXPECT_EQ(receiver.Arrived(receive), !rendezvous);
        receiver.StartReceive(receive);
        EXPECT_EQ(sender.TestSend(send), Progress::kPending) << "done before the data was taken";
        EXPECT_TRUE(receiver.Arrived(receive));
        EXPECT_EQ(receiver.TestReceive(receive), Progress::kDone);
        EXPECT_EQ(to[0], from[0]);
        EXPECT_EQ(sender.TestSend(send), Progress::kDone);
      }
    }
  }
}

// A receive posted for another message than the one that is sent does not let it go.
TEST(RuntimeRendezvous, OnlyTheReceiveOfTheSameMessageCounts) {
  std::unique_ptr<Segment> segment = std::move(*Segment::CreateLocal(2));
  segment->header().rendezvous = 1;
  SharedMemoryTransport sender(*segment, 0, {}), receiver(*segment, 1, {});
  std::byte *from = nullptr, *to = nullptr;
  std::thread other([&] { from = *sender.AllocateArena(64); });
  to = *receiver.AllocateArena(64);
  other.join();
  Message send{1, 0, from, 1, 0, 0, 7, 1}, wrong{0, 0, to, 1, 0, 0, 8, 1}, right{0, 1, to, 1, 0, 0, 7, 1};
  sender.StartSend(send);
  receiver.StartReceive(wrong);
  EXPECT_EQ(sender.TestSend(send), Progress::kPending);
  EXPECT_FALSE(receiver.Arrived(right));
  EXPECT_FALSE(receiver.Arrived(wrong));
  receiver.StartReceive(right);
  EXPECT_EQ(sender.TestSend(send), Progress::kPending);
  EXPECT_EQ(receiver.TestReceive(wrong), Progress::kPending);
  EXPECT_EQ(receiver.TestReceive(right), Progress::kDone);
  EXPECT_EQ(sender.TestSend(send), Progress::kDone);
}

std::atomic<int> posted, passed;  // of the step under way

// Rank 1 receives after a body; what rank 0 runs after its send has completed must find that body over.
TEST(RuntimeRendezvous, ASendCompletesOnlyOnceItsReceiveIsPosted) {
  TestJob job;
  TestRole& sender = job.Role("role0");
  sender.Rank(0, 0, {1}, {});
  uint32_t a = sender.Buffer("a", BufferKind::kScalar, 1);
  sender.Body(
      "after",
      [](BodyContext& c) {
        EXPECT_EQ(posted.load(), static_cast<int>(c.step) + 1);
        passed.fetch_add(1);
      },
      1);
  sender.Stream("compute", true);
  sender.Task(TaskKind::kCompute, "after", 0, {a}, {1});
  sender.Stream("send>1", false);
  sender.Task(TaskKind::kSend, "send", 0, {a}, {}, 0, 4);
  TestRole& receiver = job.Role("role1");
  receiver.Rank(1, 0, {0}, {});
  uint32_t b = receiver.Buffer("b", BufferKind::kScalar, 1), c = receiver.Buffer("c", BufferKind::kScalar, 1);
  receiver.Body(
      "before",
      [](BodyContext& context) {
        for (int i = 0; i < 200; ++i) std::this_thread::yield();
        posted.store(static_cast<int>(context.step) + 1);
      },
      1);
  receiver.Stream("compute", true);
  receiver.Task(TaskKind::kCompute, "before", 0, {c});
  receiver.Stream("recv<0", false);
  receiver.Task(TaskKind::kRecv, "recv", 0, {b}, {0}, 0, 4);
  job.Finish();
  for (bool rendezvous : {false, true}) {
    posted = passed = 0;
    Result<LocalResult> result = RunLocal(job.fields, Steps(20, rendezvous));
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(passed.load(), 20);
  }
}

std::atomic<int> independent, delivered;

// Three ranks. Rank 0 sends microbatch 0 only once rank 1 has computed everything that does not need it:
// microbatches from rank 2, on the compute stream and on a second one that computes. Were anything of that
// held back by the receive, which is posted from the start, the step would never end.
struct LateMessage {
  TestJob job;
  static constexpr uint32_t kOthers = 4;
  LateMessage() {
    TestRole& late = job.Role("role0");
    late.Rank(0, 0, {1}, {});
    uint32_t a = late.Buffer("a", BufferKind::kScalar, 1);
    late.Body(
        "gate",
        [](BodyContext& c) {
          while (independent.load() < static_cast<int>((c.step + 1) * 2 * kOthers)) std::this_thread::yield();
          F(c, 0)[0] = 5;
        },
        1);
    late.Stream("compute", true);
    late.Task(TaskKind::kCompute, "gate", 0, {a}, {}, 0);
    late.Stream("send>1", false);
    late.Task(TaskKind::kSend, "send late", 0, {a}, {0}, 0, 4);

    TestRole& middle = job.Role("role1");
    middle.Rank(1, 0, {0, 2}, {});
    uint32_t first = middle.Buffer("first", BufferKind::kScalar, 1);
    std::vector<uint32_t> in(kOthers);
    for (uint32_t& buffer : in) buffer = middle.Buffer("in", BufferKind::kScalar, 1);
    middle.Body(
        "other", [](BodyContext&) { independent.fetch_add(1); }, 1);
    middle.Body(
        "needs it",
        [](BodyContext& c) {
          EXPECT_EQ(F(c, 0)[0], 5);
          delivered.fetch_add(1);
        },
        1);
    // Tasks: 0 .. 3 and the one that needs the message; 5 .. 8 on the second stream; 9 the late receive, then
    // the others.
    middle.Stream("compute", true);
    for (uint32_t i = 0; i < kOthers; ++i) {
      middle.Task(TaskKind::kCompute, "other", 0, {in[i]}, {10 + i}, static_cast<int32_t>(i + 1));
    }
    middle.Task(TaskKind::kCompute, "needs it", 1, {first}, {9}, 0);
    middle.Stream("side", true);
    for (uint32_t i = 0; i < kOthers; ++i) {
      middle.Task(TaskKind::kCompute, "other", 0, {in[i]}, {10 + i}, static_cast<int32_t>(i + 1));
    }
    middle.Stream("recv<0", false);
    middle.Task(TaskKind::kRecv, "recv late", 0, {first}, {}, 0, 4);
    middle.Stream("recv<2", false);
    for (uint32_t i = 0; i < kOthers; ++i) {
      middle.Task(TaskKind::kRecv, "recv", 1, {in[i]}, {}, static_cast<int32_t>(i + 1), 4);
    }

    TestRole& prompt = job.Role("role2");
    prompt.Rank(2, 0, {1}, {});
    uint32_t out = prompt.Buffer("out", BufferKind::kScalar, 1);
    prompt.Stream("send>1", false);
    for (uint32_t i = 0; i < kOthers; ++i) {
      prompt.Task(TaskKind::kSend, "send", 0, {out}, {}, static_cast<int32_t>(i + 1), 4);
    }
    job.fields.microbatches = kOthers + 1;
    job.Finish();
  }
};

TEST(RuntimeRendezvous, AReceiveHoldsBackNothingThatDoesNotNeedIt) {
  LateMessage late;
  for (bool rendezvous : {false, true}) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      independent = delivered = 0;
      LocalOptions options = Steps(4, rendezvous);
      options.execution.delay_microseconds = seed == 0 ? 0 : 300;
      options.execution.delay_seed = seed;
      Result<LocalResult> result = RunLocal(late.job.fields, options);
      ASSERT_TRUE(result.ok()) << result.status().message();
      EXPECT_EQ(delivered.load(), 4);
    }
  }
}

// The same where the stream that stands first blocks: the message's reader is the head of the compute stream
// for the whole time, and the second computing stream goes on.
TEST(RuntimeRendezvous, AStreamThatWaitsDoesNotStopAnother) {
  LateMessage late;
  for (runtime::RankProgram program : late.job.fields.train) {
    if (program.ranks[0].rank != 1) continue;
    auto* tasks = const_cast<runtime::Task*>(program.tasks.data());
    // The reader goes first on its stream; the others there count only afterwards.
    runtime::Task reader = tasks[4];
    for (uint32_t i = LateMessage::kOthers; i > 0; --i) tasks[i] = tasks[i - 1];
    tasks[0] = reader;
  }
  // Rank 0 waits for what the second stream alone can do.
  static std::atomic<int>* counted = &independent;
  for (runtime::RankProgram program : late.job.fields.train) {
    if (program.ranks[0].rank != 0) continue;
    const_cast<runtime::Body&>(program.bodies[0]).function = [](BodyContext& c) {
      const int before = static_cast<int>(c.step * 2 * LateMessage::kOthers);
      while (counted->load() < before + static_cast<int>(LateMessage::kOthers)) std::this_thread::yield();
      F(c, 0)[0] = 5;
    };
  }
  for (bool rendezvous : {false, true}) {
    independent = delivered = 0;
    Result<LocalResult> result = RunLocal(late.job.fields, Steps(4, rendezvous));
    ASSERT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(delivered.load(), 4);
  }
}

}  // namespace
}  // namespace piper::runtime::testing
