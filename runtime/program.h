// RankProgram: the one contract between the compiler and everything that runs or times a plan. For a *role* (a class
// of ranks with the same program) it says all that happens in one step: streams of ordered tasks, the waits between
// them, memory to the byte, and what differs from rank to rank as a small table. The interpreter, the emitted
// executables and the simulator consume exactly this. It knows nothing of strategies, schedules or sharding.
//
// Everything is a view (std::span, const char*) over plain rows, so that codegen can print a program as constexpr
// tables and the compiler can back it by vectors (ir/lower/job_storage.h). Indices are positions in the spans of
// the same RankProgram unless a comment says otherwise. All times are integer picoseconds, all sizes bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace piper::runtime {

constexpr uint32_t kNone = UINT32_MAX;
constexpr int64_t kAlignment = 64;  // of every buffer's offset

enum class ElementType : uint8_t { kF32, kF64, kBF16, kI32 };
constexpr int64_t ElementBytes(ElementType type) {
  return type == ElementType::kF64 ? 8 : type == ElementType::kBF16 ? 2 : 4;
}

// ---- bodies --------------------------------------------------------------------------------------------------

// What a body sees when it runs.
struct BodyContext {
  void* const* operands;   // one pointer a formal, in formal order
  std::byte* scratch;      // Body::scratch_bytes, 64-byte aligned
  uint64_t seed;           // of the run
  uint64_t step;           // 0-based
  uint64_t first_sample;   // index within the global batch of the slice's sample 0
  uint32_t current_call;   // set by bodies before each call: names the operation when something is not finite
  // Check mode only, else null: looks at all that the body has written so far.
  void (*check)(BodyContext& context) = nullptr;
  void* check_state = nullptr;
};
// How emitted bodies begin their call `call`, counted from 0 within the body. Where the body has rows in
// RankProgram::calls (emitted programs may keep them for their `operation` alone), a report names that operation.
inline void BeginCall(BodyContext& context, uint32_t call) {
  context.current_call = call;
  if (context.check != nullptr) [[unlikely]] context.check(context);
}
using BodyFunction = void (*)(BodyContext& context);

struct CallOperand {
  uint8_t local;           // 0: a formal, 1: a byte offset into the scratch
  uint32_t value;          // formal index, or byte offset / 64
};

struct Call {
  const char* kernel;      // a name of kernels/registry.h
  uint32_t first_operand, operand_count;  // into RankProgram::call_operands
  uint32_t first_int, int_count;          // into call_ints
  uint32_t first_scalar, scalar_count;    // into call_scalars
  uint64_t random_key;
  const char* operation;   // model path: "blocks.3.attn#2"
};

// One (region, pass). `function` is the emitted code; when it is null the calls are interpreted.
struct Body {
  const char* name;        // "layer_attn_fwd"
  BodyFunction function;
  uint32_t first_call, call_count;  // into calls; 0 calls in emitted programs
  uint32_t formal_count;
  int64_t scratch_bytes;
};

// ---- memory --------------------------------------------------------------------------------------------------

// A buffer is a byte range of the rank's one arena, or (kHost) of its pool of host memory. Static ones live for the whole run; the others are slots whose
// lives were packed by the compiler (strict mode: assigned once, so no allocation in the step loop).
enum class BufferKind : uint8_t {
  kParameter, kOptimizerState, kGradient, kScalar,  // static
  kInput,        // a batch field of one microbatch
  kActivation,   // forward values and saved values
  kCotangent,
  kTransient,    // a gradient contribution of one microbatch, before its accumulate
  kScratch,      // one per stream that computes
  kMessage,      // landing space that a transport needs
  kSaved,        // static: the copy of a parameter and its optimizer state that kValidate restores
  kHost,         // what kCopy moved out of the arena; `offset` is into the host pool
};
struct Buffer {
  int64_t offset;
  int64_t bytes : 48;      // a plan has millions of buffers
  BufferKind kind : 8;
  ElementType type : 8;
  const char* name;        // "layer3.attn.out mb 2"
};

struct Initializer {
  uint8_t kind;            // 0 zeros, 1 ones, 2 constant a, 3 normal(0, a), 4 uniform[a, b)
  double a, b;
};

// A parameter that this role holds. Element counts are of the held tensor.
struct Parameter {
  const char* name;        // unique in the job: "blocks.3.attn.wqkv"
  int64_t elements;
  std::span<const int64_t> dims;
  Initializer init;
  uint32_t value;          // buffer
  uint32_t gradient;       // buffer of the final gradient, kNone if frozen
  uint32_t state[2];       // optimizer state buffers (momentum | m, v), kNone where unused
  uint32_t optimizer;      // index into Job::optimizers, kNone if frozen
  double weight_decay;     // already resolved for this parameter
  uint32_t global_index;   // position in model order, the same in every role: keys checkpoints and the norm
  uint8_t owner;           // 1: members with replica 0 of this role save it and count it in the norm
  uint32_t saved = kNone;  // buffer of kSave's copy: value, then each used state, padded to kAlignment each; kNone:
                           // its updates are not validated
};

