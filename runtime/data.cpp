#include "runtime/data.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace piper::runtime {
namespace {

constexpr int32_t kShardMagic = 20240520;
constexpr int32_t kShardVersion = 1;
constexpr int64_t kShardHeader = 256 * 4;
constexpr int64_t kBlockTokens = 8192;

uint64_t Hash(uint64_t a, uint64_t b) {
  uint64_t z = a + 0x9e3779b97f4a7c15u * (b + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// What a file holds is wrong.
Status FileError(const std::string& path, const std::string& what) {
  return InputError("data file '" + path + "': " + what);
}
// There is no such file, or it cannot be read.
Status AccessError(const std::string& path, const std::string& what) {
  return IoError("data file '" + path + "': " + what);
}

// Reads exactly `bytes`; false at the end of the file or on an error.
bool ReadAt(int fd, void* out, int64_t bytes, int64_t offset) {
  auto* to = static_cast<char*>(out);
  while (bytes > 0) {
    ssize_t got = pread(fd, to, bytes, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    bytes -= got;
    offset += got;
  }
  return true;
}

class StreamSource : public BatchSource {
 public:
  StreamSource(const Job& job, std::unique_ptr<TokenStream> stream, int64_t begin, int64_t end, uint64_t seed,
               bool shuffle)
      : job_(job), stream_(std::move(stream)), begin_(begin), seed_(seed), shuffle_(shuffle) {
    samples_ = static_cast<uint64_t>((end - begin - 1) / job.sequence);
  }

  bool AllTargetsCount() const override { return true; }
  Status Fill(uint32_t field, uint64_t step, int64_t first_sample, int64_t samples, void* out) override {
    const InputField& input = job_.inputs[field];
    int64_t shift = std::strcmp(input.name, "targets") == 0 ? 1 : 0;
    auto* tokens = static_cast<int32_t*>(out);
    for (int64_t i = 0; i < samples; ++i) {
      uint64_t number =
          step * static_cast<uint64_t>(job_.global_batch) + static_cast<uint64_t>(first_sample + i);
      uint64_t position = number % samples_;
      if (shuffle_) position = Permute(position, samples_, Hash(seed_, number / samples_));
      int64_t first = begin_ + static_cast<int64_t>(position) * job_.sequence + shift;
      PIPER_RETURN_IF_ERROR(stream_->Read(first, job_.sequence, input.vocab, tokens + i * job_.sequence));
    }
    return {};
  }

 private:
  const Job& job_;
  std::unique_ptr<TokenStream> stream_;
  int64_t begin_;
  uint64_t samples_ = 0;
  uint64_t seed_;
  bool shuffle_;
};

class RandomSource : public BatchSource {
 public:
  RandomSource(const Job& job, uint64_t seed) : job_(job), seed_(seed) {}

  bool AllTargetsCount() const override { return true; }
  Status Fill(uint32_t field, uint64_t step, int64_t first_sample, int64_t samples, void* out) override {
    const InputField& input = job_.inputs[field];
    bool targets = std::strcmp(input.name, "targets") == 0;
    // A target is the next token of field 0, whatever the fields' order; other fields draw numbers of their
    // own.
    uint64_t field_key = Hash(
        seed_, input.type == ElementType::kI32 && input.elements_per_sample == job_.sequence ? 0 : 1 + field);
    for (int64_t i = 0; i < samples; ++i) {
      uint64_t number =
          step * static_cast<uint64_t>(job_.global_batch) + static_cast<uint64_t>(first_sample + i);
      uint64_t key = Hash(field_key, number);
      for (int64_t k = 0; k < input.elements_per_sample; ++k) {
        uint64_t draw = Hash(key, static_cast<uint64_t>(k + (targets ? 1 : 0)));
        int64_t at = i * input.elements_per_sample + k;
        double unit = static_cast<double>(draw >> 11) * 0x1p-53;
        switch (input.type) {
          case ElementType::kI32:
            static_cast<int32_t*>(out)[at] =
                static_cast<int32_t>(draw % static_cast<uint64_t>(std::max<int64_t>(1, input.vocab)));
            break;
          case ElementType::kF64:
            static_cast<double*>(out)[at] = 2 * unit - 1;
            break;
          default:
            static_cast<float*>(out)[at] = static_cast<float>(2 * unit - 1);
        }
      }
    }
    return {};
  }

 private:
  const Job& job_;
  uint64_t seed_;
};

}  // namespace

uint64_t Permute(uint64_t index, uint64_t size, uint64_t key) {
  if (size <= 1) return 0;
  int half = 1;
  while (half < 32 && (uint64_t{1} << (2 * half)) < size) ++half;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  do {
    uint64_t left = index >> half, right = index & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      uint64_t next = left ^ (Hash(key + round, right) & mask);
      left = right;
      right = next;
    }
    index = left << half | right;
  } while (index >= size);
  return index;
}

Result<std::vector<std::string>> ExpandPath(const std::string& path) {
  std::vector<std::string> files;
  for (size_t begin = 0; begin <= path.size();) {
    size_t end = std::min(path.find('\n', begin), path.size());
    std::string part = path.substr(begin, end - begin);
    begin = end + 1;
    if (part.empty()) continue;
    // A path that exists as it stands is meant as it stands: a directory may be called "run[1]".
    struct stat status = {};
    if (part.find_first_of("*?[") == std::string::npos || lstat(part.c_str(), &status) == 0) {
      files.push_back(part);
      continue;
    }
    glob_t found;
    int failed = glob(part.c_str(), GLOB_ERR, nullptr, &found);
    for (size_t i = 0; failed == 0 && i < found.gl_pathc; ++i) files.push_back(found.gl_pathv[i]);
    globfree(&found);
    if (failed != 0) return IoError("data path '" + part + "' matches no file");
  }
  if (files.empty()) return InputError("no data: the path is empty");
  return files;
}

Result<std::unique_ptr<TokenStream>> TokenStream::Open(DataKind kind, const std::string& path) {
  Result<std::vector<std::string>> files = ExpandPath(path);
  if (!files.ok()) return files.status();
  std::unique_ptr<TokenStream> stream(new TokenStream);
  stream->token_bytes_ = kind == DataKind::kTokenShards ? 2 : 1;
  for (const std::string& name : *files) {
    File file;
    file.path = name;
    // Without O_NONBLOCK a named pipe would make the open wait for a writer.
    file.fd = open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file.fd < 0) return AccessError(name, std::string("cannot open: ") + std::strerror(errno));
    stream->files_.push_back(file);  // which the stream now closes
    struct stat info;
    if (fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode))
      return AccessError(name, "is not a regular file");
    File& kept = stream->files_.back();
    int64_t bytes = info.st_size;
    if (kind == DataKind::kTokenShards) {
      int32_t header[256];
      if (bytes < kShardHeader || !ReadAt(file.fd, header, kShardHeader, 0) || header[0] != kShardMagic) {
        return FileError(name, "has no token shard header (256 32-bit integers, the first 20240520)");
      }
      if (header[1] != kShardVersion) {
        return FileError(name,
                         "is a token shard of version " + std::to_string(header[1]) + ", only 1 is known");
      }
      kept.header = kShardHeader;
      kept.count = header[2];
      if (header[2] < 0 || (bytes - kShardHeader) / 2 < kept.count) {
        return FileError(name, "promises " + std::to_string(header[2]) + " tokens and holds " +
                                   std::to_string((bytes - kShardHeader) / 2));
      }
    } else {
      kept.count = bytes;
    }
    kept.first = stream->size_;
    stream->size_ += kept.count;
  }
  stream->block_.resize(static_cast<size_t>(kBlockTokens * stream->token_bytes_));
  return stream;
}

