#include "runtime/data.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>

#include "tests/runtime_test_job.h"

namespace piper::runtime::testing {
namespace {

class RuntimeData : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/piper-data-XXXXXX";
    root_ = mkdtemp(path);
    job_.Input("tokens", ElementType::kI32, 4, 256);
    job_.Input("targets", ElementType::kI32, 4, 256);
    job_.fields.sequence = 4;
    job_.fields.global_batch = 2;
    job_.fields.data_kind = 0;
    job_.Finish();
  }
  void TearDown() override {
    if (system(("rm -rf '" + root_ + "'").c_str()) != 0) std::fprintf(stderr, "left: %s\n", root_.c_str());
  }
  std::string Write(const std::string& name, const std::string& bytes) {
    std::ofstream(root_ + "/" + name) << bytes;
    return root_ + "/" + name;
  }
  // Bytes 0, 1, 2, ...
  static std::string Counting(int count) {
    std::string bytes;
    for (int i = 0; i < count; ++i) bytes += static_cast<char>(i);
    return bytes;
  }
  static std::string Shard(std::vector<uint16_t> tokens, int32_t magic = 20240520, int32_t count = -1) {
    std::string bytes(1024, '\0');
    int32_t header[3] = {magic, 1, count < 0 ? static_cast<int32_t>(tokens.size()) : count};
    std::memcpy(bytes.data(), header, sizeof header);
    return bytes.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2);
  }
  std::vector<int32_t> Sample(BatchSource& source, uint32_t field, uint64_t step, int64_t sample) {
    std::vector<int32_t> out(4, -1);
    Status status = source.Fill(field, step, sample, 1, out.data());
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }

  std::string root_;
  TestJob job_;
};

