// Hand-built pipeline Jobs for the tests of the clock and the proofs: one rank a role, an explicit list of
// steps a rank, one send and one receive stream for each ordered pair of ranks. No bodies, no memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "ir/lower/job_storage.h"
#include "ir/model/body.h"

namespace piper::ir::testing {

struct PipelineStep {
  Pass pass = Pass::kF;  // kF; kBI stands for a whole backward (BI and BW in one task)
  int stage = 0;
  int microbatch = 0;
  int fused = -1;  // equal values on neighbouring steps: one fused node
};
using RankSteps = std::vector<PipelineStep>;

struct PipelineCosts {
  int64_t forward = 1, backward = 2;
  int64_t transfer = 0;  // of a boundary between ranks
  bool pure_latency = true;
  int64_t bytes = 0;
};

// Streams of communication in a rank's program: one for each (kind, peer), or everything on "compute", or one
// "comm".
enum class CommunicationStreams { kPairs, kCompute, kSingle };

inline std::vector<RankSteps> GPipe(int p, int m) {
  std::vector<RankSteps> steps(p);
  for (int r = 0; r < p; ++r) {
    for (int i = 0; i < m; ++i) steps[r].push_back({Pass::kF, r, i});
    for (int i = 0; i < m; ++i) steps[r].push_back({Pass::kBI, r, i});
  }
  return steps;
}

inline std::vector<RankSteps> OneFOneB(int p, int m) {
  std::vector<RankSteps> steps(p);
  for (int r = 0; r < p; ++r) {
    const int warm = std::min(m, p - r - 1);
    for (int i = 0; i < warm; ++i) steps[r].push_back({Pass::kF, r, i});
    for (int i = 0; i < m - warm; ++i) {
      steps[r].push_back({Pass::kF, r, warm + i});
      steps[r].push_back({Pass::kBI, r, i});
    }
    for (int i = m - warm; i < m; ++i) steps[r].push_back({Pass::kBI, r, i});
  }
  return steps;
}

// v chunks a rank; stage = chunk * p + rank. m % p == 0, else the textbook order deadlocks.
inline std::vector<RankSteps> Interleaved(int p, int v, int m) {
  std::vector<RankSteps> steps(p);
  const int total = m * v;
  for (int r = 0; r < p; ++r) {
    const auto forward = [&](int k) {
      return PipelineStep{Pass::kF, (k / p) % v * p + r, k / (p * v) * p + k % p};
    };
    const auto backward = [&](int k) {
      return PipelineStep{Pass::kBI, (v - 1 - (k / p) % v) * p + r, k / (p * v) * p + k % p};
    };
    const int warm = std::min(total, (v - 1) * p + 2 * (p - 1 - r));
    for (int k = 0; k < warm; ++k) steps[r].push_back(forward(k));
    for (int k = warm; k < total; ++k) {
      steps[r].push_back(forward(k));
      steps[r].push_back(backward(k - warm));
    }
    for (int k = total - warm; k < total; ++k) steps[r].push_back(backward(k));
  }
  return steps;
}

class PipelineJob {
 public:
  PipelineJob(const std::vector<RankSteps>& steps, int stages, const PipelineCosts& costs,
              CommunicationStreams communication = CommunicationStreams::kPairs)
      : ranks_(static_cast<int>(steps.size())), stages_(stages), costs_(costs) {
    storage_ = std::make_unique<JobStorage>();
    std::vector<std::vector<Stream>> streams(steps.size());
    for (int r = 0; r < ranks_; ++r) streams[r].push_back({"compute", {}});
    // In the sender's order, so that both ends of a pair agree.
    for (int r = 0; r < ranks_; ++r) {
      for (const PipelineStep& step : steps[r]) AddStep(streams, r, step, communication);
    }
    if (communication == CommunicationStreams::kPairs) AddReceivesInSenderOrder(streams, steps);
    for (int r = 0; r < ranks_; ++r) Emit(streams, r);
    storage_->header.microbatches = 1;
    for (int r = 0; r < ranks_; ++r) storage_->rank_role.push_back(static_cast<uint32_t>(r));
    storage_->Seal();
  }

  const runtime::Job& job() const { return storage_->job(); }
  JobStorage& storage() { return *storage_; }

 private:
  struct Row {
    runtime::TaskKind kind;
    Pass pass;
    int stage, microbatch;  // of messages: the stage that sends
    int peer;
    uint32_t atomic = runtime::kNone;
  };
  struct Stream {
    std::string name;
    std::vector<Row> rows;
  };
  using Streams = std::vector<std::vector<Stream>>;

  int RankOf(int stage) const { return stage % ranks_; }

