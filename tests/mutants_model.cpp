#include "tests/mutants_model.h"

#include <algorithm>
#include <tuple>

#include "tests/mutants_cycles.h"
#include "tests/mutants_items.h"
#include "tests/mutants_layout.h"
#include "tests/mutants_program.h"

namespace piper::mutants {
namespace {

// ---- the step

class Play : private Layout {
 public:
  Play(const Strategy& strategy, const Chain& chain) : Layout(strategy, chain) {}

  Verdict Run() {
    if (!covers()) return Wrong({}, "the cut does not cover the chain");
    if (!Account()) return verdict_;
    CheckDistances();
    FindMessages();
    FindEdgeMessages();
    LayLists();
    LayCopies();
    if (strategy_.carried) LayValidation();
    if (strategy_.carried && strategy_.streams.count("BW") > 0)
      Wrong({strategy_.streams.at("BW").second, strategy_.carried_line},
            "steps overlap with one stream only");
    AddEdges();
    AddBarriers();
    if (strategy_.offload.line > 0) BoundCopies();
    CheckLimits();
    if (verdict_.kind == Verdict::Kind::kWrong) return verdict_;
    // A rank begins a step when its part of the one before is over, and nothing of a step waits for a later
    // one: so to play whole steps one after the other is one way in which they can go, and if any way ends,
    // all do.
    const int steps = strategy_.carried ? kStepsOverlapped : 1;
    for (int step = 0; step < steps; ++step) {
      Reset();
      while (Advance()) {
      }
      if (!std::all_of(items_.begin(), items_.end(), [](const Item& item) { return item.done; })) {
        Explain();
        return verdict_;
      }
    }
    Folds();
    return verdict_;
  }

