// Builds the RankProgram of one role from one Dag (training or evaluation): bodies, tasks in stream order,
// operands, waits, communicators. Slots get a buffer each, without an offset yet (memory.h packs them).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "ir/lower/dag_index.h"
#include "ir/lower/folding.h"
#include "ir/lower/job_storage.h"
#include "ir/lower/static_layout.h"
#include "ir/program/program.h"
#include "ir/support/diagnostics.h"

namespace piper::ir {

// What all roles of a job share.
struct JobContext {
  const Program& program;
  std::vector<Fold> folds;
  std::vector<uint32_t> role_of;                     // per device
  std::map<std::vector<uint32_t>, uint32_t> groups;  // device list -> index into JobStorage::groups
  JobStorage* job = nullptr;
  DiagnosticEngine* diag = nullptr;
};

// Who made the bytes of a forward value: its F, the R that replays it, or the [offload.in] that brings it
// back.
enum class Maker : uint8_t { kForward, kReplay, kFetch };

class RoleBuilder {
 public:
  RoleBuilder(JobContext* context, const DagIndex& index, const Fold& fold, const StaticLayout& layout,
              RoleStorage* out);
  void Build();

 private:
  // What a formal (or another operand) stands for, before a microbatch is chosen. Classes with one identity
  // through forwarding (Formal::alias_of) share the root's slots.
  struct SlotClass {
    uint32_t parent = kNone;  // kNone: a root
    uint32_t fixed = kNone;   // static buffer, the same for every microbatch
    uint32_t input = kNone;   // InputId: filled by a load
    int64_t bytes = 0;
    runtime::BufferKind kind = runtime::BufferKind::kActivation;
    DType type = DType::kF32;
    const char* name = "";
  };
  enum class KeyKind : uint8_t {
    kValue,
    kInput,
    kSaved,
    kCotangent,
    kGradient,
    kFixed,
    kHostValue,
    kHostSaved
  };
  struct Key {
    KeyKind kind;
    uint32_t a, b;
    Maker maker = Maker::kForward;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  // A template of this role.
  struct Local {
    TemplateId id = 0;
    const NodeTemplate* node = nullptr;
    int32_t mb_begin = 0, mb_end = 0;  // the node's
    uint32_t first_node = 0;           // into task_of_, minus mb_begin: index is first_node + microbatch
    uint32_t first_class = 0, class_count = 0;  // operand classes, formal order
    uint32_t accumulator = kNone;               // kAccumulate of microbatches: static buffer
    int32_t first_microbatch = INT32_MIN;       // of kAccumulate, in stream order: it assigns
    bool elided = false;                        // that first one is bound directly and needs no task
    bool plain = false;                         // compute or a message
    runtime::Task row{};                 // all but what depends on the microbatch; `origin`: the node's
    std::vector<uint32_t> predecessors;  // locals
    std::vector<uint32_t> inputs;        // root classes of batch fields that it reads
    // Gradients of a BW whose first contribution is written into the accumulator: (operand, local of the
    // accumulate).
    std::vector<std::pair<uint32_t, uint32_t>> direct;
  };
  struct Elided {
    uint32_t local = 0;
    int32_t microbatch = 0;
    uint32_t next_task = 0;  // the first task that would follow it on its stream
    uint32_t stream_index = 0;
  };

  void CollectLocals();
  void AddBodies();
  void BindBody(Local& local);
  void BindOthers(Local& local);
  uint32_t ClassOf(const Formal& formal, const Local& local);
  // `stream`: of the reader; each stream loads the batch fields that it reads, so that none waits for
  // another.
  uint32_t ClassOfValue(ValueId value, Maker maker = Maker::kForward, NameId stream = 0);
  // Whose bytes of a region's values a template of this role reads: its data edges say it.
  RegionId MadeBy(const NodeTemplate& copy) const;
  Maker MakerFor(const Local& reader, RegionId producer) const;
  uint32_t Intern(const Key& key, const SlotClass& fresh);
  uint32_t Root(uint32_t slot_class) const;
  uint32_t BufferFor(uint32_t slot_class, int32_t microbatch);
  uint32_t BufferFor(const Local& local, uint32_t c, int32_t microbatch);

  void PlanMessage(Local& local);
  void PlanCollective(Local& local);
  void PlanLossFold(Local& local);
  void PlanCopy(Local& local);
  uint32_t PeerSlot(const NodeTemplate& message);
  uint32_t CommunicatorSlot(const NodeTemplate& collective);
  void AddTerms(const Local& local, runtime::Collective& collective);
  // What the role of a device accumulates itself.
  const std::set<GradientRef>& AccumulatedBy(uint32_t device);

  void FindFirstAccumulates();
  void ReserveBuffers();
  void EmitStreams();
  void EmitLoads(const Local& local, int32_t microbatch);
  void EmitItem(const OrderItem& item);
  void EmitPlain(const Local& local, uint32_t l, int32_t microbatch, uint32_t origin);
  void EndAtomic();
  runtime::Buffer FreshBuffer(uint32_t slot_class);
  void CheckBytes(int64_t bytes, const char* name);
  runtime::Task& AddRow(const runtime::Task& row, uint32_t local);  // without operands
  void AddTask(const runtime::Task& row, uint32_t local, std::initializer_list<uint32_t> operands);
  void AddWaits();
  void AddScratch();

  JobContext& context_;
  const DagIndex& index_;
  const Dag& dag_;
  const Graph& graph_;
  const Fold& fold_;
  const StaticLayout& layout_;
  RoleStorage& out_;
  uint32_t device_;  // the role's first: represents all

  std::vector<TemplateId> templates_;
  std::vector<Local> locals_;
  std::vector<uint32_t> local_of_;  // per template
  std::vector<uint32_t> orders_;
  std::map<Key, uint32_t> class_index_;
  std::vector<SlotClass> classes_;
  std::vector<uint32_t> operand_classes_;
  std::vector<uint32_t> slots_;  // [class][microbatch]: buffer
  // Of operand_classes_: the static buffer, or where the class begins in slots_ and what a new slot is.
  struct OperandRow {
    uint32_t fixed;
    size_t first_slot;
    runtime::Buffer fresh;
  };
  std::vector<OperandRow> operand_rows_;
  std::map<std::pair<RegionId, Pass>, uint32_t> body_index_;
  std::map<uint32_t, std::set<GradientRef>> accumulated_by_;  // per role, whose ranks have the same templates
  std::map<GroupId, uint32_t> peer_slot_;
  std::map<std::pair<GroupId, bool>, uint32_t> communicator_slot_;
  std::vector<std::vector<uint32_t>> communicators_;  // per slot: devices, as device_ sees it
  std::vector<uint32_t> task_of_;                     // per local node: its (last) task
  std::vector<uint32_t> local_of_task_;               // kNone: a load
  bool reads_batch_ = false;                          // some local has inputs
  std::vector<Elided> elided_;
  std::map<uint32_t, std::vector<uint32_t>> load_of_;  // input class -> task a microbatch
  uint16_t stream_ = 0;                                // being emitted
  uint32_t atomic_ = kNone;                            // fused node being emitted
  uint32_t atomic_begin_ = kNone;                      // its first task, or that of the item being emitted
  Picoseconds atomic_cost_ =
      -1;  // its figure still to be given to its first task; -1: the parts have their own
  bool atomic_charged_ = false;
  bool refused_ = false;  // a buffer was too large
};

}  // namespace piper::ir