  std::vector<Row>& Get(Streams& streams, int rank, const std::string& name) {
    for (Stream& stream : streams[rank]) {
      if (stream.name == name) return stream.rows;
    }
    streams[rank].push_back({name, {}});
    return streams[rank].back().rows;
  }
  // The stage that gets what `pass` of `stage` computes, or -1.
  int Consumer(Pass pass, int stage) const {
    const int other = pass == Pass::kF ? stage + 1 : stage - 1;
    return other < 0 || other >= stages_ ? -1 : other;
  }
  int Producer(Pass pass, int stage) const {
    const int other = pass == Pass::kF ? stage - 1 : stage + 1;
    return other < 0 || other >= stages_ ? -1 : other;
  }
  void AddStep(Streams& streams, int r, const PipelineStep& step, CommunicationStreams communication) {
    const int source = Producer(step.pass, step.stage), target = Consumer(step.pass, step.stage);
    const bool merged = communication != CommunicationStreams::kPairs;
    const std::string merged_name = communication == CommunicationStreams::kCompute ? "compute" : "comm";
    if (merged && source >= 0 && RankOf(source) != r) {
      Get(streams, r, merged_name)
          .push_back({runtime::TaskKind::kRecv, step.pass, source, step.microbatch, RankOf(source)});
    }
    Get(streams, r, "compute")
        .push_back({runtime::TaskKind::kCompute, step.pass, step.stage, step.microbatch, -1,
                    static_cast<uint32_t>(step.fused)});
    if (target >= 0 && RankOf(target) != r) {
      const std::string name = merged ? merged_name : "send>" + std::to_string(RankOf(target));
      Get(streams, r, name)
          .push_back({runtime::TaskKind::kSend, step.pass, step.stage, step.microbatch, RankOf(target)});
    }
  }
  void AddReceivesInSenderOrder(Streams& streams, const std::vector<RankSteps>& steps) {
    for (int r = 0; r < ranks_; ++r) {
      for (const PipelineStep& step : steps[r]) {
        const int target = Consumer(step.pass, step.stage);
        if (target < 0 || RankOf(target) == r) continue;
        Get(streams, RankOf(target), "recv<" + std::to_string(r))
            .push_back({runtime::TaskKind::kRecv, step.pass, step.stage, step.microbatch, r});
      }
    }
  }
  void Emit(Streams& streams, int r) {
    RoleStorage& role = storage_->AddTrainRole();
    role.name = storage_->Intern("role" + std::to_string(r));
    RoleStorage::Rank row{static_cast<uint32_t>(r), 0, {}, {}};
    std::map<std::tuple<int, int, int, int>, uint32_t> done;  // (kind, pass, stage, microbatch) -> task
    uint32_t task = 0;
    for (const Stream& stream : streams[r]) {
      for (const Row& x : stream.rows) {
        done[{static_cast<int>(x.kind), static_cast<int>(x.pass), x.stage, x.microbatch}] = task++;
      }
    }
    for (int peer = 0; peer < ranks_; ++peer) {
      row.peers.push_back(static_cast<uint32_t>(peer));
      role.peer_roles.push_back(static_cast<uint32_t>(peer));
    }
    role.ranks.push_back(row);
    for (uint16_t s = 0; s < streams[r].size(); ++s) {
      const Stream& stream = streams[r][s];
      role.streams.push_back({storage_->Intern(stream.name), static_cast<uint32_t>(role.tasks.size()),
                              static_cast<uint32_t>(stream.rows.size()), static_cast<uint8_t>(s == 0)});
      for (const Row& x : stream.rows) {
        runtime::Task t{};
        t.kind = x.kind;
        t.stream = s;
        t.microbatch = x.microbatch;
        t.atomic = x.atomic;
        t.first_wait = static_cast<uint32_t>(role.waits.size());
        const auto wait_on = [&](runtime::TaskKind kind, Pass pass, int stage) {
          auto found = done.find({static_cast<int>(kind), static_cast<int>(pass), stage, x.microbatch});
          if (found == done.end() || StreamOfTask(streams[r], found->second) == s) return;
          role.waits.push_back(found->second);
          ++t.wait_count;
        };
        if (x.kind == runtime::TaskKind::kCompute) {
          t.flag = static_cast<uint8_t>(x.pass);
          t.cost = x.pass == Pass::kF ? costs_.forward : costs_.backward;
          t.key = static_cast<uint32_t>(x.stage);
          const int source = Producer(x.pass, x.stage);
          if (source >= 0) wait_on(runtime::TaskKind::kRecv, x.pass, source);
        } else {
          t.flag = costs_.pure_latency;
          t.cost = costs_.transfer;
          t.bytes = costs_.bytes;
          t.argument = static_cast<uint32_t>(x.peer);
          t.key = 2 * static_cast<uint32_t>(x.stage) + (x.pass == Pass::kF ? 0 : 1);
          if (x.kind == runtime::TaskKind::kSend) wait_on(runtime::TaskKind::kCompute, x.pass, x.stage);
        }
        t.name =
            storage_->InternString(std::string(x.kind == runtime::TaskKind::kCompute ? ""
                                               : x.kind == runtime::TaskKind::kSend  ? "send "
                                                                                     : "recv ") +
                                   (x.pass == Pass::kF ? "F" : "B") + " stage" + std::to_string(x.stage));
        role.tasks.push_back(t);
      }
    }
  }
  static uint16_t StreamOfTask(const std::vector<Stream>& streams, uint32_t task) {
    uint16_t s = 0;
    while (task >= streams[s].rows.size()) task -= static_cast<uint32_t>(streams[s++].rows.size());
    return s;
  }

  int ranks_, stages_;
  PipelineCosts costs_;
  std::unique_ptr<JobStorage> storage_;
};

// `ranks` devices of one kind under one link.
inline Topology FlatTopology(uint32_t ranks, Link link = {}) {
  Topology topology;
  topology.name = "flat";
  topology.kinds.push_back({"device", 0, 0, {}, {}});
  topology.device_kind.assign(ranks, 0);
  topology.levels.push_back({"node", {{0, ranks, link}}});
  return topology;
}

}  // namespace piper::ir::testing
