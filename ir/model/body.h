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

// What a formal of a body stands for.
enum class FormalKind : uint8_t {
  kValue,      // a forward value from outside the region (another region's output or a model input), read
  kParameter,  // a parameter, read
  kSaved,      // a value that an earlier pass of this region saved: read; or that this pass saves: written
  kOutput,     // F: a value of this region that other regions (or the loss fold) read, written
  kCotangent,  // BI/BW: the partial cotangent of one of this region's outputs from one consuming region, read
  kInputCotangent,  // BI: this region's partial cotangent of a value from outside, written
  kGradient,  // BW: this region's gradient of a parameter for this microbatch, written (assigned, not added)
  kScale,     // the step's loss scale: one element, read
};

struct Formal {
  FormalKind kind;
  bool written = false;
  TensorType type;
  std::string name;  // legible, unique within the body: "x", "d_x_from_mlp", "wqkv"
  // kValue, kSaved, kOutput, kInputCotangent, kCotangent: the forward value concerned. kSaved values that are
  // not forward values of the graph (lse, rstd, BI -> BW intermediates) have value == kNone and a `saved`
  // key.
  ValueId value = kNone;
  ParameterId parameter = kNone;  // kParameter, kGradient
  RegionId consumer = kNone;      // kCotangent: which consuming region's partial it is
  uint32_t saved = kNone;         // kSaved: key that is equal across F, BI, BW of one region
  // A written formal may be the same bytes as a read one (identity cotangents, reshapes): no call writes it;
  // the buffer of `alias_of` is forwarded. kNone: it has its own buffer.
  uint32_t alias_of = kNone;
};

// An operand of a kernel call: a formal or a byte offset into the body's scratch.
struct OperandRef {
  enum class Kind : uint8_t { kFormal, kLocal } kind;
  uint32_t index;
};

struct Local {
  TensorType type;
  std::string name;
  int64_t offset = 0;  // bytes into the scratch, 64-byte aligned
};

struct KernelCall {
  std::string kernel;  // a name of kernels/registry.h
  std::vector<OperandRef> operands;
  std::vector<int64_t> ints;
  std::vector<double> scalars;
  uint64_t random_key = 0;  // hash of the operation's path, for random kernels
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

// A forward value that is read beyond its region, and the regions (in model order) that read it
// differentiably.
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
};

// The graph cut into regions with their bodies, at the graph's current (slice) shapes.
struct RegionGraph {
  Graph graph;
  std::vector<Region> regions;  // model order
  // Region that computes a value; kNone for inputs and parameters.
  std::vector<RegionId> value_region;
};

// Splits, differentiates (Graph::parameters' `frozen` prunes BW, and BI below the lowest trainable) and
// lowers. Every loss is seeded with cotangent 1. Cannot fail on a graph that GraphBuilder accepted.
// Cotangents of a value with several consumers add in consumer order: inside a region in program order of
// uses, then across regions by ascending consumer region; the sum is the first thing that the producer's BI
// (or BW) computes.
RegionGraph BuildRegions(const Graph& graph);

// Two bodies that differ only in which regions, parameters and names they are about share one generated
// function.
std::string BodyKey(const Body& body);

}  // namespace piper::ir
