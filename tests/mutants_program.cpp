#include "tests/mutants_program.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>

#include "tests/mutants_model.h"

namespace piper::mutants {
namespace {

bool StartsWith(const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; }

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The whole number after the first `after`; -1 where there is none.
int NumberAfter(const std::string& text, const std::string& after) {
  const size_t at = text.find(after);
  return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + after.size());
}

std::string WordAfter(const std::string& text, const std::string& after) {
  size_t at = text.find(after);
  if (at == std::string::npos) return "";
  at += after.size();
  size_t end = at;
  while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_'))
    ++end;
  return text.substr(at, end - at);
}

Selected ReadSelected(const std::string& text) {
  Selected selected;
  selected.pass = text.substr(0, text.find('['));
  selected.stage = NumberAfter(text, "stage = ");
  selected.dir = std::max(0, NumberAfter(text, "dir = "));
  selected.mb = NumberAfter(text, "mb = ");
  for (const char* end : {"send", "recv", "offload.out", "offload.in", "update.validate", "dp.reduce",
                          "tie.reduce", "loss.reduce", "clip.norm"}) {
    if (Has(text, std::string("[") + end)) selected.end = end;
  }
  return selected;
}

Step ReadStep(const std::string& text, int line) {
  Step step;
  step.line = line;
  std::string rest = StartsWith(text, "fused(") ? text.substr(6) : text;
  for (size_t close; (close = rest.find(']')) != std::string::npos;) {
    step.parts.push_back(ReadSelected(rest.substr(0, close + 1)));
    rest.erase(0, close + 1);
    while (!rest.empty() && (rest[0] == ',' || rest[0] == ' ')) rest.erase(0, 1);
  }
  return step;
}

// "[ramp + unit, 2 * unit]": 2, 2.
std::vector<int> ReadParts(const std::string& text) {
  std::vector<int> counts;
  std::string inside = text.substr(text.find('[') + 1);
  inside.erase(inside.find(']'));
  std::istringstream parts(inside);
  for (std::string part; std::getline(parts, part, ',');) {
    std::istringstream terms(part);
    int count = 0;
    for (std::string term; std::getline(terms, term, '+');) {
      count += Has(term, "*") ? std::atoi(term.c_str()) : 1;
    }
    counts.push_back(count);
  }
  return counts;
}

Claimed ReadClaimed(const std::string& text, int line) {
  Claimed claimed;
  claimed.line = line;
  claimed.whole_stages = Has(text, "[stage");
  claimed.units_only = Has(text, "[unit]");
  if (Has(text, "stage = ")) {
    claimed.begin = NumberAfter(text, "stage = ");
    claimed.end = NumberAfter(text, "..");
  }
  if (Has(text, "prefetch ")) claimed.prefetch = NumberAfter(text, "prefetch ");
  return claimed;
}

EdgeLine ReadEdge(const std::string& text, int line) {
  EdgeLine edge;
  const size_t arrow = text.find(" -> ");
  edge.from = ReadSelected(text.substr(5, arrow - 5));
  edge.to = ReadSelected(text.substr(arrow + 4));
  edge.line = line;
  edge.distance = std::max(0, NumberAfter(text, " distance "));
  return edge;
}

}  // namespace

Strategy ReadStrategy(const std::string& text) {
  Strategy strategy;
  std::istringstream lines(text);
  int number = 0;
  bool inside = false, lanes = false;
  RankLists* order = nullptr;
  std::string stream;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    const std::string what = line.substr(begin);
    if (StartsWith(what, "strategy ")) inside = true;
    if (StartsWith(what, "clip ")) strategy.clips = true;
    if (!inside) continue;
    if (order != nullptr) {
      if (what == "lanes {") {
        lanes = true;
      } else if (what == "}" && lanes) {
        lanes = false;
        stream = "compute";
      } else if (what == "}") {
        order = nullptr;
      } else if (what.back() == ':') {
        stream = what.substr(0, what.size() - 1);
      } else if (what == "barrier") {
        order->steps.push_back({"", {number, {}}});
      } else {
        order->steps.push_back({stream, ReadStep(what, number)});
      }
    } else if (what == "}") {
      inside = false;
    } else if (StartsWith(what, "mesh ")) {
      strategy.ranks = NumberAfter(what, "pp = ");
      strategy.replicas = std::max(1, NumberAfter(what, "dp = "));
    } else if (StartsWith(what, "cut ")) {
      strategy.units_of_stage = ReadParts(what);
    } else if (StartsWith(what, "split batch into ")) {
      if (Has(what, "as dir, ")) {
        strategy.directions = NumberAfter(what, "split batch into ");
        strategy.microbatches_a_direction = NumberAfter(what, "as dir, ");
      } else {
        strategy.microbatches_a_direction = NumberAfter(what, "split batch into ");
      }
    } else if (StartsWith(what, "place ")) {
      strategy.places.push_back(
          {NumberAfter(what, "stage = "), NumberAfter(what, "dir = "), NumberAfter(what, "pp["), number});
    } else if (StartsWith(what, "stream ")) {
      const std::string moved = StartsWith(what, "stream BW ") ? "BW" : WordAfter(what, "[");
      const std::string name = moved == "offload" ? "offload.*" : moved == "dp" ? "dp.reduce" : moved;
      strategy.streams[name] = {WordAfter(what, " on "), number};
    } else if (StartsWith(what, "edge [update.validate] -> BW distance 1")) {
      strategy.carried = true;
      strategy.carried_line = number;
    } else if (StartsWith(what, "edge ")) {
      strategy.edges.push_back(ReadEdge(what, number));
    } else if (StartsWith(what, "limit ")) {
      strategy.limits.push_back(
          {NumberAfter(what, "limit "), NumberAfter(what, "stage = "), number, Has(what, " per mb")});
    } else if (StartsWith(what, "recompute ")) {
      strategy.recompute = ReadClaimed(what, number);
    } else if (StartsWith(what, "offload ")) {
      strategy.offload = ReadClaimed(what, number);
    } else if (StartsWith(what, "optimizer post_validation")) {
      strategy.post_validation = true;
    } else if (StartsWith(what, "order on ")) {
      order = &strategy.orders[NumberAfter(what, "pp[")];
      order->line = number;
      stream = "compute";
    }
  }
  return strategy;
}

std::set<int> WrongSizes(const std::string& dag_text, int64_t bytes) {
  std::map<std::string, std::pair<int, int64_t>> ends;  // name of the node: line, bytes
  std::set<int> wrong;
  std::istringstream lines(dag_text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!StartsWith(line, "node \"send ") && !StartsWith(line, "node \"recv ")) continue;
    const std::string name = line.substr(6, line.find('"', 6) - 6);
    const size_t at = line.rfind(" bytes ");
    const int64_t states = at == std::string::npos ? 0 : std::atoll(line.c_str() + at + 7);
    ends[name] = {number, states};
    if (states != bytes) wrong.insert(number);
  }
  for (const auto& [name, end] : ends) {
    auto other = ends.find((StartsWith(name, "send") ? "recv" : "send") + name.substr(4));
    if (other == ends.end() || other->second.second != end.second) wrong.insert(end.first);
  }
  return wrong;
}

}  // namespace piper::mutants
