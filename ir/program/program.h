// The elaborated Program: what is left of `.piper` text once loops are unrolled and functions are evaluated: a model
// graph, a topology, a flat list of directives with their source ranges, and what to do with them (train). Nothing
// here refers to the syntax tree.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ir/model/body.h"
#include "ir/model/graph.h"
#include "ir/support/source.h"
#include "ir/support/units.h"

namespace piper::ir {

// ---- selectors -----------------------------------------------------------------------------------------------

// A set of passes as bits of Pass; B is BI | BW. 0 means "no pass named": any.
using PassSet = uint8_t;
constexpr PassSet PassBit(Pass pass) { return static_cast<PassSet>(1u << static_cast<unsigned>(pass)); }
constexpr PassSet kPassB = PassBit(Pass::kBI) | PassBit(Pass::kBW);

// Interned names of tags, inserted nodes and dims: equal ids iff equal text, for the life of the process.
using NameId = uint32_t;
NameId InternName(std::string_view name);
const std::string& NameText(NameId id);

// `name`, `name = 3`, `name = [1, 4..6]`, each possibly negated. No ranges: any index.
struct SelectorTerm {
  NameId name = 0;
  bool negated = false;
  // Half-open index ranges. The first is stored inline (most steps need one); `more` holds the rest.
  bool has_range = false;
  int64_t begin = 0, end = 0;
  std::vector<std::pair<int64_t, int64_t>> more;
  bool Contains(int64_t index) const;
};

// A conjunction.
struct SelectorClause {
  PassSet passes = 0;
  std::vector<SelectorTerm> terms;
  bool optional = false;  // `x?`: what it names need not exist
};

// Disjunctive normal form; `[*]` is one clause without terms. A selector matches a node if any clause does.
struct Selector {
  std::vector<SelectorClause> any_of;
  bool optional = false;  // `x?`: may match nothing; so may all of `any_of`
  SourceRange range;
  std::string ToString() const;  // "F[stage = 2, mb = 3]"

  static Selector All();
  Selector Intersect(const Selector& other) const;
  Selector Union(const Selector& other) const;
  // nullopt if the expansion would exceed a bound (4,096 clauses).
  std::optional<Selector> Complement() const;
};

// ---- schedules -----------------------------------------------------------------------------------------------

// A selector as schedules hold it by the hundred thousand. The common form, one conjunction of at most three terms
// `name = index` (F[stage = 2, mb = 3]), lies inline; any other is a Selector behind a pointer.
class StepSelector {
 public:
  struct Index {
    NameId name = 0;
    int32_t index = 0;
    friend bool operator==(const Index&, const Index&) = default;
  };
  static constexpr size_t kMostIndices = 3;

  StepSelector() = default;               // selects nothing: Selector{}
  StepSelector(Selector selector);        // NOLINT: a selector is one wherever a step wants one
  StepSelector(const StepSelector& other);
  StepSelector(StepSelector&&) noexcept = default;
  StepSelector& operator=(const StepSelector& other);
  StepSelector& operator=(StepSelector&&) noexcept = default;

  // The common form, built term by term: Clear, then AddIndex up to kMostIndices times.
  void Clear(PassSet passes, SourceRange range) {
    full_.reset();
    indexed_ = true;
    optional_ = false;
    count_ = 0;
    passes_ = passes;
    range_ = range;
  }
  void AddIndex(NameId name, int32_t index) { indices_[count_++] = {name, index}; }
  void set_passes(PassSet passes) { passes_ = passes; }  // of the common form
  void set_range(SourceRange range) { (full_ != nullptr ? full_->range : range_) = range; }

  bool indexed() const { return indexed_; }
  bool optional() const { return full_ != nullptr ? full_->optional : optional_; }
  SourceRange range() const { return full_ != nullptr ? full_->range : range_; }
  bool empty() const { return !indexed_ && (full_ == nullptr || full_->any_of.empty()); }
  // Of the common form.
  PassSet passes() const { return passes_; }
  std::span<const Index> indices() const { return {indices_, count_}; }

  Selector Full() const;
  operator Selector() const { return Full(); }  // NOLINT
  std::string ToString() const { return Full().ToString(); }