 private:
  Verdict Wrong(std::set<int> lines, std::string why) {
    verdict_.kind = Verdict::Kind::kWrong;
    verdict_.wrong_lines.insert(lines.begin(), lines.end());
    if (verdict_.why.empty()) verdict_.why = std::move(why);
    return verdict_;
  }
  // Every pass of every unit for every microbatch exactly once, on the rank that holds the unit's parameters
  // for it.
  bool Account() {
    std::map<Operation, std::vector<int>> lines;
    for (const auto& [rank, order] : strategy_.orders) {
      for (const auto& [stream, step] : order.steps) {
        for (const Selected& part : step.parts) {
          if (IsMessage(part) || IsCollective(part)) continue;
          for (const auto& group : Expand(part)) {
            for (const Operation& o : group) {
              if (RankOf(o.unit, o.mb) != rank) {
                Wrong({step.line}, Name(o) + " on rank " + std::to_string(rank) + ", which does not hold it");
              }
              if (o.pass <= kWeight && stream != ComputesOn(o.pass)) {
                Wrong({step.line}, Name(o) + " on stream " + stream);
              }
              lines[o].push_back(step.line);
            }
          }
        }
      }
    }
    for (int unit = 0; unit < chain_.size(); ++unit) {
      for (int mb = 0; mb < strategy_.microbatches(); ++mb) {
        for (int pass : {kForward, kInput, kWeight, kReplay, kOut, kIn}) {
          if (pass == kInput && !HasInputPass(unit)) continue;
          const Operation o{pass, unit, mb};
          const std::vector<int>& at = lines[o];
          if (at.empty() && pass > kWeight) continue;  // those stand where they are needed
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

  // An edge into the next step needs a rank that does both.
  void CheckDistances() {
    for (const EdgeLine& edge : strategy_.edges) {
      if (edge.distance > 1) Wrong({edge.line}, "an edge reaches over more than one step");
      if (edge.distance == 1 && RankOfSelected(edge.from) != RankOfSelected(edge.to))
        Wrong({edge.line}, "an edge reaches into another rank's next step");
    }
  }

  // An edge between steps of two ranks is a message without content.
  void FindEdgeMessages() {
    for (size_t e = 0; e < strategy_.edges.size(); ++e) {
      const EdgeLine& edge = strategy_.edges[e];
      if (!edge.from.end.empty() || !edge.to.end.empty() || edge.distance > 0) continue;
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
        listed;                                       // (rank, stream): (message, line)
    std::map<int, std::vector<int>> sent_on_compute;  // by rank
    for (const auto& [rank, order] : strategy_.orders) {
      const int compute = NewList();
      compute_[rank] = compute;
      const int beside = NewList();   // what computes on a stream of its own
      const int reduces = NewList();  // collectives
      const int sums = NewList();     // those that have another stream
      int segment = 0;
      for (const auto& [stream, step] : order.steps) {
        if (step.parts.empty()) {
          barriers_.push_back({rank, segment++, step.line});
          continue;
        }
        if (IsCopy(step.parts[0])) {
          for (const auto& group : Expand(step.parts[0]))
            copies_[{rank, stream}].push_back({group[0], step.line});
          continue;
        }
        if (IsCollective(step.parts[0])) {
          AddCollective(rank, stream, step,
                        stream == "compute"  ? compute
                        : stream == "reduce" ? reduces
                                             : sums);
          continue;
        }
        if (!step.parts[0].end.empty()) {
          const std::vector<int> named = Named(rank, step.parts[0]);
          // Which of two would come first is a rule of the compiler's; our programs do not ask for it.
          if (named.size() != 1)
            Wrong({step.line}, "a step names " + std::to_string(named.size()) + " messages");
          for (int message : named) {
            if (stream == "compute") {
              AddMessage(message, step.parts[0].end == "send", step.line, compute);
              if (step.parts[0].end == "send") sent_on_compute[rank].push_back(message);
            } else {
              listed[{rank, stream}].push_back({message, step.line});
            }
            placed_.push_back({rank, segment, -1, message, step.parts[0].end == "send"});
          }
          continue;
        }
        const int list = stream == "compute" ? compute : beside;
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
            const int id = Add(item, list);
            placed_.push_back({rank, segment, id});
            for (size_t i = 0; i < group.size(); ++i) position[group[i]] = {id, static_cast<int>(i)};
          }
        }
        if (step.parts.size() > 1 && !fused.operations.empty()) {
          const int id = Add(fused, list);
          placed_.push_back({rank, segment, id});
          for (size_t i = 0; i < fused.operations.size(); ++i)
            position[fused.operations[i]] = {id, static_cast<int>(i)};
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
        // Sends that were moved to a stream and are listed there: the receiver posts in that order.
        if (const std::string& stream = StreamOf(true); stream != "send") {
          std::vector<int> in_order = stream == "compute" ? sent_on_compute[from] : std::vector<int>();
          for (const auto& [message, line] : listed[{from, stream}]) in_order.push_back(message);
          std::erase_if(in_order, [&](int message) {
            return messages_[message].from != from || messages_[message].to != to;
          });
          if (in_order.size() == pair.size()) pair = in_order;
        }
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
  }

  void AddCollective(int rank, const std::string& stream, const Step& step, int list) {
    const Selected& s = step.parts[0];
    if (meetings_.empty()) meetings_ = Collectives();
    for (size_t i = 0; i < meetings_.size(); ++i) {
      Meeting& meeting = meetings_[i];
      if (meeting.name != s.end || (s.stage >= 0 && meeting.stage != s.stage) || !meeting.ranks.count(rank))
        continue;
      if (stream != CollectivesOn(meeting)) Wrong({step.line}, s.end + " on stream " + stream);
      Item item;
      item.line = step.line;
      item.meeting = static_cast<int>(i);
      for (int other : meeting.items) {
        if (rank_of_item_[other] == rank) Wrong({step.line, items_[other].line}, s.end + " is listed twice");
      }
      meeting.items.push_back(Add(item, list));
      rank_of_item_[meeting.items.back()] = rank;
    }
  }

  // What leaves for the host and comes back, on the lists that say so; else in the order of the F, and in
  // that of the first readers.
  void LayCopies() {
    if (strategy_.offload.line == 0) return;
    for (const auto& [rank, compute] : compute_) {
      std::vector<std::pair<Operation, int>> out, in;
      std::set<Operation> seen;
      for (int id : lists_[compute]) {
        for (const Operation& o : items_[id].operations) {
          if (o.pass == kForward && Names(strategy_.offload, o.unit))
            out.push_back({{kOut, o.unit, o.mb}, 0});
          for (const Operation& fetched : Fetched(o)) {
            if (seen.insert(fetched).second) in.push_back({fetched, 0});
          }
        }
      }
      std::set<Operation> listed;
      for (const auto& [key, copies] : copies_) {
        if (key.first != rank) continue;
        const int list = NewList();
        for (const auto& [o, line] : copies) {
          AddCopy(o, line, list);
          listed.insert(o);
        }
      }
      for (const auto& copies : {out, in}) {
        const auto is_listed = [&](const auto& copy) { return listed.count(copy.first) > 0; };
        if (std::all_of(copies.begin(), copies.end(), is_listed)) continue;
        if (std::any_of(copies.begin(), copies.end(), is_listed)) Wrong({}, "a list leaves a copy out");
        const int list = NewList();
        for (const auto& [o, line] : copies) AddCopy(o, line, list);
      }
    }
  }
  void AddCopy(const Operation& o, int line, int list) {
    Item item;
    item.line = line;
    item.operations = {o};
    item_of_[o] = Add(item, list);
  }
  // Copies come back `prefetch` units ahead at most: those of one may start when all has been done that
  // stands before the first reader of the one that is so many before it.
  void BoundCopies() {
    for (const auto& [rank, compute] : compute_) {
      std::vector<std::pair<int, std::vector<int>>> arrivals;  // what stands before the first reader; copies
      std::map<std::pair<int, int>, size_t> index;             // by unit or stage, and microbatch
      std::set<int> seen;
      for (int id : lists_[compute]) {
        for (const Operation& o : items_[id].operations) {
          for (const Operation& fetched : Fetched(o)) {
            const int copy = item_of_.at(fetched);
            if (!seen.insert(copy).second) continue;
            const int unit = strategy_.offload.whole_stages ? stage_of_[fetched.unit] : fetched.unit;
            auto [at, fresh] = index.try_emplace({unit, o.mb}, arrivals.size());
            if (fresh) arrivals.push_back({items_[id].previous, {}});
            arrivals[at->second].second.push_back(copy);
          }
        }
      }
      for (size_t i = static_cast<size_t>(strategy_.offload.prefetch); i < arrivals.size(); ++i) {
        const int before = arrivals[i - static_cast<size_t>(strategy_.offload.prefetch)].first;
        for (int copy : arrivals[i].second) {
          if (before >= 0) items_[copy].after.push_back({before, strategy_.offload.line});
        }
      }
    }
  }

  // The check of the step before: it goes by the norm of all ranks, and stands before the first BW, which
  // overwrites what it judges.
  void LayValidation() {
    meetings_.push_back({"clip.norm", -1, {}, {}, {}, {}, false});
    for (const auto& [rank, compute] : compute_) {
      Item norm;
      norm.meeting = static_cast<int>(meetings_.size()) - 1;
      const int met = Add(norm, NewList());
      meetings_.back().items.push_back(met);
      Item check;
      check.after.push_back({met, 0});
      check.list = compute;
      std::vector<int>& list = lists_[compute];
      const auto first = std::find_if(list.begin(), list.end(), [&](int id) {
        const std::vector<Operation>& done = items_[id].operations;
        return std::any_of(done.begin(), done.end(), [](const Operation& o) { return o.pass == kWeight; });
      });
      check.previous = first == list.begin() ? -1 : *std::prev(first);
      const int id = static_cast<int>(items_.size());
      items_.push_back(check);
      if (first != list.end()) items_[*first].previous = id;
      list.insert(first, id);
    }
  }

  // Everything that a rank has listed before a barrier is done before anything that it lists after it.
  void AddBarriers() {
    for (const Barrier& barrier : barriers_) {
      Item item;
      item.line = barrier.line;
      const int id = Add(item, NewList());
      for (const Placed& placed : placed_) {
        if (placed.rank != barrier.rank) continue;
        int other = placed.item;
        if (placed.message >= 0)
          other = placed.sends ? messages_[placed.message].send_item : messages_[placed.message].recv_item;
        if (placed.segment <= barrier.segment) {
          items_[id].after.push_back({other, barrier.line});
        } else {
          items_[other].after.push_back({id, barrier.line});
        }
      }
    }
  }

  // What F starts lives until the last backward pass on its rank that reads what it left.
  void CheckLimits() {
    for (const LimitLine& limit : strategy_.limits) {
      const auto key = [&](int unit, int mb) { return std::pair(limit.per_microbatch ? 0 : unit, mb); };
      const auto counts = [&](int unit) { return limit.stage < 0 || stage_of_[unit] == limit.stage; };
      for (const auto& [rank, compute] : compute_) {
        std::map<std::pair<int, int>, int> left;  // reads
        for (int id : lists_[compute]) {
          for (const Operation& o : items_[id].operations) {
            for (int unit : ReadBy(o)) left[key(unit, o.mb)] += counts(unit);
          }
        }
        std::set<std::pair<int, int>> alive;
        bool kept = true;
        for (int id : lists_[compute]) {
          for (const Operation& o : items_[id].operations) {
            if (o.pass == kForward && counts(o.unit) && left[key(o.unit, o.mb)] > 0)
              alive.insert(key(o.unit, o.mb));
            kept = kept && static_cast<int>(alive.size()) <= limit.count;
            for (int unit : ReadBy(o)) {
              if (counts(unit) && --left[key(unit, o.mb)] == 0) alive.erase(key(unit, o.mb));
            }
          }
        }
        if (!kept) Wrong({limit.line}, "more live on rank " + std::to_string(rank) + " than the limit");
      }
    }
  }
  void AddEdges() {
    for (const Message& message : messages_) {
      if (message.edge < 0) continue;
      const EdgeLine& edge = strategy_.edges[static_cast<size_t>(message.edge)];
      for (int from : ItemsOf(edge.from)) items_[message.send_item].after.push_back({from, edge.line});
      for (int to : ItemsOf(edge.to)) items_[to].after.push_back({message.recv_item, edge.line});
    }
    for (const EdgeLine& edge : strategy_.edges) {
      if (edge.distance > 0) continue;
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
    if (o.pass == kIn) {
      operations->push_back({kOut, o.unit, o.mb});
      return;
    }
    operations->push_back({kForward, o.unit, o.mb});
    if (o.pass == kReplay || o.pass == kOut) return;
    // Listed, it stands for itself; else it stands right before.
    if (item_of_.count({kReplay, o.unit, o.mb})) operations->push_back({kReplay, o.unit, o.mb});
    for (const Operation& fetched : Fetched(o)) operations->push_back(fetched);
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

  void Reset() {
    heads_.assign(lists_.size(), 0);
    for (Item& item : items_) item.done = false;
    for (Meeting& meeting : meetings_) meeting.met = false;
    done_.clear();
    have_.clear();
    verdict_.executed.clear();
  }
  bool CanMeet(const Meeting& meeting) const {
    return std::all_of(meeting.items.begin(), meeting.items.end(),
                       [&](int item) { return IsHead(item) && Allowed(items_[item]); }) &&
           std::all_of(meeting.needs.begin(), meeting.needs.end(),
                       [&](const Operation& o) { return done_.count(o) > 0; }) &&
           std::all_of(meeting.after.begin(), meeting.after.end(),
                       [&](int other) { return meetings_[other].met || meetings_[other].items.empty(); });
  }

  // One sweep over the heads of all lists; false: nothing can move.
  bool Advance() {
    bool moved = false;
    for (size_t list = 0; list < lists_.size(); ++list) {
      while (heads_[list] < lists_[list].size()) {
        const int id = lists_[list][heads_[list]];
        if (items_[id].meeting >= 0) {
          Meeting& meeting = meetings_[items_[id].meeting];
          if (!CanMeet(meeting)) break;
          meeting.met = true;
          for (int item : meeting.items) Pop(item);
        } else if (items_[id].message >= 0) {
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
    if (item.line > 0 && (verdict_.executed.empty() || verdict_.executed.back() != item.line))
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

  // The cycles of what is stuck.
  void Explain() {
    verdict_.kind = Verdict::Kind::kStuck;
    const int count = static_cast<int>(items_.size() + messages_.size() + meetings_.size());
    std::vector<std::vector<int>> waits(count);
    const auto node_of = [&](int item) {
      const int items = static_cast<int>(items_.size()), messages = static_cast<int>(messages_.size());
      if (items_[item].meeting >= 0) return items + messages + items_[item].meeting;
      return items_[item].message < 0 ? item : items + items_[item].message;
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
      if (item.meeting >= 0) {
        for (const Operation& o : meetings_[item.meeting].needs) {
          if (!done_.count(o)) out.push_back(item_of_.at(o));
        }
        for (int other : meetings_[item.meeting].after) {
          if (!meetings_[other].met && !meetings_[other].items.empty())
            out.push_back(node_of(meetings_[other].items[0]));
        }
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
    const Cycles cycles(waits);
    for (int id = 0; id < static_cast<int>(items_.size()); ++id) {
      const Item& item = items_[id];
      if (item.done || !cycles.On(node_of(id))) continue;
      if (item.line > 0) verdict_.cycle_steps.insert(item.line);
      for (const auto& [from, line] : item.after) {
        if (cycles.Same(node_of(from), node_of(id))) verdict_.cycle_lines.insert(line);
      }
      const auto from_stage = [&](int stage, int mb) {
        verdict_.cycle_lines.insert(PlaceOf(stage, mb)->line);
      };
      for (const Operation& o : item.operations) {
        from_stage(stage_of_[o.unit], o.mb);
        if (o.pass == kReplay) verdict_.cycle_lines.insert(strategy_.recompute.line);
        if (o.pass == kOut || o.pass == kIn) verdict_.cycle_lines.insert(strategy_.offload.line);
      }
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

  struct Barrier {
    int rank = 0, segment = 0, line = 0;  // it stands behind that segment
  };
  // What an order lists, but copies.
  struct Placed {
    int rank = 0, segment = 0, item = -1, message = -1;
    bool sends = false;
  };

  Verdict verdict_;
  std::vector<Message> messages_;
  std::vector<Meeting> meetings_;
  std::map<int, int> rank_of_item_;  // of meetings
  std::vector<Item> items_;
  std::vector<std::vector<int>> lists_;
  std::map<int, int> compute_;  // a rank's list of computation
  std::vector<Barrier> barriers_;
  std::vector<Placed> placed_;
  std::map<std::pair<int, std::string>, std::vector<std::pair<Operation, int>>> copies_;  // as listed; lines
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

}  // namespace piper::mutants
