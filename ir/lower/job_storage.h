// What a runtime::Job points at. A JobStorage owns the strings and tables of a job as vectors; whoever builds
// one (lowering, the RankProgram tests) fills the vectors, calls Seal() once, and from then on `job()` is a
// set of views that stay valid until the storage is destroyed. Nothing is validated here: ir/lower/verify.h
// does that.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/program.h"

namespace piper::ir {

// The tables behind one runtime::RankProgram. Field for field the same, with vectors for spans.
struct RoleStorage {
  struct Rank {
    uint32_t rank = 0;
    uint32_t replica = 0;
    std::vector<uint32_t> peers;   // a peer slot
    std::vector<uint32_t> groups;  // a communicator slot
  };
  struct HeldParameter {
    runtime::Parameter row;  // `dims` is set by Seal
    std::vector<int64_t> dims;
  };

  const char* name = "";  // interned in the JobStorage
  std::vector<Rank> ranks;
  std::vector<runtime::Body> bodies;
  std::vector<runtime::Call> calls;
  std::vector<runtime::CallOperand> call_operands;
  std::vector<int64_t> call_ints;
  std::vector<double> call_scalars;
  std::vector<runtime::Buffer> buffers;
  std::vector<HeldParameter> parameters;
  std::vector<runtime::Stream> streams;
  std::vector<runtime::Task> tasks;
  std::vector<uint32_t> task_operands;
  std::vector<uint32_t> waits;
  std::vector<runtime::Collective> collectives;
  std::vector<runtime::Term> terms;
  std::vector<uint32_t> peer_roles;
  std::vector<uint32_t> communicator_sizes;
  std::vector<runtime::Slowdown> slowdowns;
  uint32_t loss_scale = runtime::kNone;
  uint32_t loss = runtime::kNone;
  int64_t arena_bytes = 0;
  int64_t static_bytes = 0;
  int64_t live_bytes = 0;
  int64_t host_bytes = 0;
};

class JobStorage {
 public:
  JobStorage();
  JobStorage(const JobStorage&) = delete;
  JobStorage& operator=(const JobStorage&) = delete;

  // A NUL-terminated copy that lives as long as the storage; equal text gives the same pointer.
  const char* Intern(std::string_view text);
  // Index into Job::strings; equal text gives the same index. Entry 0 is "".
  uint32_t InternString(std::string_view text);
  const char* Text(uint32_t string) const { return strings_[string]; }
  // Gives back what only the interning of further texts needs; it is made again where one comes.
  void ForgetIndex();

  // References stay valid until Seal().
  RoleStorage& AddTrainRole();
  RoleStorage& AddEvalRole();
  std::deque<RoleStorage>& train_roles() { return train_; }
  std::deque<RoleStorage>& eval_roles() { return eval_; }

  // Tables of the job itself. `header` carries its scalar fields; Seal overwrites the spans.
  runtime::Job header{};
  std::vector<uint32_t> rank_role;
  std::vector<uint32_t> rank_device;
  std::vector<std::vector<uint32_t>> groups;
  std::vector<runtime::InputField> inputs;
  std::vector<runtime::Optimizer> optimizers;

  // Makes (or, after a change of the tables, makes again) every span, and sets rank_count and, unless told
  // not to, plan_hash.
  void Seal(bool with_hash = true);
  // The views of one train role again, after its tables (not its ranks or parameters) have changed.
  const runtime::RankProgram& SealTrainRole(size_t role);
  // Seal with a plan hash that is known.
  void SealAs(const std::string& plan_hash);
  const runtime::Job& job() const { return job_; }
  // Bytes held by the tables, for the bound on memory a node.
  int64_t MemoryBytes() const;

 private:
  static void SetViews(const RoleStorage& role, runtime::RankProgram* program);
  std::vector<runtime::RankProgram> Programs(std::deque<RoleStorage>& roles,
                                             std::deque<std::vector<runtime::RankRow>>& rows,
                                             std::deque<std::vector<runtime::Parameter>>& parameters);

  void RememberIndex();

  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, const char*> interned_;
  std::unordered_map<std::string_view, uint32_t> string_index_;
  std::vector<const char*> strings_;
  std::deque<RoleStorage> train_, eval_;
  std::deque<std::vector<runtime::RankRow>> train_rows_, eval_rows_;
  std::deque<std::vector<runtime::Parameter>> train_parameters_, eval_parameters_;
  std::vector<runtime::RankProgram> train_programs_, eval_programs_;
  std::vector<std::span<const uint32_t>> group_spans_;
  runtime::Job job_{};
};

// XXH3 (64 bits, 16 hex digits) of what decides the numbers and the layout of a plan: programs, groups,
// optimizers, batch split. Predicted times, names of source lines, step counts and data paths are left out.
std::string PlanHash(const runtime::Job& job);

// The same, train program after train program, while each is at hand.
class PlanHasher {
 public:
  explicit PlanHasher(size_t train_programs);
  ~PlanHasher();
  void Add(const runtime::RankProgram& program);
  std::string Finish(const runtime::Job& job);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piper::ir