TokenStream::~TokenStream() {
  for (const File& file : files_) {
    if (file.fd >= 0) close(file.fd);
  }
}

Status TokenStream::Read(int64_t first, int64_t count, int64_t vocab, int32_t* out) {
  if (first < 0 || count < 0 || first > size_ - count) {
    return InternalError("tokens [" + std::to_string(first) + ", " + std::to_string(first + count) +
                         ") of a stream of " + std::to_string(size_));
  }
  auto file = std::upper_bound(files_.begin(), files_.end(), first,
                               [](int64_t token, const File& candidate) { return token < candidate.first; });
  --file;
  while (count > 0) {
    int64_t inside = first - file->first;
    int64_t part = std::min({count, file->count - inside, kBlockTokens});
    if (part <= 0) {
      ++file;
      continue;
    }
    int64_t offset = file->header + inside * token_bytes_;
    if (!ReadAt(file->fd, block_.data(), part * token_bytes_, offset)) {
      return FileError(
          file->path, "ends or fails at byte " + std::to_string(offset) + ": it has changed since its start");
    }
    for (int64_t i = 0; i < part; ++i) {
      int32_t token = token_bytes_ == 1 ? block_[i] : block_[2 * i] | block_[2 * i + 1] << 8;
      if (vocab > 0 && token >= vocab) {
        return FileError(file->path, "token " + std::to_string(token) + " at byte " +
                                         std::to_string(offset + i * token_bytes_) +
                                         " is not below the model's vocabulary of " + std::to_string(vocab));
      }
      out[i] = token;
    }
    out += part;
    first += part;
    count -= part;
  }
  return {};
}

