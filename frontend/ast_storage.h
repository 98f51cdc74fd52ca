// What syntax trees stand on: interned names and the arena that owns the nodes. See ast.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace piper::frontend {

// ---------------------------------------------------------------------------------------------------- names

using NameId = uint32_t;
constexpr NameId kNoName = 0;  // the empty text

// Names that the compiler knows from the start; NameId constants names::kF, names::kBarrier, ...
// clang-format off
#define PIPER_KNOWN_NAMES(X)                                                                                        \
  X(kF, "F") X(kB, "B") X(kBI, "BI") X(kBW, "BW") X(kR, "R") X(kU, "U") X(kW, "W") X(kT, "T") X(kStar, "*")         \
  X(kUnderscore, "_") X(kBarrier, "barrier") X(kFused, "fused") X(kGreedy, "greedy") X(kForward, "forward")         \
  X(kAll, "all") X(kLast, "last") X(kSize, "size") X(kCount, "count") X(kZip, "zip") X(kPad, "pad")                 \
  X(kInt, "int") X(kFloat, "float") X(kBool, "bool") X(kString, "string") X(kSel, "sel") X(kSchedule, "schedule")   \
  X(kAxis, "axis") X(kDim, "dim") X(kFn, "fn") X(kQueue, "queue") X(kLoss, "loss") X(kStrategy, "strategy")         \
  X(kModel, "model") X(kTopology, "topology") X(kOptimizer, "optimizer") X(kQuantity, "quantity") X(kAny, "any")    \
  X(kTime, "time") X(kBytes, "bytes") X(kRate, "rate") X(kStd, "std") X(kPush, "push") X(kPop, "pop")
// clang-format on

namespace names {
enum : NameId {
  kFirstUnused = 0,
#define PIPER_NAME(id, text) id,
  PIPER_KNOWN_NAMES(PIPER_NAME)
#undef PIPER_NAME
      kKnownEnd,
};
}  // namespace names

// Interns identifiers. Ids are dense, in order of first appearance, so they may index vectors.
class NameTable {
 public:
  NameTable();
  NameId Intern(std::string_view text);
  // kNoName if the text was never interned.
  NameId Find(std::string_view text) const;
  std::string_view Text(NameId name) const { return texts_[name]; }
  size_t size() const { return texts_.size(); }

 private:
  std::string_view Store(std::string_view text);
  std::unordered_map<std::string_view, NameId> ids_;
  std::vector<std::string_view> texts_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  size_t block_used_ = 0;
  size_t block_size_ = 0;
};

// ---------------------------------------------------------------------------------------------------- memory

// Bump allocator for trivially destructible nodes.
class Arena {
 public:
  template <typename T>
  T* New() {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (Allocate(sizeof(T), alignof(T))) T();
  }
  template <typename T>
  std::span<T> Copy(const std::vector<T>& items) {
    static_assert(std::is_trivially_destructible_v<T>);
    if (items.empty()) return {};
    T* data = static_cast<T*>(Allocate(sizeof(T) * items.size(), alignof(T)));
    std::uninitialized_copy(items.begin(), items.end(), data);
    return {data, items.size()};
  }
  std::string_view CopyText(std::string_view text) {
    if (text.empty()) return {};
    char* data = static_cast<char*>(Allocate(text.size(), 1));
    std::memcpy(data, text.data(), text.size());
    return {data, text.size()};
  }
  size_t bytes() const { return total_; }

 private:
  void* Allocate(size_t size, size_t align) {
    used_ = (used_ + align - 1) & ~(align - 1);
    if (used_ + size > capacity_) Grow(size);
    void* result = blocks_.back().get() + used_;
    used_ += size;
    return result;
  }
  void Grow(size_t size);
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  size_t used_ = 0;
  size_t capacity_ = 0;
  size_t total_ = 0;
};

template <typename T>
using List = std::span<T>;

}  // namespace piper::frontend
