#include "tests/mutants_model.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <tuple>

namespace piper::mutants {
namespace {

// ---- reading

// F, B, BI or BW of a stage for a microbatch, or (with `end` "send" or "recv") the message that goes with it.
struct Selected {
  std::string pass, end;
  int stage = -1, dir = 0, mb = -1;
};
struct Step {
  int line = 0;
  std::vector<Selected> parts;  // several: fused
};
struct Place {
  int stage = 0, dir = -1, rank = 0, line = 0;
};
struct EdgeLine {
  Selected from, to;
  int line = 0;
};
struct RankLists {
  int line = 0;  // of `order on`
  std::vector<std::pair<std::string, std::vector<Step>>> streams;
};
struct Strategy {
  int ranks = 0, directions = 1, microbatches_a_direction = 1;
  std::vector<int> units_of_stage;
  std::vector<Place> places;
  std::map<std::string, std::pair<std::string, int>>
      streams;  // "send" | "recv": the stream and the line that says so
  std::map<int, RankLists> orders;
  std::vector<EdgeLine> edges;

  int microbatches() const { return directions * microbatches_a_direction; }
};

bool StartsWith(const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; }

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
  for (const char* end : {"send", "recv"}) {
    if (text.find(std::string("[") + end) != std::string::npos) selected.end = end;
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
      count += term.find('*') == std::string::npos ? 1 : std::atoi(term.c_str());
    }
    counts.push_back(count);
  }
  return counts;
}

Strategy ReadStrategy(const std::string& text) {
  Strategy strategy;
  std::istringstream lines(text);
  int number = 0;
  bool inside = false;
  RankLists* order = nullptr;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const size_t begin = line.find_first_not_of(' ');
    if (begin == std::string::npos) continue;
    const std::string what = line.substr(begin);
    if (StartsWith(what, "strategy ")) inside = true;
    if (!inside) continue;
    if (order != nullptr) {
      if (what == "}") {
        order = nullptr;
      } else if (what.back() == ':') {
        order->streams.push_back({what.substr(0, what.size() - 1), {}});
      } else {
        if (order->streams.empty()) order->streams.push_back({"compute", {}});
        order->streams.back().second.push_back(ReadStep(what, number));
      }
    } else if (what == "}") {
      break;
    } else if (StartsWith(what, "mesh ")) {
      strategy.ranks = NumberAfter(what, "pp = ");
    } else if (StartsWith(what, "cut ")) {
      strategy.units_of_stage = ReadParts(what);
    } else if (StartsWith(what, "split batch into ")) {
      if (what.find("as dir, ") != std::string::npos) {
        strategy.directions = NumberAfter(what, "split batch into ");
        strategy.microbatches_a_direction = NumberAfter(what, "as dir, ");
      } else {
        strategy.microbatches_a_direction = NumberAfter(what, "split batch into ");
      }
    } else if (StartsWith(what, "place ")) {
      strategy.places.push_back(
          {NumberAfter(what, "stage = "), NumberAfter(what, "dir = "), NumberAfter(what, "pp["), number});
    } else if (StartsWith(what, "stream ")) {
      strategy.streams[WordAfter(what, "[")] = {WordAfter(what, "] on "), number};
    } else if (StartsWith(what, "edge ")) {
      const size_t arrow = what.find(" -> ");
      strategy.edges.push_back(
          {ReadSelected(what.substr(5, arrow - 5)), ReadSelected(what.substr(arrow + 4)), number});
    } else if (StartsWith(what, "order on ")) {
      order = &strategy.orders[NumberAfter(what, "pp[")];
      order->line = number;
    }
  }
  return strategy;
}

// ---- the step

enum PassIndex { kForward, kInput, kWeight };  // F, BI, BW
const char* const kPassNames[] = {"F", "BI", "BW"};

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
  int edge =
      -1;  // of Strategy::edges, whose message it is: nothing makes it, its send waits for what the edge says
};
struct Item {
  int line = 0;  // 0: no step lists it
  std::vector<Operation> operations;
  int message = -1;
  bool sends = false;
  int list = 0, previous = -1;             // the one before on its list
  std::vector<std::pair<int, int>> after;  // items that an `edge` wants done before, and its line
  bool done = false;
};

