// The safetensors file format: u64 little-endian header length, a JSON header padded with spaces to 8 bytes,
// then the tensors' bytes. Written sorted by descending alignment of the type, then name. Read without trust:
// every length and offset is checked before anything is allocated or read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/status.h"

namespace piper::runtime {

constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

struct TensorView {
  std::string name;
  std::string dtype;  // "F32", "F64", ...
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};

struct TensorInfo {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t begin = 0, end = 0;  // offsets into the data part
};

// Bytes an element, 0 for an unknown type.
int64_t SafetensorsElementBytes(const std::string& dtype);

// Creates `name` in the directory open as `directory`, which must not hold it yet, and waits until it is on
// disk.
Status WriteSafetensors(int directory, const std::string& name, std::vector<TensorView> tensors,
                        const std::map<std::string, std::string>& metadata);

class SafetensorsFile {
 public:
  // Opens the regular file `name` beneath `directory` (AT_FDCWD: any path); follows no symbolic link in its
  // last part.
  static Result<std::unique_ptr<SafetensorsFile>> Open(int directory, const std::string& name);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // by offset
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorInfo* Find(const std::string& name) const;
  // end - begin bytes to `out`.
  Status Read(const TensorInfo& tensor, std::byte* out) const;

 private:
  SafetensorsFile() = default;
  std::string name_;
  int fd_ = -1;
  int64_t data_ = 0;  // offset of the data part
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

// The header's text checked and taken apart, for a data part of `data_bytes`. Separate for tests.
Status ParseSafetensorsHeader(const std::string& header, int64_t data_bytes, std::vector<TensorInfo>& tensors,
                              std::map<std::string, std::string>& metadata);

// Writes all of `data` to a new file and waits until it is on disk.
Status WriteFileDurably(int directory, const std::string& name,
                        const std::vector<std::pair<const void*, size_t>>& parts);

}  // namespace piper::runtime