// ---- tasks ---------------------------------------------------------------------------------------------------

enum class TaskKind : uint8_t {
  kLoad,        // fills operand 0 with batch field `argument` of the task's microbatch
  kCompute,     // runs body `argument` on the operands; `flag`: the pass, 0 F, 1 BI, 2 BW, 3 R
  kAccumulate,  // operand 0 += operand 1; `flag` set: operand 0 = operand 1 (first term). Elements: bytes / size.
  kSend,        // operand 0 to peer slot `argument`; completes when the receive has taken it. `flag` set (also on the
                // receive): the whole cost is latency, the streams are not held (a `cost [send]` figure in time).
                // Without operands it carries nothing: an edge between ranks
  kRecv,        // operand 0 from peer slot `argument`; none: see kSend
  kCollective,  // Collective `argument`; `flag` set (also on kValidate): carried, see RankProgram
  kSumSquares,  // writes sums of squares of owned final gradients to operand 0: f64 per Job parameter, 0 if not owned.
                // Operand 1, if any: one f64, the sum of those that this role owns, on all its replicas alike
  kClip,        // reads operand 0 (f64 per parameter, reduced); scales every final gradient if the norm exceeds clip
  kUpdate,      // optimizer step of parameter `argument`; `flag` set: kValidate judges it later, so it happens unless
                // kPartialSquares has found that the gradient will be clipped, or that a value is not finite
  kLossFold,    // operand 0 = left fold of operands 1.. (one f32 a microbatch, ascending)
  kBarrier,     // nothing; orders streams
  kSave,        // copies every parameter with `saved`, and its optimizer state, there
  kValidate,    // reads operand 0 (f64 per parameter, reduced): where the norm exceeds clip, restores what kSave copied,
                // scales the gradients and repeats the updates; where it is not finite, restores
  kPartialSquares,  // operand 0 = operand 1 (+ operand 2): squares of this rank's gradients and of the ranks before
                    // it, one f64 each; decides what the updates of the step assume until kValidate judges them
  kCopy,        // operand 0 to operand 1, 2 to 3, ..: of each pair one is in the host pool. `flag` 0: to the host, 1: back
};

struct Task {
  TaskKind kind;
  uint8_t flag;
  uint16_t stream;
  int32_t microbatch;      // -1: none
  uint32_t argument;       // see TaskKind
  uint32_t first_operand, operand_count;  // into task_operands: buffer indices, in the body's formal order
  uint32_t first_wait, wait_count;        // into waits: tasks of this rank on other streams that must be complete
  int64_t bytes;           // payload of messages and collectives; elements' bytes of accumulates
  int64_t cost;            // predicted picoseconds: of compute, of a whole transfer (equal at both ends), of a whole
                           // collective once all its members are there
  uint32_t name;           // into Job::strings: "F layer3.attn"
  uint32_t origin;         // into Job::strings: "gpt.piper:20:5", or 0
  uint32_t atomic;         // tasks with the same value (not kNone) are one fused node: start together, end together
  uint32_t key = kNone;    // messages: the same at both ends of a transfer and (with the microbatch) nowhere else in the
                           // job. kCompute: the stage copy that it belongs to; activations are counted by it
};

struct Stream {
  const char* name;        // "compute", "send>1", "recv<0", "reduce"
  uint32_t first_task, task_count;  // consecutive in RankProgram::tasks, in stream order
  uint8_t computes;        // 1: tasks occupy the device's compute units
  uint32_t scratch = kNone;  // buffer that its bodies use as scratch; kNone: none of them needs any
};

// Predicted contention: while tasks of both streams run at once on a device, each progresses at 1000 / thousandths of
// its rate. For the clock alone.
struct Slowdown {
  uint32_t stream, with;
  uint32_t thousandths;    // 1000 <= thousandths <= 2000; at 1000 streams that compute do not share the units either
};

enum class CollectiveKind : uint8_t { kAllReduce, kReduceScatter, kAllGather, kAllToAll, kBroadcast };

// How a reduction adds up its terms t0, t1, ..: never by their arrival, so either is bitwise reproducible.
enum class FoldKind : uint8_t {
  kLeft,      // ((t0 + t1) + t2) + ..: the canonical one
  kPairwise,  // a tree: n > 1 terms are the sum of the first 2^k, the largest such power below n, and of the rest
};

