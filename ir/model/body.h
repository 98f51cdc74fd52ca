// Regions and their bodies. A region is a maximal run of operations with one tag set; fusion never crosses
// it. Each region yields up to three programs of kernel calls: F, BI (input cotangents) and BW (parameter
// gradients), with the values saved between them. A Body is position-independent: it names formals (buffers
// that the caller binds) and locals (scratch with offsets that it packed itself), so one Body serves every
// microbatch, every rank, and every structurally equal region; the interpreter walks its calls and codegen
// prints them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/model/graph.h"

namespace piper::ir {

using RegionId = uint32_t;

enum class Pass : uint8_t { kF, kBI, kBW, kR, kU, kNone };
std::string_view PassName(Pass pass);  // "F", "BI", ...

// What a formal of a body stands for. A buffer is identified by what it holds, not by the body that names it:
//   kValue, kOutput        (microbatch, value): the producing region's kOutput and every reader's kValue
//   kSaved                 (region, microbatch, saved key)
//   kCotangent, kInputCotangent  (microbatch, value, consuming region)
//   kParameter, kGradient  (parameter), (region, microbatch, parameter)
// No value is saved twice: what BI and BW need of a value from outside they read again as kValue, what they
// need of a value that the region outputs they read as kOutput with written = false, and what BW needs of a
// cotangent that BI sent away it reads as kInputCotangent with written = false. Such a buffer lives until its
// last reader, whichever pass that is. kSaved is for values that nobody outside the region ever sees.
enum class FormalKind : uint8_t {
  kValue,      // a forward value from outside the region (another region's output or a batch field), read
  kParameter,  // a parameter, read
  kSaved,      // what an earlier pass of this region left: read; or what this pass leaves for a later one:
               // written
  kOutput,     // F: a value of this region that other regions (or the loss fold) read, written; BI/BW: read
               // again
  kCotangent,  // BI/BW: the partial cotangent of one of this region's outputs from one consuming region, read
  kInputCotangent,  // BI: this region's partial cotangent of a value from outside, written; BW: read again
  kGradient,  // BW: this region's gradient of a parameter for this microbatch, written (assigned, not added)
  kScale,     // the step's loss scale 1/N (FindLossScale says what N counts): one element, read
};

struct Formal {
  FormalKind kind;
  bool written = false;
  TensorType type;
  std::string name;  // legible, unique within the body: "x", "d_x_from_mlp", "wqkv"
  // kValue, kSaved, kOutput, kInputCotangent, kCotangent: the forward value concerned. kSaved values that
  // only BI and BW share (cotangents within the region) are no forward values: value == kNone.
  ValueId value = kNone;
  ParameterId parameter = kNone;  // kParameter, kGradient
  RegionId consumer = kNone;      // kCotangent: which consuming region's partial it is
  uint32_t saved = kNone;         // kSaved: key that is equal across F, BI, BW of one region
  // A written formal (kOutput, kInputCotangent) may be the same bytes as a read one, or as a written one
  // before it (identity cotangents, reshapes): then no call mentions it, and the buffer of formal `alias_of`
  // is forwarded. kNone: it has its own buffer. kGradient and kSaved never alias.
  uint32_t alias_of = kNone;
};

// An operand of a kernel call: a formal or a local. Calls never mention a formal that aliases another.
struct OperandRef {
  enum class Kind : uint8_t { kFormal, kLocal } kind;
  uint32_t index;
};

struct Local {
  TensorType type;
  std::string name;    // unique among the body's formals and locals
  int64_t offset = 0;  // bytes into the scratch, 64-byte aligned
};

struct KernelCall {
  std::string kernel;  // a name of kernels/registry.h
  std::vector<OperandRef> operands;
  std::vector<int64_t> ints;
  std::vector<double> scalars;
  uint64_t random_key = 0;  // hash of the operation's path, for random kernels; else 0
  OpId operation = kNone;   // the forward operation that it belongs to: trace names, non-finite reports
};

struct Body {
  RegionId region = kNone;
  Pass pass = Pass::kF;
  std::vector<Formal> formals;
  std::vector<Local> locals;
  std::vector<KernelCall> calls;
  int64_t scratch_bytes = 0;
  double flops = 0;        // from the kernels' table
  double bytes_moved = 0;  // likewise
  bool empty() const { return calls.empty() && formals.empty(); }
};

// A forward value that is read beyond its region: by other regions, or by the loss fold (then possibly by no
// region).
struct RegionOutput {
  ValueId value;
  std::vector<RegionId> consumers;                 // all reading regions, ascending
  std::vector<RegionId> differentiable_consumers;  // those whose BI sends a partial cotangent back, ascending
};

struct Region {
  RegionId id = kNone;
  OpId first = 0, last = 0;  // operations [first, last) of the graph, contiguous in program order
  TagPathId tags = 0;
  std::string name;                     // "layer3.attn", from the tags; made unique by a suffix
  std::vector<ValueId> inputs;          // values from other regions, ascending
  std::vector<InputId> model_inputs;    // batch fields read, ascending
  std::vector<ParameterId> parameters;  // read, ascending
  std::vector<RegionOutput> outputs;
  std::vector<uint32_t> losses;                   // indices into Graph::losses computed here
  Body forward, backward_input, backward_weight;  // the latter two may be empty()
  Body recompute;  // R: what a `recompute` directive replays of F (recompute.h); empty() elsewhere
};

// The graph cut into regions with their bodies, at the graph's current (slice) shapes.
struct RegionGraph {
  Graph graph;
  std::vector<Region> regions;  // model order
  // Region that computes a value; kNone for inputs and parameters.
  std::vector<RegionId> value_region;
};

// Operations that reach no loss are dead: no region computes or lists them. (Without losses, every result
// that nothing reads is wanted: a graph for inference.) A region's bodies have formals and no calls where it
// moves no bytes.
//
// Splits, differentiates (Graph::parameters' `frozen` prunes BW, and BI below the lowest trainable) and
// lowers. Every loss is seeded with cotangent 1. Cannot fail on a graph that GraphBuilder accepted.
// Cotangents of a value with several consumers add in consumer order: inside a region in program order of
// uses, then across regions by ascending consumer region; the sum is the first thing that the producer's BI
// (or BW) computes.
RegionGraph BuildRegions(const Graph& graph);

// Two bodies that differ only in which regions, parameters, values and operations they are about (names, ids,
// random keys) have one key and share one generated function; random keys are therefore that function's
// arguments, one a call with a random kernel, in call order.
std::string BodyKey(const Body& body);

// A legible listing, for `--emit` and tests: formals, then one line a call.
std::string BodyText(const Body& body);

}  // namespace piper::ir