class Play {
 public:
  Play(const Strategy& strategy, const Chain& chain) : strategy_(strategy), chain_(chain) {}

  Verdict Run() {
    int unit = 0;
    for (size_t stage = 0; stage < strategy_.units_of_stage.size(); ++stage) {
      for (int i = 0; i < strategy_.units_of_stage[stage]; ++i, ++unit)
        stage_of_.push_back(static_cast<int>(stage));
    }
    if (unit != chain_.size()) return Wrong({}, "the cut does not cover the chain");
    if (!Account()) return verdict_;
    FindMessages();
    FindEdgeMessages();
    LayLists();
    if (verdict_.kind == Verdict::Kind::kWrong) return verdict_;
    while (Advance()) {
    }
    if (std::all_of(items_.begin(), items_.end(), [](const Item& item) { return item.done; })) {
      Folds();
    } else {
      Explain();
    }
    return verdict_;
  }

 private:
  Verdict Wrong(std::set<int> lines, std::string why) {
    verdict_.kind = Verdict::Kind::kWrong;
    verdict_.wrong_lines.insert(lines.begin(), lines.end());
    if (verdict_.why.empty()) verdict_.why = std::move(why);
    return verdict_;
  }
  const Place* PlaceOf(int stage, int mb) const {
    for (const Place& place : strategy_.places) {
      if (place.stage == stage && (place.dir < 0 || place.dir == mb / strategy_.microbatches_a_direction))
        return &place;
    }
    return nullptr;
  }
  int RankOf(int unit, int mb) const { return PlaceOf(stage_of_[unit], mb)->rank; }
  bool HasInputPass(int unit) const { return !chain_.units[unit].inputs.empty(); }
  std::string Name(const Operation& o) const {
    return std::string(kPassNames[o.pass]) + " " + chain_.units[o.unit].region + " mb " +
           std::to_string(o.mb);
  }

  // The operations of one selector, in the order in which a step does them: F up the chain, B down it, a
  // unit's BI and BW of a whole B as one.
  std::vector<std::vector<Operation>> Expand(const Selected& s) const {
    std::vector<std::vector<Operation>> groups;
    const int mb = s.dir * strategy_.microbatches_a_direction + s.mb;
    for (int i = 0; i < chain_.size(); ++i) {
      const int unit = s.pass == "F" ? i : chain_.size() - 1 - i;
      if (stage_of_[unit] != s.stage) continue;
      std::vector<Operation> group;
      if (s.pass == "F") group.push_back({kForward, unit, mb});
      if ((s.pass == "B" || s.pass == "BI") && HasInputPass(unit)) group.push_back({kInput, unit, mb});
      if (s.pass == "B" || s.pass == "BW") group.push_back({kWeight, unit, mb});
      if (!group.empty()) groups.push_back(group);
    }
    return groups;
  }

  // Every pass of every unit for every microbatch exactly once, on the rank that holds the unit's parameters
  // for it.
  bool Account() {
    std::map<Operation, std::vector<int>> lines;
    for (const auto& [rank, order] : strategy_.orders) {
      for (const auto& [stream, steps] : order.streams) {
        if (stream != "compute") continue;
        for (const Step& step : steps) {
          for (const Selected& part : step.parts) {
            if (!part.end.empty()) continue;
            for (const auto& group : Expand(part)) {
              for (const Operation& o : group) {
                if (RankOf(o.unit, o.mb) != rank) {
                  Wrong({step.line},
                        Name(o) + " on rank " + std::to_string(rank) + ", which does not hold it");
                }
                lines[o].push_back(step.line);
              }
            }
          }
        }
      }
    }
    for (int unit = 0; unit < chain_.size(); ++unit) {
      for (int mb = 0; mb < strategy_.microbatches(); ++mb) {
        for (int pass : {kForward, kInput, kWeight}) {
          if (pass == kInput && !HasInputPass(unit)) continue;
          const Operation o{pass, unit, mb};
          const std::vector<int>& at = lines[o];
          if (at.empty()) {
            Wrong({strategy_.orders.at(RankOf(unit, mb)).line}, Name(o) + " never happens");
          } else if (at.size() > 1) {
            Wrong(std::set<int>(at.begin(), at.end()),
                  Name(o) + " happens " + std::to_string(at.size()) + " times");
          }
        }
      }
    }
    return verdict_.kind != Verdict::Kind::kWrong;
  }

