// What the brute-force model (tests/mutants_model.h) makes of a strategy and plays: operations of units, the
// data that they need, messages, and the items of the ranks' lists.
#pragma once

#include <compare>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace piper::mutants {

// F, BI, BW; R, which makes again what F has made; what F leaves on its way to the host, and back.
enum PassIndex { kForward, kInput, kWeight, kReplay, kOut, kIn };
inline const char* const kPassNames[] = {"F", "BI", "BW", "R", "offload.out", "offload.in"};
constexpr int kStepsOverlapped = 3;

struct Operation {
  int pass = 0, unit = 0, mb = 0;
  friend auto operator<=>(const Operation&, const Operation&) = default;
};
// What a rank can have: the value of a unit, or the partial cotangent of unit `of` from unit `from`.
struct Datum {
  int of = 0, from = -1, mb = 0;
  friend auto operator<=>(const Datum&, const Datum&) = default;
};
struct Message {
  int from = 0, to = 0;  // ranks
  Datum datum;
  Operation producer;
  int send_stage = 0, recv_stage = 0;
  int send_item = -1, recv_item = -1;
  // Of Strategy::edges, whose message it is: nothing makes it, its send waits for what the edge says.
  int edge = -1;
};
struct Item {
  int line = 0;  // 0: no step lists it
  std::vector<Operation> operations;
  int message = -1;
  bool sends = false;
  int meeting = -1;
  int list = 0, previous = -1;             // the one before on its list
  std::vector<std::pair<int, int>> after;  // items that an `edge` wants done before, and its line
  bool done = false;
};

// What several ranks do at once.
struct Meeting {
  std::string name;  // "dp.reduce", ..
  int stage = -1;    // of a dp.reduce
  std::set<int> ranks;
  std::vector<Operation> needs;  // all must have been done
  std::vector<int> after;        // meetings that must have been
  std::vector<int> items;        // one a rank
  bool met = false;
};

}  // namespace piper::mutants