 private:
  bool indexed_ = false, optional_ = false;
  PassSet passes_ = 0;
  uint8_t count_ = 0;
  SourceRange range_;
  Index indices_[kMostIndices];
  std::unique_ptr<Selector> full_;  // null in the common form, and of what selects nothing
};

// `greedy(priority = [B, F, W], in_flight = 4, memory = 10 GiB)`: an order to be found once costs are known.
struct GreedySpec {
  std::vector<Selector> priority;  // what stands first is preferred
  int64_t in_flight = 0;           // microbatches from the start of F to the end of BI (or B), a rank; 0: no bound
  int64_t memory = 0;              // bytes saved between passes, a rank; 0: no bound
};

struct Step {
  enum class Kind : uint8_t { kSelect, kFused, kBarrier, kLanes, kGreedy } kind = Kind::kSelect;
  SourceRange range;                // the expression that yielded it
  StepSelector select;              // kSelect
  std::vector<Selector> fused;      // kFused: in order; one atomic node
  std::vector<std::pair<NameId, std::vector<Step>>> lanes;  // kLanes: stream -> its steps
  std::shared_ptr<const GreedySpec> greedy;                 // kGreedy
};

// An ordinary value of the language: what `order` lists.
struct Schedule {
  std::vector<Step> steps;
};

// ---- groups --------------------------------------------------------------------------------------------------

// `pp[2]`, `pp[0..2]`, `all`, `pp[s] * tp`: a slice of a mesh. Axes that are not listed are free.
struct GroupExpr {
  std::string mesh;  // empty: the default (first) mesh
  struct AxisSlice {
    std::string axis;
    int64_t begin = 0, end = 0;
    SourceRange range;
  };
  std::vector<AxisSlice> slices;
  SourceRange range;
};

// ---- directives ----------------------------------------------------------------------------------------------

struct MeshDirective {
  std::string name;  // "" for the default mesh
  struct Axis {
    std::string name;
    int64_t size = 0;            // -1: `all` remaining devices
    std::string within;          // a topology level, or empty
    SourceRange range;
  };
  std::vector<Axis> axes;        // outermost first; the last is innermost (neighbouring devices)
  std::vector<int64_t> devices;  // explicit device list; empty: 0, 1, 2, ..
  std::string folds;             // another mesh, or empty
};
struct CutDirective {
  std::vector<std::pair<std::string, SourceRange>> tags;
  int64_t parts = 0;
  std::string as = "stage";
  // Explicit cover: per part, (tag, count) terms in order. Empty: balanced by cost.
  struct Term {
    std::string tag;
    int64_t count = 1;
  };
  std::vector<std::vector<Term>> explicit_parts;
};
struct SplitDirective {
  std::optional<Selector> region;  // `split [moe] experts ..`
  std::string dim;
  struct Part {
    int64_t count = 1;
    std::string as;
  };
  std::vector<Part> parts;  // outermost (major) first
};
struct PlaceDirective {
  Selector select;
  GroupExpr group;
};
struct ShardDirective {
  std::vector<std::string> dims;  // the first that a tensor has is sharded
  std::vector<std::string> axes;  // a product
  std::optional<Selector> where;
  std::string as;                 // default: the axis name
  std::string via;                // "", "flat", "hierarchical"
};
struct ZeroDirective {
  int64_t level = 0;
  Selector select;
  std::string per_tag;
  std::string as = "dp";
  int64_t bucket_bytes = 0;       // 0: one collective a (parameter, region)
  bool reduce_per_microbatch = false;
  std::optional<Selector> keep;
};
struct OrderDirective {
  GroupExpr group;
  // `order on g { .. }`: one entry under stream "compute"; `{ compute: ..; a2a: .. }`: one each.
  std::vector<std::pair<NameId, Schedule>> streams;
};
struct EdgeDirective { Selector from, to; int64_t distance = 0; };
struct LimitDirective {
  int64_t count = 0;
  Selector select;
  std::string per;  // "mb" or empty
};
struct StreamDirective { Selector select; std::string stream; };
struct RecomputeDirective { Selector select; std::optional<Selector> keep; };
struct OffloadDirective { Selector select; int64_t prefetch = 1; };
struct FreezeDirective { Selector select; };
struct RunDirective {
  bool ready = false;
  std::vector<std::string> hint;
  std::optional<Selector> select;
};
// Updates from the partially reduced state, checked afterwards; else the norm of all ranks is waited for.
struct OptimizerDirective { bool post_validation = false; };
struct NumericsDirective { bool fast = false; };
struct CostDirective {
  Selector select;               // the innermost tag named carries the figure: each of its instances costs it
  std::vector<Selector> fused;   // non-empty: `cost fused(f, b) = q`
  Quantity figure;               // time, or bytes for sends and collectives
};
struct SlowdownDirective { std::string stream, with; double factor = 1; };
struct AssertDirective {
  std::string metric;                  // step_time, peak_memory, bubble, exposed, bytes, mfu
  std::optional<Selector> select;      // exposed([..])
  std::string axis;                    // bytes(axis)
  enum class Compare : uint8_t { kLess, kLessEqual, kGreater, kGreaterEqual, kEqual } compare = Compare::kLess;
  Quantity bound;
};

using DirectiveBody =
    std::variant<MeshDirective, CutDirective, SplitDirective, PlaceDirective, ShardDirective, ZeroDirective,
                 OrderDirective, EdgeDirective, LimitDirective, StreamDirective, RecomputeDirective, OffloadDirective,
                 FreezeDirective, OptimizerDirective, RunDirective, NumericsDirective, CostDirective, SlowdownDirective,
                 AssertDirective>;

struct Directive {
  DirectiveBody body;
  SourceRange range;               // the directive's own text
  bool overrides = false;          // `override place ..`
  std::vector<SourceRange> used_from;  // the `use`/`using` sites that led here, innermost first
};

// ---- topology ------------------------------------------------------------------------------------------------

struct DeviceKind {
  std::string name;
  int64_t memory = 0;             // bytes; 0: unbounded
  double memory_bandwidth = 0;    // bytes/s; 0: not modelled
  std::map<std::string, double> compute;  // dtype name -> FLOP/s
  SourceRange range;
  double host_bandwidth = 0;      // bytes/s to host memory, and as much back; 0: not modelled
};
struct Link {
  double bandwidth = 0;           // bytes/s; 0: infinite
  Picoseconds latency = 0;
  int64_t nics = 0;  // ports of each member of the level; 0: every device has one of its own
};
// Groups of one level as consecutive devices; level 0 is innermost.
struct Level {
  std::string name;
  struct Group {
    uint32_t first = 0, count = 0;
    Link link;
  };
  std::vector<Group> groups;      // ascending, an exact cover of the devices
};
struct Topology {
  std::string name;
  std::vector<DeviceKind> kinds;
  std::vector<uint16_t> device_kind;  // per device
  std::vector<Level> levels;
  SourceRange range;