  void FindMessages() {
    for (int mb = 0; mb < strategy_.microbatches(); ++mb) {
      for (int unit = 0; unit < chain_.size(); ++unit) {
        const int here = RankOf(unit, mb);
        std::map<int, int> first_reader;  // on a rank
        for (int reader : chain_.ReadersOf(unit)) first_reader.emplace(RankOf(reader, mb), reader);
        for (const auto& [rank, reader] : first_reader) {
          if (rank == here) continue;
          messages_.push_back(
              {here, rank, {unit, -1, mb}, {kForward, unit, mb}, stage_of_[unit], stage_of_[reader]});
        }
        for (int input : chain_.units[unit].inputs) {
          const int there = RankOf(input, mb);
          if (there == here) continue;
          messages_.push_back(
              {here, there, {input, unit, mb}, {kInput, unit, mb}, stage_of_[unit], stage_of_[input]});
        }
      }
    }
  }

  // An edge between steps of two ranks is a message without content.
  void FindEdgeMessages() {
    for (size_t e = 0; e < strategy_.edges.size(); ++e) {
      const EdgeLine& edge = strategy_.edges[e];
      if (!edge.from.end.empty() || !edge.to.end.empty()) continue;
      const int from = RankOfSelected(edge.from), to = RankOfSelected(edge.to);
      if (from == to) continue;
      Message message;
      message.from = from;
      message.to = to;
      message.send_stage = edge.from.stage;
      message.recv_stage = edge.to.stage;
      message.datum = {-1 - static_cast<int>(e), -1,
                       edge.from.dir * strategy_.microbatches_a_direction + edge.from.mb};
      message.edge = static_cast<int>(e);
      messages_.push_back(message);
    }
  }
  int RankOfSelected(const Selected& s) const {
    return PlaceOf(s.stage, s.dir * strategy_.microbatches_a_direction + s.mb)->rank;
  }
  bool IsMade(const Message& message) const { return message.edge >= 0 || done_.count(message.producer) > 0; }

  int NewList() {
    lists_.emplace_back();
    return static_cast<int>(lists_.size()) - 1;
  }
  int Add(Item item, int list) {
    item.list = list;
    item.previous = lists_[list].empty() ? -1 : lists_[list].back();
    const int id = static_cast<int>(items_.size());
    items_.push_back(std::move(item));
    lists_[list].push_back(id);
    return id;
  }
  void AddMessage(int message, bool sends, int line, int list) {
    Item item;
    item.line = line;
    item.message = message;
    item.sends = sends;
    const int id = Add(item, list);
    int& end = sends ? messages_[message].send_item : messages_[message].recv_item;
    if (end >= 0) Wrong({line}, "a message is listed twice");
    end = id;
  }
  // The messages that a step of a list of messages names.
  std::vector<int> Named(int rank, const Selected& s) const {
    std::vector<int> found;
    const bool sends = s.end == "send";
    const int mb = s.dir * strategy_.microbatches_a_direction + s.mb;
    for (size_t i = 0; i < messages_.size(); ++i) {
      const Message& message = messages_[i];
      if (message.edge >= 0) continue;
      if ((sends ? message.from : message.to) != rank || message.datum.mb != mb) continue;
      if ((sends ? message.send_stage : message.recv_stage) != s.stage) continue;
      if ((message.datum.from < 0) != (s.pass == "F")) continue;
      found.push_back(static_cast<int>(i));
    }
    return found;
  }
  std::string StreamOf(bool sends) const {
    auto found = strategy_.streams.find(sends ? "send" : "recv");
    return found == strategy_.streams.end() ? (sends ? "send" : "recv") : found->second.first;
  }

