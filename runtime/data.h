// Training data as samples of fixed length, each a pure function of (seed, step, index in the batch), so that
// the position in the data is nothing but the step.
//
//   Tokens      text files are bytes, one token a byte; llm.c shards are 16-bit tokens behind a checked
//   header. Several
//               files, in the order of the path's sorted matches, form one stream of tokens; nothing marks
//               the seams.
//   Samples     sample i of a stream is tokens [i * sequence, (i + 1) * sequence); its targets are the same
//   range one
//               token later. A stream of T tokens has floor((T - 1) / sequence) samples; what is left over is
//               unused.
//   Validation  with a validation path its files; else, with a fraction f > 0, the last floor(f * T) tokens:
//   a stream of
//               its own, so no validation token is ever an input or a target of training. Never shuffled.
//   Epochs      sample j of the batch of step t has the global number g = t * global_batch + j; it is
//   position
//               g mod samples of epoch g div samples. With `shuffle` each epoch visits the samples in an
//               order of its own, a permutation drawn from (seed, epoch); without it ascending.
//   Random      tokens drawn from (seed, g, position), uniform over the vocabulary; targets are the next
//   token; fields of
//               floats are uniform in [-1, 1). Validation draws other numbers.
//
// Only regular files are opened; they are read, not mapped, so a file that shrinks is an error and not a
// crash. A token at or above a field's vocabulary is an error that names the file and its offset.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/executor.h"
#include "runtime/program.h"
#include "runtime/status.h"

namespace piper::runtime {

enum class DataKind : uint8_t { kText, kTokenShards, kRandom };

// Position `index` of a pseudo-random permutation of [0, size): a keyed Feistel network of four rounds over
// the next even power of two, walked until it lands inside. Constant time and memory.
uint64_t Permute(uint64_t index, uint64_t size, uint64_t key);

// The files of a path, sorted by name: newlines separate several paths, each may hold the wildcards of
// glob(7). An error if one matches nothing or is no regular file.
Result<std::vector<std::string>> ExpandPath(const std::string& path);

// Tokens of one or more files, seen as one stream.
class TokenStream {
 public:
  static Result<std::unique_ptr<TokenStream>> Open(DataKind kind, const std::string& path);
  ~TokenStream();
  TokenStream(const TokenStream&) = delete;
  TokenStream& operator=(const TokenStream&) = delete;

  int64_t size() const { return size_; }
  // Tokens [first, first + count) to `out`; the range lies inside the stream. Tokens at or above `vocab` (0:
  // any) are errors. Does not allocate unless it fails.
  Status Read(int64_t first, int64_t count, int64_t vocab, int32_t* out);

 private:
  struct File {
    std::string path;
    int fd = -1;
    int64_t first = 0, count = 0;  // tokens of the stream
    int64_t header = 0;            // bytes
  };
  TokenStream() = default;
  std::vector<File> files_;
  std::vector<uint8_t> block_;
  int64_t size_ = 0;
  int token_bytes_ = 1;
};

// The data of a job. `path` replaces Job::data_path if not empty. `validation` gives the validation stream,
// which must exist (HasValidation). Errors: no files, fewer tokens than one sample.
Result<std::unique_ptr<BatchSource>> OpenData(const Job& job, const std::string& path, uint64_t seed,
                                              bool validation);
bool HasValidation(const Job& job);

}  // namespace piper::runtime