// A joint operation of the members of one communicator.
struct Term {
  uint32_t member;         // position in the communicator
  uint32_t contribution;   // which of that member's contributions
};
struct Collective {
  CollectiveKind kind;
  ElementType type;
  uint32_t communicator;   // communicator slot of this role
  int64_t elements;        // of the whole tensor
  uint32_t first_term, term_count;  // kAllReduce, kReduceScatter: into `terms`; empty: one a member, ascending
  uint32_t contributions;  // of *this* role's members: task operands [0, contributions); then one output (may be
                           // contribution 0: in place), absent with 0 outputs
  const char* name;        // "dp.reduce layer3.attn", unique in the job: members match by it
  FoldKind fold = FoldKind::kLeft;  // of the terms, in their order
};

// What a member of the role knows of itself.
struct RankRow {
  uint32_t rank;
  uint32_t replica;                    // linear data-parallel index: which samples it reads
  std::span<const uint32_t> peers;     // rank a peer slot
  std::span<const uint32_t> groups;    // index into Job::groups a communicator slot
};

// One step of a rank, which begins when its own part of the step before is over; ranks need not wait for each other.
// Carried tasks are of the step before, on values that stand in static buffers: the first step goes without them, and
// what they say of the last one takes a run of them alone.
struct RankProgram {
  const char* name;                    // "role0": also the executable's name
  std::span<const RankRow> ranks;      // ascending by rank
  std::span<const Body> bodies;
  std::span<const Call> calls;
  std::span<const CallOperand> call_operands;
  std::span<const int64_t> call_ints;
  std::span<const double> call_scalars;
  std::span<const Buffer> buffers;
  std::span<const Parameter> parameters;
  std::span<const Stream> streams;
  std::span<const Task> tasks;
  std::span<const uint32_t> task_operands;
  std::span<const uint32_t> waits;
  std::span<const Collective> collectives;
  std::span<const Term> terms;
  std::span<const uint32_t> peer_roles;          // role a peer slot (all members' peers have it)
  std::span<const uint32_t> communicator_sizes;  // members a communicator slot
  uint32_t loss_scale;                 // buffer of one f32: 1 / targets of the step; kNone if this role has no loss
  uint32_t loss;                       // buffer of one f32 holding the step's loss after the step; kNone: unknown here
  int64_t arena_bytes;                 // what the executor allocates, exactly
  int64_t static_bytes;                // parameters, gradients, optimizer state, scalars
  int64_t live_bytes = 0;              // largest live set of the planned order, static bytes and scratch included
  int64_t host_bytes = 0;              // of the host pool, which the executor allocates beside the arena
  std::span<const Slowdown> slowdowns = {};
};

// ---- the job -------------------------------------------------------------------------------------------------

struct Optimizer {
  uint8_t kind;            // 0 SGD, 1 AdamW
  uint8_t nesterov;
  double momentum, beta1, beta2, eps;
  uint8_t schedule;        // 0 constant, 1 linear warm-up then constant, 2 warm-up then cosine
  double peak, floor;
  int64_t warmup, total;
};

struct InputField {
  const char* name;        // "tokens", "targets"
  ElementType type;
  int64_t elements_per_sample;
  int64_t vocab;           // exclusive bound for integers, 0: floats
};

struct Job {
  const char* name;
  std::span<const RankProgram> train;  // a role each
  std::span<const RankProgram> eval;   // same roles, forward only, same static layout; empty if no evaluation
  uint32_t rank_count;
  std::span<const uint32_t> rank_role; // per rank
  std::span<const std::span<const uint32_t>> groups;  // explicit rank lists, ascending by member order
  std::span<const InputField> inputs;
  std::span<const Optimizer> optimizers;
  std::span<const char* const> strings;
  uint32_t parameter_count;            // of the model
  int64_t global_batch, replicas, microbatches, samples_per_microbatch;
  int64_t targets_per_sample;          // positions that the loss counts (ignored ones included)
  int64_t steps;
  double clip;                         // 0: none
  uint64_t seed;
  int64_t eval_every, eval_batches, checkpoint_every;
  // data
  uint8_t data_kind;                   // 0 text bytes, 1 llm.c token shards, 2 random
  const char* data_path;
  const char* validation_path;
  double validation_fraction;
  uint8_t shuffle;
  int64_t sequence;                    // tokens a sample
  const char* plan_hash;               // identifies the strategy: resuming under it is bitwise
  uint32_t targets_input = kNone;      // batch field whose entries >= 0 the loss counts; kNone: it counts samples
  std::span<const uint32_t> rank_device = {};  // device of the topology a rank drives; empty: its own number
  // For the utilisation in reports: what the model's F, BI and BW cost a step, and the declared f32 FLOP/s of all
  // devices. 0: unknown.
  double step_flops = 0, peak_flops = 0;
  uint8_t overlaps = 0;                // 1: every rank has a carried kValidate, so that steps may overlap
};

}  // namespace piper::runtime