  void LayLists() {
    std::map<Operation, std::pair<int, int>> position;  // of an operation: (item, place within)
    std::map<std::pair<int, std::string>, std::vector<std::pair<int, int>>>
        listed;  // (rank, stream): (message, line)
    for (const auto& [rank, order] : strategy_.orders) {
      const int compute = NewList();
      for (const auto& [stream, steps] : order.streams) {
        for (const Step& step : steps) {
          if (!step.parts[0].end.empty()) {
            const std::vector<int> named = Named(rank, step.parts[0]);
            // Which of two would come first is a rule of the compiler's; our programs do not ask for it.
            if (named.size() != 1)
              Wrong({step.line}, "a step names " + std::to_string(named.size()) + " messages");
            for (int message : named) {
              if (stream == "compute") {
                AddMessage(message, step.parts[0].end == "send", step.line, compute);
              } else {
                listed[{rank, stream}].push_back({message, step.line});
              }
            }
            continue;
          }
          Item fused;
          fused.line = step.line;
          for (const Selected& part : step.parts) {
            for (const auto& group : Expand(part)) {
              if (step.parts.size() > 1) {
                fused.operations.insert(fused.operations.end(), group.begin(), group.end());
                continue;
              }
              Item item;
              item.line = step.line;
              item.operations = group;
              const int id = Add(item, compute);
              for (size_t i = 0; i < group.size(); ++i) position[group[i]] = {id, static_cast<int>(i)};
            }
          }
          if (step.parts.size() > 1) {
            const int id = Add(fused, compute);
            for (size_t i = 0; i < fused.operations.size(); ++i)
              position[fused.operations[i]] = {id, static_cast<int>(i)};
          }
        }
      }
    }
    for (const auto& [o, at] : position) item_of_[o] = at.first;
    // What no list of messages names goes to the streams of ordered pairs: sends in the order of what makes
    // them, receives in the order of the sends.
    for (int from = 0; from < strategy_.ranks; ++from) {
      for (int to = 0; to < strategy_.ranks; ++to) {
        std::vector<int> pair;
        for (size_t i = 0; i < messages_.size(); ++i) {
          if (messages_[i].from == from && messages_[i].to == to) pair.push_back(static_cast<int>(i));
        }
        std::stable_sort(pair.begin(), pair.end(), [&](int a, int b) {
          return Sent(messages_[a], position) < Sent(messages_[b], position);
        });
        for (bool sends : {true, false}) {
          if (StreamOf(sends) != (sends ? "send" : "recv")) continue;
          const auto& list = listed[{sends ? from : to, sends ? "send" : "recv"}];
          std::vector<std::pair<int, int>> ordered;
          for (const auto& [message, line] : list) {
            if (messages_[message].from == from && messages_[message].to == to)
              ordered.push_back({message, line});
          }
          if (ordered.empty()) {
            for (int message : pair) ordered.push_back({message, 0});
          } else if (ordered.size() != pair.size()) {
            Wrong({}, "a list leaves a message of its pair out");
          }
          if (sends) {
            pair.clear();
            for (const auto& [message, line] : ordered) pair.push_back(message);
          }
          const int stream = NewList();
          for (const auto& [message, line] : ordered) AddMessage(message, sends, line, stream);
        }
      }
    }
    for (const auto& [key, entries] : listed) {
      if (key.second == "send" || key.second == "recv") continue;
      const int stream = NewList();
      for (const auto& [message, line] : entries) {
        AddMessage(message, messages_[message].from == key.first, line, stream);
      }
    }
    for (const Message& message : messages_) {
      if (message.send_item < 0 || message.recv_item < 0) Wrong({}, "a message has only one end");
    }
    heads_.assign(lists_.size(), 0);
    for (const Message& message : messages_) {
      if (message.edge < 0) continue;
      const EdgeLine& edge = strategy_.edges[static_cast<size_t>(message.edge)];
      for (int from : ItemsOf(edge.from)) items_[message.send_item].after.push_back({from, edge.line});
      for (int to : ItemsOf(edge.to)) items_[to].after.push_back({message.recv_item, edge.line});
    }
    for (const EdgeLine& edge : strategy_.edges) {
      if (edge.from.end.empty() && edge.to.end.empty() &&
          RankOfSelected(edge.from) != RankOfSelected(edge.to))
        continue;
      for (int to : ItemsOf(edge.to)) {
        for (int from : ItemsOf(edge.from)) items_[to].after.push_back({from, edge.line});
      }
    }
  }
  // The items that do what a selector names; of a message, the end on its own rank.
  std::set<int> ItemsOf(const Selected& s) {
    std::set<int> items;
    if (s.end.empty()) {
      for (const auto& group : Expand(s)) {
        for (const Operation& o : group) items.insert(item_of_.at(o));
      }
      return items;
    }
    for (int rank = 0; rank < strategy_.ranks; ++rank) {
      for (int message : Named(rank, s)) {
        items.insert(s.end == "send" ? messages_[message].send_item : messages_[message].recv_item);
      }
    }
    return items;
  }
  bool Allowed(const Item& item) const {
    return std::all_of(item.after.begin(), item.after.end(), [&](const auto& edge) {
      return items_[edge.first].done || &items_[edge.first] == &item;
    });
  }