  int64_t devices() const { return static_cast<int64_t>(device_kind.size()); }
  const DeviceKind& Kind(int64_t device) const { return kinds[device_kind[device]]; }
  // The link of the innermost level that holds both; a zero Link if a == b.
  Link Between(int64_t a, int64_t b) const;
  // The innermost level that holds both; 0 if there is none.
  uint32_t LevelBetween(uint32_t a, uint32_t b) const;
  // What a device sends and receives through over the links of levels[level]; equal: the same one. With `nics`
  // a member of the level (a node, say) has so many, and its i-th device uses the (i mod nics)-th; without, and
  // on the innermost level, whose members are devices, each device has its own.
  using Port = std::pair<uint32_t, uint32_t>;
  Port PortOf(uint32_t device, size_t level) const;
};

// ---- train ---------------------------------------------------------------------------------------------------

struct DataSpec {
  enum class Kind : uint8_t { kText, kTokens, kRandom } kind = Kind::kRandom;
  std::string path;               // text: a file or glob; tokens: a glob of llm.c shards
  double validation = 0;          // fraction held out, from the end
  std::string validation_path;    // or an explicit file
  bool shuffle = true;
  int64_t vocab = 256;            // random: exclusive bound of integers
  SourceRange range;
};

struct LearningRate {
  enum class Kind : uint8_t { kConstant, kWarmup, kCosine } kind = Kind::kConstant;
  double peak = 0;
  int64_t warmup = 0;             // linear from 0 over this many steps
  int64_t total = 0;              // cosine: reaches `floor` at this step
  double floor = 0;
};
struct OptimizerSpec {
  enum class Kind : uint8_t { kSgd, kAdamW } kind = Kind::kAdamW;
  LearningRate lr;
  double weight_decay = 0;
  double momentum = 0;            // SGD
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  // Which parameters: by name patterns/selectors; the last matching spec wins. No select: all the rest.
  std::optional<Selector> select;           // regions whose parameters it covers
  std::vector<std::string> parameter_names;  // or glob patterns over parameter names: "*.norm.*"
  bool matrices_only = false;               // weight_decay applies to tensors of rank >= 2 only
  SourceRange range;
};

struct TrainSpec {
  DataSpec data;
  int64_t global_batch = 1;
  int64_t steps = 1;
  std::vector<OptimizerSpec> optimizers;  // at least one
  double clip = 0;                        // global-norm bound; 0: none
  uint64_t seed = 0;
  int64_t eval_every = 0;                 // steps; 0: never
  int64_t eval_batches = 0;               // global batches an evaluation
  int64_t checkpoint_every = 0;           // steps; 0: at the end only
  SourceRange range;
};

struct Program {
  Graph model;          // the batch dimension holds the global batch
  Topology topology;
  std::vector<Directive> directives;
  TrainSpec train;
  std::string name;     // stem of the main file
  std::string base_directory;  // data paths are relative to it
};

}  // namespace piper::ir