TEST_F(RuntimeData, SamplesAreConsecutiveAndTargetsOneLater) {
  Result<std::unique_ptr<BatchSource>> source = OpenData(job_.fields, Write("a", Counting(18)), 1, false);
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ(Sample(**source, 0, 0, 0), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(Sample(**source, 1, 0, 0), (std::vector<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(Sample(**source, 1, 1, 1), (std::vector<int32_t>{13, 14, 15, 16}));
  // Four samples: sample 4 of the run is sample 0 again.
  EXPECT_EQ(Sample(**source, 0, 2, 0), (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST_F(RuntimeData, SeveralFilesAreOneStream) {
  Write("b1", Counting(6));
  Write("b2", "");
  Write("b3", Counting(7));
  Result<std::unique_ptr<BatchSource>> source = OpenData(job_.fields, root_ + "/b*", 1, false);
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ(Sample(**source, 0, 0, 1), (std::vector<int32_t>{4, 5, 0, 1}));
  EXPECT_EQ(Sample(**source, 1, 1, 0), (std::vector<int32_t>{3, 4, 5, 6}));
}

TEST_F(RuntimeData, ShuffleIsAPermutationOfItsOwnEveryEpoch) {
  job_.fields.shuffle = 1;
  std::string path = Write("a", Counting(4 * 40 + 1));
  Result<std::unique_ptr<BatchSource>> source = OpenData(job_.fields, path, 1, false);
  Result<std::unique_ptr<BatchSource>> again = OpenData(job_.fields, path, 1, false);
  Result<std::unique_ptr<BatchSource>> other = OpenData(job_.fields, path, 2, false);
  ASSERT_TRUE(source.ok() && again.ok() && other.ok());
  std::vector<int32_t> order[2], order_other;
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::set<int32_t> seen;
    for (uint64_t step = 0; step < 20; ++step) {
      for (int64_t sample = 0; sample < 2; ++sample) {
        std::vector<int32_t> tokens = Sample(**source, 0, step + 20u * epoch, sample);
        EXPECT_EQ(tokens, Sample(**again, 0, step + 20u * epoch, sample));
        if (epoch == 0) order_other.push_back(Sample(**other, 0, step, sample)[0]);
        seen.insert(tokens[0]);
        order[epoch].push_back(tokens[0]);
      }
    }
    EXPECT_EQ(seen.size(), 40u);
  }
  EXPECT_NE(order[0], order[1]);
  EXPECT_NE(order[0], order_other);
}

TEST_F(RuntimeData, PermuteCoversEverySize) {
  for (uint64_t size : {1u, 2u, 3u, 5u, 16u, 17u, 1000u}) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < size; ++i) seen.insert(Permute(i, size, 99));
    EXPECT_EQ(seen.size(), size);
    EXPECT_LT(*seen.rbegin(), size);
  }
}

TEST_F(RuntimeData, ValidationTailSharesNoTokenWithTraining) {
  job_.fields.validation_fraction = 0.25;
  job_.fields.shuffle = 1;
  std::string path = Write("a", Counting(100));
  Result<std::unique_ptr<BatchSource>> train = OpenData(job_.fields, path, 1, false);
  Result<std::unique_ptr<BatchSource>> tail = OpenData(job_.fields, path, 1, true);
  ASSERT_TRUE(train.ok() && tail.ok());
  for (uint64_t step = 0; step < 30; ++step) {
    for (uint32_t field : {0u, 1u}) {
      for (int32_t token : Sample(**train, field, step, 0)) EXPECT_LT(token, 75);
      for (int32_t token : Sample(**tail, field, step, 0)) EXPECT_GE(token, 75);
    }
  }
  EXPECT_EQ(Sample(**tail, 0, 0, 0)[0], 75);  // in order
}

TEST_F(RuntimeData, TokenShards) {
  job_.fields.data_kind = 1;
  job_.fields.inputs = job_.fields.inputs;
  std::string path = Write("s1.bin", Shard({10, 11, 12, 13, 14, 15, 16, 17, 255}));
  Result<std::unique_ptr<BatchSource>> source = OpenData(job_.fields, path, 1, false);
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ(Sample(**source, 1, 0, 1), (std::vector<int32_t>{15, 16, 17, 255}));
  // Beyond the vocabulary: named with its place.
  path = Write("s2.bin", Shard({1, 2, 3, 300, 4}));
  source = OpenData(job_.fields, path, 1, false);
  ASSERT_TRUE(source.ok());
  int32_t out[4];
  Status status = (*source)->Fill(0, 0, 0, 1, out);
  EXPECT_EQ(status.message(),
            "data file '" + path + "': token 300 at byte 1030 is not below the model's vocabulary of 256");
}

// What cannot be opened or read is the environment's fault (74), what a file holds is the input's (1).
TEST_F(RuntimeData, BadFilesAreRefused) {
  auto refuses = [&](int code, uint8_t kind, const std::string& path, const std::string& part) {
    job_.fields.data_kind = kind;
    Result<std::unique_ptr<BatchSource>> source = OpenData(job_.fields, path, 1, false);
    ASSERT_FALSE(source.ok()) << path;
    EXPECT_EQ(source.status().code(), code) << source.status().message();
    EXPECT_NE(source.status().message().find(part), std::string::npos) << source.status().message();
  };
  refuses(74, 0, root_ + "/absent", "cannot open");
  refuses(74, 0, root_ + "/x*", "matches no file");
  refuses(74, 0, root_, "is not a regular file");
  refuses(74, 0, "/dev/zero", "is not a regular file");
  ASSERT_EQ(mkfifo((root_ + "/pipe").c_str(), 0600), 0);
  refuses(74, 0, root_ + "/pipe", "is not a regular file");
  refuses(1, 0, Write("short", "abcd"), "has 4 tokens: a sample needs 5");
  refuses(1, 1, Write("t", "text"), "has no token shard header");
  refuses(1, 1, Write("m", Shard({1, 2, 3}, 7)), "has no token shard header");
  refuses(1, 1, Write("c", Shard({1, 2, 3}, 20240520, 1 << 30)), "promises 1073741824 tokens and holds 3");
}

TEST_F(RuntimeData, RandomTokensAreAFunctionOfTheirPlace) {
  job_.fields.data_kind = 2;
  Result<std::unique_ptr<BatchSource>> source = OpenData(job_.fields, "", 5, false);
  Result<std::unique_ptr<BatchSource>> validation = OpenData(job_.fields, "", 5, true);
  ASSERT_TRUE(source.ok() && validation.ok());
  std::vector<int32_t> tokens = Sample(**source, 0, 3, 1), targets = Sample(**source, 1, 3, 1);
  EXPECT_TRUE(std::equal(tokens.begin() + 1, tokens.end(), targets.begin()));
  EXPECT_EQ(tokens, Sample(**source, 0, 3, 1));
  EXPECT_NE(tokens, Sample(**source, 0, 3, 0));
  EXPECT_NE(tokens, Sample(**validation, 0, 3, 1));
  for (int32_t token : tokens) EXPECT_LT(token, 256);
}

}  // namespace
}  // namespace piper::runtime::testing