  // Where a message stands among the sends of its pair: behind what makes it, an edge's behind all of that.
  std::pair<int, int> Sent(const Message& message, std::map<Operation, std::pair<int, int>>& position) const {
    if (message.edge < 0) return position[message.producer];
    int last = -1;
    for (const auto& group : Expand(strategy_.edges[static_cast<size_t>(message.edge)].from)) {
      for (const Operation& o : group) last = std::max(last, position[o].first);
    }
    return {last, 1 << 30};
  }

  // What an operation needs on its rank.
  void Needs(const Operation& o, std::vector<Datum>* data, std::vector<Operation>* operations) const {
    if (o.pass == kForward) {
      for (int input : chain_.units[o.unit].inputs) data->push_back({input, -1, o.mb});
      return;
    }
    operations->push_back({kForward, o.unit, o.mb});
    for (int reader : chain_.ReadersOf(o.unit)) data->push_back({o.unit, reader, o.mb});
    if (o.pass == kWeight && HasInputPass(o.unit)) operations->push_back({kInput, o.unit, o.mb});
  }
  Operation MakerOf(const Datum& datum) const {
    return datum.from < 0 ? Operation{kForward, datum.of, datum.mb} : Operation{kInput, datum.from, datum.mb};
  }
  bool Have(int rank, const Datum& datum, const std::set<Operation>& within) const {
    return have_.count({rank, datum}) > 0 || within.count(MakerOf(datum)) > 0;
  }
  bool CanRun(const Item& item) const {
    std::set<Operation> within;  // what its own parts have made so far
    for (const Operation& o : item.operations) {
      std::vector<Datum> data;
      std::vector<Operation> operations;
      Needs(o, &data, &operations);
      const int rank = RankOf(o.unit, o.mb);
      for (const Datum& datum : data) {
        if (!Have(rank, datum, within)) return false;
      }
      for (const Operation& needed : operations) {
        if (!done_.count(needed) && !within.count(needed)) return false;
      }
      within.insert(o);
    }
    return true;
  }
  bool IsHead(int item) const {
    const std::vector<int>& list = lists_[items_[item].list];
    const size_t head = heads_[items_[item].list];
    return head < list.size() && list[head] == item;
  }
  void Pop(int item) {
    items_[item].done = true;
    ++heads_[items_[item].list];
  }