bool HasValidation(const Job& job) {
  if (job.eval.empty()) return false;
  if (static_cast<DataKind>(job.data_kind) == DataKind::kRandom) return true;
  return (job.validation_path != nullptr && job.validation_path[0] != '\0') || job.validation_fraction > 0;
}

Result<std::unique_ptr<BatchSource>> OpenData(const Job& job, const std::string& path, uint64_t seed,
                                              bool validation) {
  auto kind = static_cast<DataKind>(job.data_kind);
  if (kind == DataKind::kRandom) {
    if (!path.empty()) {
      return InputError("the program trains on random(..), so data '" + path +
                        "' cannot replace it: write `data text(\"..\")` or `data tokens(\"..\")`");
    }
    return std::unique_ptr<BatchSource>(
        std::make_unique<RandomSource>(job, validation ? Hash(seed, 0x76616c6964u) : seed));
  }
  for (const InputField& field : job.inputs) {
    if (field.type != ElementType::kI32 || field.elements_per_sample != job.sequence) {
      return InputError(std::string("batch field '") + field.name +
                        "' does not hold one token a position of the " +
                        "sequence: tokens from files cannot fill it");
    }
  }
  bool own_files = validation && job.validation_path != nullptr && job.validation_path[0] != '\0';
  std::string files = own_files ? job.validation_path : !path.empty() ? path : job.data_path;
  Result<std::unique_ptr<TokenStream>> stream = TokenStream::Open(kind, files);
  if (!stream.ok()) return stream.status();
  int64_t begin = 0, end = (*stream)->size();
  bool has_tail =
      (job.validation_path == nullptr || job.validation_path[0] == '\0') && job.validation_fraction > 0;
  if (has_tail && !own_files) {
    auto tail = static_cast<int64_t>(static_cast<double>(end) * job.validation_fraction);
    (validation ? begin : end) = end - tail;
  }
  if (end - begin < job.sequence + 1) {
    return InputError(std::string(validation ? "validation" : "training") + " data '" + files + "' has " +
                      std::to_string(end - begin) + " tokens: a sample needs " +
                      std::to_string(job.sequence + 1));
  }
  return std::unique_ptr<BatchSource>(std::make_unique<StreamSource>(job, std::move(*stream), begin, end,
                                                                     seed, !validation && job.shuffle != 0));
}

}  // namespace piper::runtime
