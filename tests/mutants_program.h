// What the brute-force model (tests/mutants_model.h) reads of a program's text: its strategy, line by line,
// in the form in which tests/mutants_text.h writes it, one directive or step a line. It shares no code with
// the compiler and includes none of it.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace piper::mutants {

// F, B, BI, BW or R of a stage for a microbatch; or (with `end` "send" or "recv") the message that goes with
// it; or (with `end` "offload.out" or "offload.in", and no pass) the copies of a stage to the host and back.
struct Selected {
  std::string pass, end;
  int stage = -1, dir = 0, mb = -1;  // -1: not named
};
struct Step {
  int line = 0;
  std::vector<Selected> parts;  // several: fused; none: a barrier
};
struct Place {
  int stage = 0, dir = -1, rank = 0, line = 0;
};
struct EdgeLine {
  Selected from, to;
  int line = 0, distance = 0;
};
// `limit count live F[stage = s]`, or all of F (stage -1); `per_microbatch`: `.. per mb`.
struct LimitLine {
  int count = 0, stage = -1, line = 0;
  bool per_microbatch = false;
};
// What `recompute` or `offload` names: [unit], [stage], [*], or [stage = begin..end].
struct Claimed {
  int line = 0;  // 0: there is no such directive
  bool whole_stages = false, units_only = false;
  int begin = 0, end = 1 << 20;  // stages
  int prefetch = 1;
};
// What an order lists, in the order of the text: a step with the stream that it is for.
struct RankLists {
  int line = 0;  // of `order on`
  std::vector<std::pair<std::string, Step>> steps;
};
struct Strategy {
  int ranks = 0, replicas = 1, directions = 1, microbatches_a_direction = 1;
  std::vector<int> units_of_stage;
  std::vector<Place> places;
  // "send" | "recv" | "offload.*" | "BW": the stream and the line that says so.
  std::map<std::string, std::pair<std::string, int>> streams;
  std::map<int, RankLists> orders;
  std::vector<EdgeLine> edges;
  std::vector<LimitLine> limits;
  Claimed recompute, offload;
  bool post_validation = false, clips = false;
  // [update.validate] is carried into the next step, before the first BW there.
  bool carried = false;
  int carried_line = 0;

  int microbatches() const { return directions * microbatches_a_direction; }
};

// `text`: a whole program. Lines count from 1.
Strategy ReadStrategy(const std::string& text);

}  // namespace piper::mutants