  // One sweep over the heads of all lists; false: nothing can move.
  bool Advance() {
    bool moved = false;
    for (size_t list = 0; list < lists_.size(); ++list) {
      while (heads_[list] < lists_[list].size()) {
        const int id = lists_[list][heads_[list]];
        if (items_[id].message >= 0) {
          Message& message = messages_[items_[id].message];
          if (!IsMade(message)) break;
          if (!Allowed(items_[message.send_item]) || !Allowed(items_[message.recv_item])) break;
          if (!IsHead(items_[id].sends ? message.recv_item : message.send_item)) break;
          have_.insert({message.to, message.datum});
          Pop(message.send_item);
          Pop(message.recv_item);
        } else {
          if (!CanRun(items_[id]) || !Allowed(items_[id])) break;
          Do(items_[id]);
          Pop(id);
        }
        moved = true;
      }
    }
    return moved;
  }
  void Do(const Item& item) {
    if (verdict_.executed.empty() || verdict_.executed.back() != item.line)
      verdict_.executed.push_back(item.line);
    for (const Operation& o : item.operations) {
      const int rank = RankOf(o.unit, o.mb);
      done_.insert(o);
      if (o.pass == kForward) have_.insert({rank, {o.unit, -1, o.mb}});
      if (o.pass == kInput) {
        for (int input : chain_.units[o.unit].inputs) have_.insert({rank, {input, o.unit, o.mb}});
      }
    }
  }

  // A copy of a stage is a rank that has it: two directions on one rank are one copy.
  void Folds() {
    verdict_.folds.resize(chain_.units.size());
    std::vector<std::vector<int>> ranks(chain_.units.size());  // of the copies
    for (int unit = 0; unit < chain_.size(); ++unit) {
      for (int mb = 0; mb < strategy_.microbatches(); ++mb) {
        const int rank = RankOf(unit, mb);
        if (std::find(ranks[unit].begin(), ranks[unit].end(), rank) == ranks[unit].end())
          ranks[unit].push_back(rank);
      }
      verdict_.folds[unit].resize(ranks[unit].size());
    }
    for (const std::vector<int>& list : lists_) {
      for (int id : list) {
        for (const Operation& o : items_[id].operations) {
          if (o.pass != kWeight) continue;
          const auto copy = std::find(ranks[o.unit].begin(), ranks[o.unit].end(), RankOf(o.unit, o.mb));
          verdict_.folds[o.unit][copy - ranks[o.unit].begin()].push_back(o.mb);
        }
      }
    }
  }

