// Quantities with units, as written in `.piper` text: `64 GiB`, `1.6 TB/s`, `2 us`, `191.5 TFLOP/s`, `5 %`.
// Inside the compiler time is integer picoseconds and bytes are integers; rates are doubles per second.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace piper::ir {

// A point in or a span of virtual time, in picoseconds (2^63 ps is 106 days).
using Picoseconds = int64_t;
constexpr Picoseconds kPsPerNs = 1'000;
constexpr Picoseconds kPsPerUs = 1'000'000;
constexpr Picoseconds kPsPerMs = 1'000'000'000;
constexpr Picoseconds kPsPerS = 1'000'000'000'000;

// a + b for a, b >= 0, at most the largest number: sums of figures that a user may choose as large as he
// likes.
inline int64_t SaturatingAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

enum class UnitKind : uint8_t { kNone, kTime, kBytes, kByteRate, kFlops, kFlopRate, kPercent };

// The value in base units: picoseconds, bytes, bytes/s, FLOP, FLOP/s; a percentage as a fraction (5 % =
// 0.05).
struct Quantity {
  double value = 0;
  UnitKind kind = UnitKind::kNone;
  friend bool operator==(const Quantity&, const Quantity&) = default;
};

// The scale and kind of a unit token ("us", "GiB", "GB/s", "TFLOP/s", "%"), or nothing if it is no unit.
struct Unit {
  double scale;
  UnitKind kind;
};
std::optional<Unit> FindUnit(std::string_view token);

// "time", "bytes", ...: for messages.
std::string_view UnitKindName(UnitKind kind);

// Exact, shortest human forms, e.g. "1.5 ms", "64 GiB", "20.03125 us".
std::string FormatTime(Picoseconds ps);
// The same in at most five significant digits: for tables that people read.
std::string FormatTimeRounded(Picoseconds ps);
std::string FormatBytes(int64_t bytes);
std::string FormatQuantity(const Quantity& quantity);

}  // namespace piper::ir
