#include "ir/lower/arena.h"

#include <algorithm>

#include "ir/support/result.h"

namespace piper::ir {

uint32_t Arena::NewRange() {
  if (!recycled_.empty()) {
    const uint32_t range = recycled_.back();
    recycled_.pop_back();
    ranges_[range] = Range{};
    return range;
  }
  ranges_.emplace_back();
  return static_cast<uint32_t>(ranges_.size()) - 1;
}

void Arena::Unlink(uint32_t range) {
  const Range& gone = ranges_[range];
  (gone.previous == kNull ? first_ : ranges_[gone.previous].next) = gone.next;
  (gone.next == kNull ? last_ : ranges_[gone.next].previous) = gone.previous;
  recycled_.push_back(range);
}

size_t Arena::FindBin(int64_t bytes) {
  auto found = std::lower_bound(bins_.begin(), bins_.end(), bytes,
                                [](const Bin& bin, int64_t size) { return bin.bytes < size; });
  if (found == bins_.end() || found->bytes != bytes) found = bins_.insert(found, {bytes, kNull});
  return recent_bins_[static_cast<size_t>(bytes / kUnit) % kRecent] =
             static_cast<size_t>(found - bins_.begin());
}

void Arena::RemoveFree(uint32_t range) {
  Range& taken = ranges_[range];
  if (taken.bin_previous == kNull) {
    bins_[BinIndex(taken.bytes)].first = taken.bin_next;
  } else {
    ranges_[taken.bin_previous].bin_next = taken.bin_next;
  }
  if (taken.bin_next != kNull) ranges_[taken.bin_next].bin_previous = taken.bin_previous;
  taken.free = false;
  free_bytes_ -= taken.bytes;
}

uint32_t Arena::Split(uint32_t range, int64_t bytes) {
  const uint32_t rest = NewRange();
  Range& head = ranges_[range];
  Range& tail = ranges_[rest];
  tail.offset = head.offset + bytes;
  tail.bytes = head.bytes - bytes;
  tail.owner = head.owner;
  tail.previous = range;
  tail.next = head.next;
  (head.next == kNull ? last_ : ranges_[head.next].previous) = rest;
  head.next = rest;
  head.bytes = bytes;
  return rest;
}

// Where no free range is known to have just this size.
uint32_t Arena::TakeOther(int64_t bytes, uint32_t owner, std::vector<uint32_t>* former) {
  uint32_t range = kNull;
  if (free_bytes_ >= bytes) {
    auto bin = std::lower_bound(bins_.begin(), bins_.end(), bytes,
                                [](const Bin& b, int64_t size) { return b.bytes < size; });
    while (bin != bins_.end() && bin->first == kNull) ++bin;
    if (bin != bins_.end() && bin->bytes / split_ratio_ <= bytes) {
      range = bin->first;
      RemoveFree(range);
      if (ranges_[range].bytes > bytes) AddFree(Split(range, bytes));
      if (ranges_[range].owner != kNull) former->push_back(ranges_[range].owner);
    } else if (bin == bins_.end()) {
      range = TakeMerged(bytes, owner, former);
    }
  }
  if (range == kNull) {
    // Grow, over a free tail if there is one.
    int64_t offset = end_;
    while (last_ != kNull && ranges_[last_].free && ranges_[last_].bytes <= bytes - (end_ - offset)) {
      const uint32_t tail = last_;
      RemoveFree(tail);
      if (ranges_[tail].owner != kNull) former->push_back(ranges_[tail].owner);
      offset = ranges_[tail].offset;
      Unlink(tail);
    }
    range = NewRange();
    ranges_[range].offset = offset;
    ranges_[range].bytes = bytes;
    ranges_[range].previous = last_;
    (last_ == kNull ? first_ : ranges_[last_].next) = range;
    last_ = range;
    end_ = std::max(end_, offset + bytes);
    PIPER_CHECK(offset + bytes == end_, "the ranges cover the arena");
  }
  ranges_[range].owner = owner;
  return range;
}

// The first run of free neighbours that is long enough.
uint32_t Arena::TakeMerged(int64_t bytes, uint32_t owner, std::vector<uint32_t>* former) {
  uint32_t begin = kNull;
  int64_t run = 0;
  for (uint32_t range = first_; range != kNull; range = ranges_[range].next) {
    if (!ranges_[range].free) {
      begin = kNull;
      run = 0;
      continue;
    }
    if (begin == kNull) begin = range;
    run += ranges_[range].bytes;
    if (run < bytes) continue;
    const int64_t surplus = run - bytes;
    RemoveFree(range);
    if (surplus > 0) AddFree(Split(range, ranges_[range].bytes - surplus));
    if (ranges_[range].owner != kNull) former->push_back(ranges_[range].owner);
    while (begin != range) {
      const uint32_t next = ranges_[begin].next;
      RemoveFree(begin);
      if (ranges_[begin].owner != kNull) former->push_back(ranges_[begin].owner);
      ranges_[range].offset = std::min(ranges_[range].offset, ranges_[begin].offset);
      Unlink(begin);
      begin = next;
    }
    ranges_[range].bytes = bytes;
    ranges_[range].owner = owner;
    return range;
  }
  return kNull;
}

}  // namespace piper::ir