  // The cycles of what is stuck: strongly connected components of "waits for" (Tarjan).
  void Explain() {
    verdict_.kind = Verdict::Kind::kStuck;
    const int count = static_cast<int>(items_.size() + messages_.size());
    std::vector<std::vector<int>> waits(count);
    const auto node_of = [&](int item) {
      return items_[item].message < 0 ? item : static_cast<int>(items_.size()) + items_[item].message;
    };
    for (int id = 0; id < static_cast<int>(items_.size()); ++id) {
      const Item& item = items_[id];
      if (item.done) continue;
      if (item.line > 0) verdict_.stuck_steps.insert(item.line);
      std::vector<int>& out = waits[node_of(id)];
      if (item.previous >= 0 && !items_[item.previous].done) out.push_back(node_of(item.previous));
      for (const auto& [from, line] : item.after) {
        if (!items_[from].done && from != id) out.push_back(node_of(from));
      }
      if (item.message >= 0) {
        const Message& message = messages_[item.message];
        if (!IsMade(message)) out.push_back(item_of_.at(message.producer));
        continue;
      }
      for (size_t i = 0; i < item.operations.size(); ++i) {
        const Operation& o = item.operations[i];
        std::vector<Datum> data;
        std::vector<Operation> operations;
        Needs(o, &data, &operations);
        const int rank = RankOf(o.unit, o.mb);
        for (const Datum& datum : data) {
          if (have_.count({rank, datum})) continue;
          int arrives = -1;
          for (size_t m = 0; m < messages_.size(); ++m) {
            if (messages_[m].to == rank && messages_[m].datum == datum)
              arrives = static_cast<int>(items_.size() + m);
          }
          if (arrives < 0) operations.push_back(MakerOf(datum));
          if (arrives >= 0) out.push_back(arrives);
        }
        for (const Operation& needed : operations) {
          if (done_.count(needed)) continue;
          const int maker = item_of_.at(needed);
          // Parts of one fused node may need each other, but only in the order in which they stand.
          const auto here = std::find(item.operations.begin(), item.operations.end(), needed);
          if (here == item.operations.end()) out.push_back(maker);
          if (here != item.operations.end() &&
              here - item.operations.begin() > static_cast<std::ptrdiff_t>(i)) {
            out.push_back(id);
          }
        }
      }
    }
    std::vector<int> index(count, -1), low(count, 0), component(count, -1), stack;
    int next = 0, components = 0;
    std::vector<int> size;
    std::function<void(int)> visit = [&](int node) {
      index[node] = low[node] = next++;
      stack.push_back(node);
      for (int to : waits[node]) {
        if (index[to] < 0) {
          visit(to);
          low[node] = std::min(low[node], low[to]);
        } else if (component[to] < 0) {
          low[node] = std::min(low[node], index[to]);
        }
      }
      if (low[node] != index[node]) return;
      size.push_back(0);
      for (int member = -1; member != node;) {
        member = stack.back();
        stack.pop_back();
        component[member] = components;
        ++size[components];
      }
      ++components;
    };
    for (int node = 0; node < count; ++node) {
      if (index[node] < 0) visit(node);
    }
    const auto on_cycle = [&](int node) {
      return size[component[node]] > 1 ||
             std::find(waits[node].begin(), waits[node].end(), node) != waits[node].end();
    };
    for (int id = 0; id < static_cast<int>(items_.size()); ++id) {
      const Item& item = items_[id];
      if (item.done || !on_cycle(node_of(id))) continue;
      if (item.line > 0) verdict_.cycle_steps.insert(item.line);
      for (const auto& [from, line] : item.after) {
        if (component[node_of(from)] == component[node_of(id)]) verdict_.cycle_lines.insert(line);
      }
      const auto from_stage = [&](int stage, int mb) {
        verdict_.cycle_lines.insert(PlaceOf(stage, mb)->line);
      };
      for (const Operation& o : item.operations) from_stage(stage_of_[o.unit], o.mb);
      if (item.message < 0) continue;
      const Message& message = messages_[item.message];
      from_stage(item.sends ? message.send_stage : message.recv_stage, message.datum.mb);
      auto stream = strategy_.streams.find(item.sends ? "send" : "recv");
      if (stream != strategy_.streams.end()) verdict_.cycle_lines.insert(stream->second.second);
    }
    verdict_.cycle_lines.insert(verdict_.cycle_steps.begin(), verdict_.cycle_steps.end());
    verdict_.why = std::to_string(verdict_.stuck_steps.size()) + " steps never happen, " +
                   std::to_string(verdict_.cycle_steps.size()) + " of them on cycles";
  }

  const Strategy& strategy_;
  const Chain& chain_;
  Verdict verdict_;
  std::vector<int> stage_of_;  // a unit
  std::vector<Message> messages_;
  std::vector<Item> items_;
  std::vector<std::vector<int>> lists_;
  std::vector<size_t> heads_;
  std::map<Operation, int> item_of_;
  std::set<Operation> done_;
  std::set<std::pair<int, Datum>> have_;
};

}  // namespace

Verdict Judge(const std::string& text, const Chain& chain) {
  const Strategy strategy = ReadStrategy(text);
  return Play(strategy, chain).Run();
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
