#include "runtime/checkpoint.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "runtime/data.h"
#include "runtime/metrics.h"
#include "runtime/safetensors.h"
#include "runtime/sampler.h"
#include "runtime/segment.h"
#include "runtime/shared_memory_transport.h"
#include "tests/runtime_four_ranks.h"

namespace piper::runtime::testing {
namespace {

class RuntimeCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/piper-checkpoint-XXXXXX";
    root_ = mkdtemp(path);
    directory_ = open(root_.c_str(), O_RDONLY | O_DIRECTORY);
  }
  void TearDown() override {
    close(directory_);
    if (system(("rm -rf '" + root_ + "'").c_str()) != 0) std::fprintf(stderr, "left: %s\n", root_.c_str());
  }
  std::string Read(const std::string& name) {
    std::ifstream file(root_ + "/" + name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  std::string root_;
  int directory_ = -1;
};

TEST_F(RuntimeCheckpoint, SafetensorsRoundTrip) {
  float f32[6] = {1, 2, 3, 4, 5, 6};
  double f64[1] = {0.5};
  auto bytes = [](auto* data) { return reinterpret_cast<const std::byte*>(data); };
  std::vector<TensorView> tensors = {{"b", "F32", {2, 3}, bytes(f32), 24},
                                     {"a \"quoted\"", "F32", {}, bytes(f32), 4},
                                     {"z", "F64", {1}, bytes(f64), 8},
                                     {"empty", "F32", {0, 7}, nullptr, 0}};
  ASSERT_TRUE(WriteSafetensors(directory_, "x.safetensors", tensors, {{"format", "pt"}}).ok());
  std::string text = Read("x.safetensors");
  uint64_t length;
  std::memcpy(&length, text.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(text.size(), 8 + length + 36);
  EXPECT_EQ(text.compare(8, 31, "{\"__metadata__\":{\"format\":\"pt\"}"), 0) << text.substr(8, 80);
  Result<std::unique_ptr<SafetensorsFile>> file = SafetensorsFile::Open(directory_, "x.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  // Descending alignment, then name.
  ASSERT_EQ((*file)->tensors().size(), 4u);
  EXPECT_EQ((*file)->tensors()[0].name, "z");
  EXPECT_EQ((*file)->tensors()[1].name, "a \"quoted\"");
  const TensorInfo* b = (*file)->Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{2, 3}));
  float back[6];
  ASSERT_TRUE((*file)->Read(*b, reinterpret_cast<std::byte*>(back)).ok());
  EXPECT_EQ(std::memcmp(back, f32, 24), 0);
  EXPECT_EQ((*file)->metadata().at("format"), "pt");
  // An existing file is never overwritten.
  EXPECT_FALSE(WriteSafetensors(directory_, "x.safetensors", tensors, {}).ok());
}

TEST_F(RuntimeCheckpoint, HostileHeadersAreRefused) {
  auto message = [](const std::string& header, int64_t bytes) {
    std::vector<TensorInfo> tensors;
    std::map<std::string, std::string> metadata;
    Status status = ParseSafetensorsHeader(header, bytes, tensors, metadata);
    return status.ok() ? std::string() : status.message();
  };
  auto tensor = [](const char* name, const char* dtype, const char* shape, const char* offsets) {
    return std::string("\"") + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape +
           ",\"data_offsets\":" + offsets + "}";
  };
  std::string good = tensor("a", "F32", "[2]", "[0,8]");
  EXPECT_EQ(message("{" + good + "}  ", 8), "");
  EXPECT_EQ(message("{" + good + "," + good + "}", 8), "the key 'a' comes twice");
  EXPECT_EQ(message(" {" + good + "}", 8), "the header does not begin with '{'");
  EXPECT_EQ(message("{" + good, 8).substr(0, 13), "no valid JSON");
  EXPECT_EQ(message("{" + good + "}x", 8).substr(0, 13), "no valid JSON");
  EXPECT_EQ(message("{" + good + "}", 12), "the tensors cover 8 of 12 bytes");
  EXPECT_EQ(message("{" + good + "}", 4), "tensor 'a' ends beyond the file");
  EXPECT_EQ(message("{" + tensor("a", "F32", "[2]", "[4,12]") + "}", 12),
            "tensor 'a' begins at 4, where offset 0 must come next");
  EXPECT_EQ(message("{" + good + "," + tensor("b", "F32", "[2]", "[4,12]") + "}", 12),
            "tensor 'b' begins at 4, where offset 8 must come next");
  EXPECT_EQ(message("{" + tensor("a", "F32", "[3]", "[0,8]") + "}", 8),
            "tensor 'a' has 8 bytes, its shape needs 12");
  EXPECT_EQ(message("{" + tensor("a", "F32", "[4611686018427387904,4]", "[0,8]") + "}", 8),
            "tensor 'a' has a shape beyond 63 bits");
  EXPECT_EQ(message("{" + tensor("a", "F32", "[18446744073709551615]", "[0,8]") + "}", 8),
            "unexpected a number beyond 63 bits at 'a'");
  EXPECT_EQ(message("{" + tensor("a", "F32", "[-2]", "[0,8]") + "}", 8),
            "unexpected a negative number at 'a'");
  EXPECT_EQ(message("{" + tensor("a", "F32", "[2.0]", "[0,8]") + "}", 8), "unexpected a fraction at 'a'");
  EXPECT_EQ(message("{" + tensor("a", "F31", "[2]", "[0,8]") + "}", 8),
            "tensor 'a' has the unknown type 'F31'");
  EXPECT_EQ(message("{" + tensor("a", "F32", "[2]", "[0]") + "}", 8),
            "tensor 'a' lacks one of dtype, shape and two data_offsets");
  EXPECT_EQ(message("{\"a\":{\"dtype\":\"F32\"}}", 0),
            "tensor 'a' lacks one of dtype, shape and two data_offsets");
  EXPECT_EQ(message("{\"a\":{\"dtype\":{}}}", 0), "unexpected an object at 'a'");
  EXPECT_EQ(message("{\"a\":{\"extra\":1}}", 0), "tensor 'a' has an unknown field 'extra'");
  EXPECT_EQ(message("{\"__metadata__\":{\"x\":1}}", 0), "unexpected a number at 'x'");
  EXPECT_EQ(message("{\"__metadata__\":{\"x\":\"1\",\"x\":\"2\"}}", 0), "the key 'x' comes twice");
  EXPECT_NE(message("{\"a\":" + std::string(100000, '['), 0), "");
  // The file around the header.
  auto file = [&](const std::string& bytes) {
    std::ofstream(root_ + "/h.safetensors") << bytes;
    Result<std::unique_ptr<SafetensorsFile>> opened = SafetensorsFile::Open(directory_, "h.safetensors");
    return opened.ok() ? std::string() : opened.status().message();
  };
  EXPECT_EQ(file("abc"), "'h.safetensors': is too short for a safetensors file");
  EXPECT_EQ(file(std::string("\xff\xff\xff\xff\0\0\0\0{}", 10)),
            "'h.safetensors': claims a header of 4294967295 bytes");
  EXPECT_EQ(file(std::string("\x09\0\0\0\0\0\0\0{}", 10)), "'h.safetensors': claims a header of 9 bytes");
  EXPECT_EQ(file(std::string("\x02\0\0\0\0\0\0\0{}", 10)), "");
  ASSERT_EQ(symlink("h.safetensors", (root_ + "/link").c_str()), 0);
  EXPECT_FALSE(SafetensorsFile::Open(directory_, "link").ok());
}

// Runs `work` on every rank of a job, on threads.
void OnAllRanks(const Job& job, const std::function<void(Executor&, Transport&)>& work) {
  Result<std::unique_ptr<Segment>> segment = Segment::CreateLocal(job.rank_count);
  ASSERT_TRUE(segment.ok());
  std::vector<std::unique_ptr<SharedMemoryTransport>> transports;
  for (uint32_t rank = 0; rank < job.rank_count; ++rank) {
    transports.push_back(std::make_unique<SharedMemoryTransport>(**segment, rank, job.strings));
  }
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < job.rank_count; ++rank) {
    threads.emplace_back([&, rank] {
      Result<std::unique_ptr<BatchSource>> source = OpenData(job, "", job.seed, false);
      Executor::Setup setup;
      setup.job = &job;
      setup.rank = rank;
      setup.transport = transports[rank].get();
      setup.train_source = source->get();
      setup.seed = job.seed;
      Result<std::unique_ptr<Executor>> executor = Executor::Create(setup);
      ASSERT_TRUE(executor.ok()) << executor.status().message();
      (*executor)->InitializeParameters(job.seed);
      work(**executor, *transports[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<float> Values(const Executor& executor, int state = -1) {
  const Parameter& parameter = executor.program().parameters[0];
  const float* data =
      reinterpret_cast<const float*>(executor.buffer(state < 0 ? parameter.value : parameter.state[state]));
  return {data, data + parameter.elements};
}

TEST_F(RuntimeCheckpoint, SavedOnFourRanksLoadsOnOne) {
  FourRanks four;
  std::vector<float> first, second, moment;
  OnAllRanks(four.job(), [&](Executor& executor, Transport& transport) {
    StepOutcome outcome;
    for (uint64_t step = 0; step < 3; ++step) ASSERT_TRUE(executor.RunTrain(step, outcome).ok());
    Status saved = SaveCheckpoint(executor, transport, root_, 3, 0);
    ASSERT_TRUE(saved.ok()) << saved.message();
    if (transport.rank() == 0) first = Values(executor), moment = Values(executor, 1);
    if (transport.rank() == 1) second = Values(executor);
  });
  EXPECT_EQ(access((root_ + "/.step-3.tmp").c_str(), F_OK), -1);
  std::string index = Read("step-3/model.safetensors.index.json");
  EXPECT_NE(index.find("\"total_size\": 32768"), std::string::npos) << index;
  EXPECT_NE(index.find("\"first.w\": \"model-00001-of-00002.safetensors\""), std::string::npos) << index;
  // Another strategy: one rank with both parameters, in another order.
  TestJob job;
  uint32_t adam = job.AdamW(0.01);
  TestRole& role = job.Role("role0");
  role.Rank(0, 0, {}, {});
  role.Parameter("second.v", FourRanks::kElements, {0, 0, 0}, adam, 2, 1);
  role.Parameter("first.w", FourRanks::kElements, {0, 0, 0}, adam, 2, 0);
  job.fields.parameter_count = 2;
  job.Finish();
  Result<std::string> path = FindCheckpoint("auto", root_);
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(*path, root_ + "/step-3");
  Result<CheckpointInfo> info = ReadCheckpointInfo(*path);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->step, 3u);
  EXPECT_EQ(info->plan_hash, "test-plan");
  OnAllRanks(job.fields, [&](Executor& executor, Transport&) {
    Status loaded = LoadCheckpoint(*path, executor, false);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    EXPECT_EQ(Values(executor), second);
    const Parameter& w = executor.program().parameters[1];
    EXPECT_EQ(std::memcmp(executor.buffer(w.value), first.data(), first.size() * 4), 0);
    EXPECT_EQ(std::memcmp(executor.buffer(w.state[1]), moment.data(), moment.size() * 4), 0);
  });
}

TEST_F(RuntimeCheckpoint, DamageIsNoticed) {
  FourRanks four;
  OnAllRanks(four.job(), [&](Executor& executor, Transport& transport) {
    ASSERT_TRUE(SaveCheckpoint(executor, transport, root_, 1, 0).ok());
  });
  std::string path = root_ + "/step-1";
  std::string file = path + "/model-00001-of-00002.safetensors";
  std::FILE* stream = std::fopen(file.c_str(), "r+");
  std::fseek(stream, -1, SEEK_END);
  std::fputc(0x55, stream);
  std::fclose(stream);
  OnAllRanks(four.job(), [&](Executor& executor, Transport&) {
    Status loaded = LoadCheckpoint(path, executor, false);
    if (executor.program().parameters[0].global_index == 0) {
      EXPECT_EQ(loaded.message(),
                "checkpoint '" + path + "', tensor 'first.w': its bytes do not match the manifest's hash");
    } else {
      EXPECT_TRUE(loaded.ok()) << loaded.message();
    }
  });
  // A file elsewhere is not followed.
  std::string manifest = Read("step-1/manifest.json");
  size_t at = manifest.find("model-00001-of-00002");
  manifest.replace(at, 5, "../mo");
  std::ofstream(path + "/manifest.json") << manifest;
  OnAllRanks(four.job(), [&](Executor& executor, Transport&) {
    Status loaded = LoadCheckpoint(path, executor, false);
    if (executor.program().parameters[0].global_index == 0) {
      EXPECT_NE(loaded.message().find("its file is elsewhere"), std::string::npos) << loaded.message();
    }
  });
}

TEST_F(RuntimeCheckpoint, KeepsTheNewestAndIgnoresTheIncomplete) {
  FourRanks four;
  ASSERT_EQ(mkdir((root_ + "/step-900").c_str(), 0755), 0);  // no manifest: not a checkpoint
  ASSERT_EQ(mkdir((root_ + "/.step-4.tmp").c_str(), 0755), 0);
  OnAllRanks(four.job(), [&](Executor& executor, Transport& transport) {
    for (uint64_t step : {2, 3, 10, 4, 4}) {
      ASSERT_TRUE(SaveCheckpoint(executor, transport, root_, step, 2).ok());
    }
  });
  Result<std::string> newest = FindCheckpoint(root_, "");
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(*newest, root_ + "/step-10");
  EXPECT_EQ(access((root_ + "/step-2").c_str(), F_OK), -1);
  EXPECT_EQ(access((root_ + "/step-3").c_str(), F_OK), -1);
  EXPECT_EQ(access((root_ + "/step-4").c_str(), F_OK), 0);
}

TEST_F(RuntimeCheckpoint, RemovingALinkLeavesItsTarget) {
  FourRanks four;
  ASSERT_EQ(mkdir((root_ + "/elsewhere").c_str(), 0755), 0);
  std::ofstream(root_ + "/elsewhere/manifest.json") << "{}";
  for (const char* link : {"/step-1", "/.step-5.tmp"}) {
    ASSERT_EQ(symlink("elsewhere", (root_ + link).c_str()), 0);
  }
  OnAllRanks(four.job(), [&](Executor& executor, Transport& transport) {
    Status saved = SaveCheckpoint(executor, transport, root_, 5, 1);
    ASSERT_TRUE(saved.ok()) << saved.message();
  });
  struct stat info;
  EXPECT_NE(lstat((root_ + "/step-1").c_str(), &info), 0);
  ASSERT_EQ(lstat((root_ + "/step-5").c_str(), &info), 0);
  EXPECT_TRUE(S_ISDIR(info.st_mode));
  EXPECT_EQ(Read("elsewhere/manifest.json"), "{}");
}

TEST_F(RuntimeCheckpoint, LeftoversAreRestoredOrRemoved) {
  for (const char* name : {"/.step-3.old", "/.step-4.old", "/step-4", "/.step-5.tmp", "/.step-x.tmp"}) {
    ASSERT_EQ(mkdir((root_ + name).c_str(), 0755), 0);
    std::ofstream(root_ + name + "/manifest.json") << name;
  }
  RestoreReplaced(root_);
  RemoveUnfinished(root_);
  EXPECT_EQ(Read("step-3/manifest.json"), "/.step-3.old");
  EXPECT_EQ(Read("step-4/manifest.json"), "/step-4");
  for (const char* name : {"/.step-3.old", "/.step-4.old", "/.step-5.tmp"}) {
    EXPECT_NE(access((root_ + name).c_str(), F_OK), 0) << name;
  }
  EXPECT_EQ(access((root_ + "/.step-x.tmp").c_str(), F_OK), 0);  // not ours
}

TEST_F(RuntimeCheckpoint, AResumedRunDropsTheLaterMetrics) {
  std::string path = root_ + "/metrics.jsonl";
  std::ofstream(path) << "{\"step\":9}\n{\"step\":10}\n{\"step\":11}\n{\"st";
  {
    MetricsWriter metrics;
    ASSERT_TRUE(metrics.Open(path, true, false, 20, 10).ok());
    StepMetrics line;
    line.step = 11;
    metrics.Write(line);
  }
  std::string text = Read("metrics.jsonl");
  EXPECT_EQ(text.find("{\"step\":9}\n{\"step\":10}\n{\"step\":11,"), 0u) << text;
  EXPECT_EQ(text.find("step", text.find("11,")), text.rfind("step")) << text;  // "step_ms" only
}

TEST_F(RuntimeCheckpoint, OnlyTheCanonicalNameIsACheckpoint) {
  for (const char* name : {"/step-007", "/step-+8", "/step- 9", "/step-6x", "/step-5"}) {
    ASSERT_EQ(mkdir((root_ + name).c_str(), 0755), 0);
    std::ofstream(root_ + name + "/manifest.json") << "{}";
  }
  Result<std::string> newest = FindCheckpoint("auto", root_);
  ASSERT_TRUE(newest.ok());
  EXPECT_EQ(*newest, root_ + "/step-5");
}

// A model whose likeliest next token is the one after the last: "ab" goes on with "cdef".
TEST_F(RuntimeCheckpoint, SamplesFromACheckpoint) {
  constexpr int kSequence = 4, kVocab = 256;
  TestJob job;
  uint32_t sgd = job.Sgd(0.1);
  job.Input("tokens", ElementType::kI32, kSequence, kVocab);
  TestRole& role = job.Role("sample");
  role.Rank(0, 0, {}, {});
  role.Parameter("w", 1, {2, 5, 0}, sgd, 0, 0);
  uint32_t tokens = role.Buffer("tokens", BufferKind::kInput, kSequence, ElementType::kI32);
  uint32_t logits = role.Buffer("logits", BufferKind::kActivation, kSequence * kVocab);
  role.Body(
      "next",
      [](BodyContext& c) {
        float* out = static_cast<float*>(c.operands[2]);
        std::fill_n(out, kSequence * kVocab, 0.0f);
        for (int i = 0; i < kSequence; ++i) {
          int next = (static_cast<int32_t*>(c.operands[1])[i] + 1) % kVocab;
          out[i * kVocab + next] = static_cast<float*>(c.operands[0])[0];
        }
      },
      3);
  role.Stream("compute", true);
  role.Task(TaskKind::kLoad, "load", 0, {tokens}, {}, 0);
  role.Task(TaskKind::kCompute, "F", 0, {role.parameters[0].value, tokens, logits}, {}, 0);
  job.fields.parameter_count = 1;
  job.fields.sequence = kSequence;
  job.Finish();
  OnAllRanks(job.fields, [&](Executor& executor, Transport& transport) {
    ASSERT_TRUE(SaveCheckpoint(executor, transport, root_, 1, 0).ok());
  });
  SampleOptions options;
  options.checkpoint = root_ + "/step-1";
  options.tokens = 6;
  options.prompt = "ab";
  options.temperature = 0;
  auto sample = [&] {
    std::string text;
    Status status = Sample(job.fields, options, {}, [&](const std::string& more) { text += more; });
    EXPECT_TRUE(status.ok()) << status.message();
    return text;
  };
  EXPECT_EQ(sample(), "abcdefgh");  // beyond the window of four
  options.temperature = 1;
  options.seed = 3;
  std::string once = sample();
  EXPECT_EQ(sample(), once);
  options.seed = 4;
  EXPECT_NE(sample(), once);
}

}  // namespace
}  // namespace piper::runtime::testing
