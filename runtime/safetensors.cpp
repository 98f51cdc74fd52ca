#include "runtime/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

namespace piper::runtime {
namespace {

using nlohmann::json;

// Takes the header apart as it is parsed: no tree is built, and a key that comes twice is seen.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  std::vector<TensorInfo> tensors;
  std::map<std::string, std::string> metadata;
  std::string problem;

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_float(double, const std::string&) override { return Unexpected("a fraction"); }
  bool binary(json::binary_t&) override { return Unexpected("binary data"); }
  bool number_integer(int64_t) override { return Unexpected("a negative number"); }

  bool number_unsigned(uint64_t value) override {
    if (state_ != kInArray) return Unexpected("a number");
    if (value > static_cast<uint64_t>(INT64_MAX)) return Unexpected("a number beyond 63 bits");
    if (field_ == "shape") {
      tensors.back().shape.push_back(static_cast<int64_t>(value));
      if (tensors.back().shape.size() > 64)
        return Fail("tensor '" + tensors.back().name + "' has over 64 dimensions");
    } else {
      offsets_.push_back(static_cast<int64_t>(value));
      if (offsets_.size() > 2) return Fail("tensor '" + tensors.back().name + "' has over two offsets");
    }
    return true;
  }

  bool string(std::string& value) override {
    if (state_ == kInMetadata) {
      metadata[key_] = value;
      return true;
    }
    if (state_ == kInTensor && field_ == "dtype") {
      tensors.back().dtype = value;
      return true;
    }
    return Unexpected("a string");
  }

  bool start_object(std::size_t) override {
    if (state_ == kStart) {
      state_ = kInHeader;
    } else if (state_ == kInHeader && key_ == "__metadata__") {
      state_ = kInMetadata;
      keys_.clear();
    } else if (state_ == kInHeader) {
      state_ = kInTensor;
      field_.clear();
      keys_.clear();
      tensors.emplace_back().name = key_;
    } else {
      return Unexpected("an object");
    }
    return true;
  }

  bool end_object() override {
    if (state_ == kInTensor) {
      TensorInfo& tensor = tensors.back();
      if (keys_.size() != 3 || offsets_.size() != 2) {
        return Fail("tensor '" + tensor.name + "' lacks one of dtype, shape and two data_offsets");
      }
      tensor.begin = offsets_[0];
      tensor.end = offsets_[1];
      offsets_.clear();
    }
    state_ = state_ == kInHeader ? kEnd : kInHeader;
    return true;
  }

  bool start_array(std::size_t) override {
    if (state_ != kInTensor || (field_ != "shape" && field_ != "data_offsets")) return Unexpected("an array");
    state_ = kInArray;
    return true;
  }

  bool end_array() override {
    state_ = kInTensor;
    return true;
  }

  bool key(std::string& value) override {
    std::set<std::string>& known = state_ == kInHeader ? names_ : keys_;
    if (!known.insert(value).second) return Fail("the key '" + value + "' comes twice");
    if (state_ == kInTensor) {
      if (value != "dtype" && value != "shape" && value != "data_offsets") {
        return Fail("tensor '" + tensors.back().name + "' has an unknown field '" + value + "'");
      }
      field_ = value;
    } else {
      key_ = value;
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
    return Fail("no valid JSON at byte " + std::to_string(position));
  }

 private:
  enum State { kStart, kInHeader, kInMetadata, kInTensor, kInArray, kEnd };

  bool Fail(std::string what) {
    problem = std::move(what);
    return false;
  }
  bool Unexpected(const char* what) {
    return Fail(std::string("unexpected ") + what + (key_.empty() ? "" : " at '" + key_ + "'"));
  }

  State state_ = kStart;
  std::string key_, field_;
  std::set<std::string> names_, keys_;
  std::vector<int64_t> offsets_;
};

Status SystemError(const std::string& what, const std::string& name) {
  return IoError("cannot " + what + " '" + name + "': " + std::strerror(errno));
}

Status WriteAll(int fd, const void* data, size_t bytes, const std::string& name) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    ssize_t written = write(fd, from, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return SystemError("write", name);
    from += written;
    bytes -= static_cast<size_t>(written);
  }
  return {};
}

}  // namespace

int64_t SafetensorsElementBytes(const std::string& dtype) {
  static const std::map<std::string, int64_t> kBytes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};
  auto at = kBytes.find(dtype);
  return at == kBytes.end() ? 0 : at->second;
}

Status WriteFileDurably(int directory, const std::string& name,
                        const std::vector<std::pair<const void*, size_t>>& parts) {
  int fd = openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return SystemError("create", name);
  Status status;
  for (const auto& [data, bytes] : parts) {
    if (status.ok()) status = WriteAll(fd, data, bytes, name);
  }
  if (status.ok() && fsync(fd) != 0) status = SystemError("flush", name);
  if (close(fd) != 0 && status.ok()) status = SystemError("close", name);
  return status;
}

