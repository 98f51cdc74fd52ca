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
  uint32_t Take(int64_t bytes, uint32_t owner, std::vector<uint32_t>* former) {
    // Mostly something of just this size was freed.
    const size_t bin = KnownBin(bytes);
    if (bin == kUnknown || bins_[bin].first == kNull) return TakeOther(bytes, owner, former);
    const uint32_t range = bins_[bin].first;
    Range& taken = ranges_[range];
    bins_[bin].first = taken.bin_next;
    if (taken.bin_next != kNull) ranges_[taken.bin_next].bin_previous = kNull;
    taken.free = false;
    free_bytes_ -= bytes;
    if (taken.owner != kNull) former->push_back(taken.owner);
    taken.owner = owner;
    return range;
  }
  void Release(uint32_t range) { AddFree(range); }
  // Hands a taken range on to another buffer.
  void SetOwner(uint32_t range, uint32_t owner) { ranges_[range].owner = owner; }
  int64_t Offset(uint32_t range) const { return ranges_[range].offset; }
  int64_t end() const { return end_; }  // high-water mark

 private:
  static constexpr uint32_t kNull = UINT32_MAX;
  static constexpr int64_t kUnit = 64;  // what sizes are multiples of
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

  // Bins that were looked up, by a hash of their size; those behind a new bin have moved on since.
  static constexpr size_t kUnknown = SIZE_MAX, kRecent = 16;
  size_t KnownBin(int64_t bytes) const {
    const size_t bin = recent_bins_[static_cast<size_t>(bytes / kUnit) % kRecent];
    return bin < bins_.size() && bins_[bin].bytes == bytes ? bin : kUnknown;
  }
  size_t BinIndex(int64_t bytes) {
    const size_t bin = KnownBin(bytes);
    return bin != kUnknown ? bin : FindBin(bytes);
  }
  void AddFree(uint32_t range) {
    Range& freed = ranges_[range];
    Bin& bin = bins_[BinIndex(freed.bytes)];
    freed.free = true;
    freed.bin_previous = kNull;
    freed.bin_next = bin.first;
    if (bin.first != kNull) ranges_[bin.first].bin_previous = range;
    bin.first = range;
    free_bytes_ += freed.bytes;
  }

  uint32_t TakeOther(int64_t bytes, uint32_t owner, std::vector<uint32_t>* former);
  uint32_t NewRange();
  void Unlink(uint32_t range);    // from the list by offset, and recycles it
  size_t FindBin(int64_t bytes);  // adds the bin if needed
  void RemoveFree(uint32_t range);
  uint32_t Split(uint32_t range, int64_t bytes);  // the rest becomes a range of its own
  uint32_t TakeMerged(int64_t bytes, uint32_t owner, std::vector<uint32_t>* former);

  int64_t split_ratio_;
  int64_t end_;
  int64_t free_bytes_ = 0;
  std::vector<Range> ranges_;
  std::vector<uint32_t> recycled_;
  std::vector<Bin> bins_;  // ascending by size
  size_t recent_bins_[kRecent] = {};
  uint32_t first_ = kNull, last_ = kNull;
};

}  // namespace piper::ir
