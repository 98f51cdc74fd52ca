#include "ir/support/units.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace piper::ir {

std::optional<Unit> FindUnit(std::string_view token) {
  struct Entry {
    std::string_view name;
    Unit unit;
  };
  constexpr double kKi = 1024.0, kMi = kKi * kKi, kGi = kMi * kKi, kTi = kGi * kKi, kPi = kTi * kKi;
  static constexpr std::array kUnits = {
      Entry{"ps", {1, UnitKind::kTime}},
      Entry{"ns", {1e3, UnitKind::kTime}},
      Entry{"us", {1e6, UnitKind::kTime}},
      Entry{"ms", {1e9, UnitKind::kTime}},
      Entry{"s", {1e12, UnitKind::kTime}},
      Entry{"min", {60e12, UnitKind::kTime}},
      Entry{"h", {3600e12, UnitKind::kTime}},
      Entry{"B", {1, UnitKind::kBytes}},
      Entry{"kB", {1e3, UnitKind::kBytes}},
      Entry{"MB", {1e6, UnitKind::kBytes}},
      Entry{"GB", {1e9, UnitKind::kBytes}},
      Entry{"TB", {1e12, UnitKind::kBytes}},
      Entry{"KiB", {kKi, UnitKind::kBytes}},
      Entry{"MiB", {kMi, UnitKind::kBytes}},
      Entry{"GiB", {kGi, UnitKind::kBytes}},
      Entry{"TiB", {kTi, UnitKind::kBytes}},
      Entry{"B/s", {1, UnitKind::kByteRate}},
      Entry{"kB/s", {1e3, UnitKind::kByteRate}},
      Entry{"MB/s", {1e6, UnitKind::kByteRate}},
      Entry{"GB/s", {1e9, UnitKind::kByteRate}},
      Entry{"TB/s", {1e12, UnitKind::kByteRate}},
      Entry{"PB/s", {1e15, UnitKind::kByteRate}},
      Entry{"KiB/s", {kKi, UnitKind::kByteRate}},
      Entry{"MiB/s", {kMi, UnitKind::kByteRate}},
      Entry{"GiB/s", {kGi, UnitKind::kByteRate}},
      Entry{"TiB/s", {kTi, UnitKind::kByteRate}},
      Entry{"PiB/s", {kPi, UnitKind::kByteRate}},
      Entry{"FLOP", {1, UnitKind::kFlops}},
      Entry{"MFLOP", {1e6, UnitKind::kFlops}},
      Entry{"GFLOP", {1e9, UnitKind::kFlops}},
      Entry{"TFLOP", {1e12, UnitKind::kFlops}},
      Entry{"PFLOP", {1e15, UnitKind::kFlops}},
      Entry{"FLOP/s", {1, UnitKind::kFlopRate}},
      Entry{"MFLOP/s", {1e6, UnitKind::kFlopRate}},
      Entry{"GFLOP/s", {1e9, UnitKind::kFlopRate}},
      Entry{"TFLOP/s", {1e12, UnitKind::kFlopRate}},
      Entry{"PFLOP/s", {1e15, UnitKind::kFlopRate}},
      Entry{"%", {0.01, UnitKind::kPercent}},
  };
  for (const Entry& entry : kUnits) {
    if (entry.name == token) return entry.unit;
  }
  return std::nullopt;
}

std::string_view UnitKindName(UnitKind kind) {
  switch (kind) {
    case UnitKind::kNone:
      return "a plain number";
    case UnitKind::kTime:
      return "time";
    case UnitKind::kBytes:
      return "bytes";
    case UnitKind::kByteRate:
      return "bytes per second";
    case UnitKind::kFlops:
      return "FLOP";
    case UnitKind::kFlopRate:
      return "FLOP/s";
    case UnitKind::kPercent:
      return "a percentage";
  }
  return "?";
}

namespace {

// The nearest integer, or the end of the range that lies nearest; 0 for what is no number.
int64_t Clamped(double value) {
  constexpr double kMost = 9.2e18;
  if (std::isnan(value)) return 0;
  return std::llround(std::fmin(std::fmax(value, -kMost), kMost));
}

// The largest unit in which the time is at least one.
std::pair<Picoseconds, std::string_view> TimeUnit(Picoseconds ps) {
  Picoseconds magnitude = ps < 0 ? -std::max(ps, -INT64_MAX) : ps;
  if (magnitude >= kPsPerS) return {kPsPerS, "s"};
  if (magnitude >= kPsPerMs) return {kPsPerMs, "ms"};
  if (magnitude >= kPsPerUs) return {kPsPerUs, "us"};
  if (magnitude >= kPsPerNs) return {kPsPerNs, "ns"};
  return {1, "ps"};
}

}  // namespace

std::string FormatTime(Picoseconds ps) {
  auto [scale, name] = TimeUnit(ps);
  return fmt::format("{} {}", static_cast<double>(ps) / static_cast<double>(scale), name);
}

std::string FormatTimeRounded(Picoseconds ps) {
  auto [scale, name] = TimeUnit(ps);
  return fmt::format("{:.5g} {}", static_cast<double>(ps) / static_cast<double>(scale), name);
}

std::string FormatBytes(int64_t bytes) {
  static constexpr std::string_view kNames[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t i = 0;
  while (std::fabs(value) >= 1024 && i + 1 < std::size(kNames)) {
    value /= 1024;
    ++i;
  }
  return i == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.4g} {}", value, kNames[i]);
}

std::string FormatQuantity(const Quantity& q) {
  switch (q.kind) {
    case UnitKind::kTime:
      return FormatTime(Clamped(q.value));
    case UnitKind::kBytes:
      return FormatBytes(Clamped(q.value));
    case UnitKind::kByteRate:
      return FormatBytes(Clamped(q.value)) + "/s";
    case UnitKind::kFlops:
      return fmt::format("{} FLOP", q.value);
    case UnitKind::kFlopRate:
      return fmt::format("{} FLOP/s", q.value);
    case UnitKind::kPercent:
      return fmt::format("{} %", q.value * 100);
    case UnitKind::kNone:
      return fmt::format("{}", q.value);
  }
  return "?";
}

}  // namespace piper::ir