Status WriteSafetensors(int directory, const std::string& name, std::vector<TensorView> tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorView& a, const TensorView& b) {
    int64_t left = SafetensorsElementBytes(a.dtype), right = SafetensorsElementBytes(b.dtype);
    return left != right ? left > right : a.name < b.name;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + tensor.bytes}}};
    offset += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxSafetensorsHeader)
    return InputError("'" + name + "' would need a header beyond the format's limit");
  uint64_t length = text.size();
  std::vector<std::pair<const void*, size_t>> parts = {{&length, sizeof length}, {text.data(), text.size()}};
  for (const TensorView& tensor : tensors) parts.emplace_back(tensor.data, static_cast<size_t>(tensor.bytes));
  return WriteFileDurably(directory, name, parts);
}

Status ParseSafetensorsHeader(const std::string& header, int64_t data_bytes, std::vector<TensorInfo>& tensors,
                              std::map<std::string, std::string>& metadata) {
  if (header.empty() || header[0] != '{') return InputError("the header does not begin with '{'");
  HeaderReader reader;
  if (!json::sax_parse(header, &reader)) return InputError(reader.problem);
  std::stable_sort(reader.tensors.begin(), reader.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
                   });
  int64_t at = 0;
  for (const TensorInfo& tensor : reader.tensors) {
    int64_t bytes = SafetensorsElementBytes(tensor.dtype);
    if (bytes == 0)
      return InputError("tensor '" + tensor.name + "' has the unknown type '" + tensor.dtype + "'");
    for (int64_t dim : tensor.shape) {
      if (__builtin_mul_overflow(bytes, dim, &bytes)) {
        return InputError("tensor '" + tensor.name + "' has a shape beyond 63 bits");
      }
    }
    if (tensor.begin != at || tensor.end < tensor.begin) {
      return InputError("tensor '" + tensor.name + "' begins at " + std::to_string(tensor.begin) +
                        ", where offset " + std::to_string(at) + " must come next");
    }
    if (tensor.end - tensor.begin != bytes) {
      return InputError("tensor '" + tensor.name + "' has " + std::to_string(tensor.end - tensor.begin) +
                        " bytes, its shape needs " + std::to_string(bytes));
    }
    if (tensor.end > data_bytes) return InputError("tensor '" + tensor.name + "' ends beyond the file");
    at = tensor.end;
  }
  if (at != data_bytes) {
    return InputError("the tensors cover " + std::to_string(at) + " of " + std::to_string(data_bytes) +
                      " bytes");
  }
  tensors = std::move(reader.tensors);
  metadata = std::move(reader.metadata);
  return {};
}

Result<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(int directory, const std::string& name) {
  auto wrong = [&](const std::string& what) { return InputError("'" + name + "': " + what); };
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->name_ = name;
  file->fd_ = openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file->fd_ < 0) return wrong(std::string("cannot open: ") + std::strerror(errno));
  struct stat info;
  if (fstat(file->fd_, &info) != 0 || !S_ISREG(info.st_mode)) return wrong("is not a regular file");
  uint64_t length = 0;
  if (info.st_size < 8 || pread(file->fd_, &length, 8, 0) != 8)
    return wrong("is too short for a safetensors file");
  if (length > kMaxSafetensorsHeader || length > static_cast<uint64_t>(info.st_size) - 8) {
    return wrong("claims a header of " + std::to_string(length) + " bytes");
  }
  std::string header(length, '\0');
  for (size_t at = 0; at < length;) {
    ssize_t got = pread(file->fd_, header.data() + at, length - at, static_cast<off_t>(8 + at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return wrong("cannot read the header");
    at += static_cast<size_t>(got);
  }
  file->data_ = 8 + static_cast<int64_t>(length);
  if (Status parsed =
          ParseSafetensorsHeader(header, info.st_size - file->data_, file->tensors_, file->metadata_);
      !parsed.ok()) {
    return wrong(parsed.message());
  }
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  if (fd_ >= 0) close(fd_);
}

const TensorInfo* SafetensorsFile::Find(const std::string& name) const {
  for (const TensorInfo& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

Status SafetensorsFile::Read(const TensorInfo& tensor, std::byte* out) const {
  for (int64_t at = tensor.begin; at < tensor.end;) {
    ssize_t got = pread(fd_, out + (at - tensor.begin), static_cast<size_t>(tensor.end - at), data_ + at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return InputError("'" + name_ + "': cannot read tensor '" + tensor.name + "'");
    at += got;
  }
  return {};
}

}  // namespace piper::runtime
