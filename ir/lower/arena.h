// The byte ranges of one arena while slots are packed: neighbours in a list, free ones by size. Ranges
// remember the last buffer that had them, for whoever takes them next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace piper::ir {

class Arena {
 public:
  // A free range serves a smaller request only if it is at most `split_ratio` times as large: small requests
  // would break up the ranges that large ones need.
  Arena(int64_t begin, int64_t split_ratio) : split_ratio_(split_ratio), end_(begin) {}

  // A range of `bytes` (a positive multiple of the alignment) for buffer `owner`. Appends the former owners
  // of its bytes to `former`. Returns the range's handle.
  uint32_t Take(int64_t bytes, uint32_t owner, std::vector<uint32_t>* former);
  void Release(uint32_t range);
  // Hands a taken range on to another buffer.
  void SetOwner(uint32_t range, uint32_t owner) { ranges_[range].owner = owner; }
  int64_t Offset(uint32_t range) const { return ranges_[range].offset; }
  int64_t end() const { return end_; }  // high-water mark

 private:
  static constexpr uint32_t kNull = UINT32_MAX;
  struct Range {
    int64_t offset = 0, bytes = 0;
    uint32_t owner = kNull;
    uint32_t previous = kNull, next = kNull;          // by offset
    uint32_t bin_previous = kNull, bin_next = kNull;  // free ranges of one size
    bool free = false;
  };
  struct Bin {
    int64_t bytes = 0;
    uint32_t first = kNull;
  };

  uint32_t NewRange();
  void Unlink(uint32_t range);     // from the list by offset, and recycles it
  size_t BinIndex(int64_t bytes);  // adds the bin if needed
  void AddFree(uint32_t range);
  void RemoveFree(uint32_t range);
  uint32_t Split(uint32_t range, int64_t bytes);  // the rest becomes a range of its own
  uint32_t TakeMerged(int64_t bytes, uint32_t owner, std::vector<uint32_t>* former);

  int64_t split_ratio_;
  int64_t end_;
  int64_t free_bytes_ = 0;
  std::vector<Range> ranges_;
  std::vector<uint32_t> recycled_;
  std::vector<Bin> bins_;  // ascending by size
  size_t recent_bin_ = 0;  // where the last look-up ended
  uint32_t first_ = kNull, last_ = kNull;
};

}  // namespace piper::ir
