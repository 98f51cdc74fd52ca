#include "frontend/train.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <fmt/format.h>

namespace piper::frontend {

using ir::DiagKind;

namespace {

constexpr int64_t kMaxCount = int64_t{1} << 40;

class TrainEvaluator {
 public:
  TrainEvaluator(Interpreter& interpreter, std::vector<Override>* overrides)
      : in_(interpreter), overrides_(overrides) {}

  TrainBlock Run(const RunDecl& train, const RunDecl* eval) {
    block_.unit = &in_.resolved().Unit(&train);
    block_.spec.range = train.range;
    block_.evaluates = train.run == RunKind::kEval;
    size_t errors = in_.diag().error_count();
    if (block_.evaluates) {
      Fields(train, {"model", "data", "global_batch", "batches", "seed", "on", "using"});
    } else {
      Fields(train, {"model", "data", "global_batch", "steps", "optimizer", "clip", "seed", "eval_every",
                     "eval_batches", "checkpoint_every", "on", "using"});
    }
    if (eval != nullptr) {
      block_.unit = &in_.resolved().Unit(eval);
      Fields(*eval, {"every", "batches", "data"});
      block_.unit = &in_.resolved().Unit(&train);
    }
    auto require = [&](bool present, std::string_view name, std::string_view example) {
      if (present || Seen(train, name)) return;
      in_.Report(NameRange(train), DiagKind::kBadTrain,
                 fmt::format("the {} block does not say '{}'", block_.evaluates ? "eval" : "train", name))
          .Hint(std::string(example));
    };
    require(false, "model", "for example `model net`, with `model net = gpt.GPT(..)` above");
    require(false, "on", "for example `on topologies.local(ranks = 4)`");
    require(false, "using", "for example `using strategies.data_parallel(2)`");
    require(false, "global_batch", "for example `global_batch 32`: the samples of a step over all ranks");
    if (block_.spec.optimizers.empty() && !Seen(train, "optimizer") && !block_.evaluates) {
      in_.Report(NameRange(train), DiagKind::kBadTrain, "the train block does not say 'optimizer'")
          .Hint("for example `optimizer adamw(lr = 1e-3)`");
    }
    if (block_.evaluates) {
      // Its data is what is validated: a program of it evaluates checkpoints as one with a train block does.
      if (block_.spec.data.validation_path.empty()) block_.spec.data.validation_path = block_.spec.data.path;
      block_.spec.data.validation = 0;
      block_.spec.eval_every = 1;
      block_.spec.eval_batches = std::max<int64_t>(block_.spec.eval_batches, 1);
    }
    bool validates = block_.spec.data.validation > 0 || !block_.spec.data.validation_path.empty();
    if (block_.spec.eval_every > 0 && !validates && !block_.evaluates) {
      in_.Report(block_.spec.data.range.valid() ? block_.spec.data.range : train.range, DiagKind::kBadData,
                 "an evaluation is asked for, but no validation data is set apart")
          .Hint("write `data text(\"..\", validation = 5 %)`");
    }
    if (validates && block_.spec.eval_every == 0) block_.spec.eval_every = block_.spec.steps;
    if (block_.spec.eval_batches == 0 && validates) block_.spec.eval_batches = 1;
    if (in_.diag().error_count() > errors) throw Abort{};
    return std::move(block_);
  }

 private:
  static SourceRange NameRange(const RunDecl& run) {
    // The keyword: the block itself is too long to point at.
    SourceRange range = run.range;
    uint32_t length = run.run == RunKind::kTrain ? 5 : 4;
    range.end = std::min(range.end, range.begin + length);
    return range;
  }

  bool Seen(const RunDecl& run, std::string_view name) const {
    return std::any_of(run.fields.begin(), run.fields.end(),
                       [&](const Field& field) { return in_.Text(field.name.name) == name; });
  }

  void Fields(const RunDecl& run, const std::vector<std::string>& known) {
    std::vector<std::pair<std::string, SourceRange>> seen;
    for (const Field& field : run.fields) {
      std::string name = in_.Text(field.name.name);
      try {
        if (std::find(known.begin(), known.end(), name) == known.end()) {
          in_.FailNearest(field.name.range, DiagKind::kBadTrain,
                          fmt::format("{} block has no field '{}'",
                                      run.run == RunKind::kTrain ? "a train" : "an eval", name),
                          name, known, fmt::format("its fields are {}", fmt::join(known, ", ")));
        }
        auto first =
            std::find_if(seen.begin(), seen.end(), [&](const auto& other) { return other.first == name; });
        if (first != seen.end() && name != "optimizer") {
          auto error =
              in_.Report(field.name.range, DiagKind::kBadTrain, fmt::format("'{}' is given twice", name));
          error.Note(first->second, "the first time");
          throw Abort{};
        }
        seen.emplace_back(name, field.name.range);
        if (field.value == nullptr) {
          in_.Fail(field.range, DiagKind::kBadTrain, fmt::format("'{}' has no value", name));
        }
        if (field.where != nullptr && name != "optimizer") {
          in_.Fail(field.where->range, DiagKind::kBadTrain, fmt::format("'{}' is for the whole run", name),
                   "only an optimizer is given for a part of the model");
        }
        if (!field.block.empty() || field.per.name != kNoName) {
          in_.Fail(field.range, DiagKind::kBadTrain, fmt::format("'{}' has no settings", name));
        }
        Set(name, field, run.run == RunKind::kEval && !block_.evaluates);
      } catch (const Abort&) {
      }
    }
  }

  Value Eval(const Field& field) {
    std::string name = in_.Text(field.name.name);
    for (Override& override : *overrides_) {
      const auto& fields = OverridableFields();
      if (override.name != name || std::find(fields.begin(), fields.end(), name) == fields.end()) continue;
      override.used = true;
      return override.value;
    }
    return in_.EvaluateIn(*block_.unit, *field.value);
  }

  int64_t Count(const Field& field, int64_t least) {
    std::string name = in_.Text(field.name.name);
    int64_t count = in_.IntOf(Eval(field), field.value->range, fmt::format("'{}'", name));
    if (count < least || count > kMaxCount) {
      in_.Fail(
          field.value->range, DiagKind::kBadTrain,
          fmt::format("'{}' is {}, but must be at {}", name, count,
                      count < least ? fmt::format("least {}", least) : fmt::format("most {}", kMaxCount)));
    }
    return count;
  }

  void Set(const std::string& name, const Field& field, bool eval) {
    ir::TrainSpec& spec = block_.spec;
    SourceRange range = field.value->range;
    if (name == "model") {
      block_.model = Eval(field);
      block_.model_range = range;
      if (block_.model.is(ValueKind::kModule)) block_.model = in_.Call(block_.model, {}, range);
      if (!block_.model.is(ValueKind::kInstance)) in_.FailType(range, "the model", "a module", block_.model);
    } else if (name == "on") {
      block_.topology = Eval(field);
      block_.topology_range = range;
      if (block_.topology.is(ValueKind::kTopologyDecl))
        block_.topology = in_.Call(block_.topology, {}, range);
      if (!block_.topology.is(ValueKind::kTopology))
        in_.FailType(range, "what a run is on", "a topology", block_.topology);
    } else if (name == "using") {
      block_.strategy = &field;
    } else if (name == "data") {
      Value data = Eval(field);
      if (!data.is(ValueKind::kData)) {
        in_.Fail(range, DiagKind::kBadData,
                 fmt::format("data comes from text(..), tokens(..) or random(..), not from {}",
                             DescribeValue(data)));
      }
      const ir::DataSpec& given = data.as<DataObject>().spec;
      if (!eval) {
        spec.data = given;
      } else if (given.path.empty()) {
        in_.Fail(range, DiagKind::kBadData, "an evaluation reads a file");
      } else {
        spec.data.validation_path = given.path;
      }
    } else if (name == "global_batch") {
      spec.global_batch = Count(field, 1);
    } else if (name == "steps") {
      spec.steps = Count(field, 1);
    } else if (name == "seed") {
      spec.seed = static_cast<uint64_t>(Count(field, 0));
    } else if (name == "eval_every" || name == "every") {
      spec.eval_every = Count(field, 0);
    } else if (name == "eval_batches" || name == "batches") {
      spec.eval_batches = Count(field, 1);
    } else if (name == "checkpoint_every") {
      spec.checkpoint_every = Count(field, 0);
    } else if (name == "clip") {
      spec.clip = in_.NumberOf(Eval(field), range, "'clip'");
      if (!(spec.clip > 0) || !std::isfinite(spec.clip)) {
        in_.Fail(range, DiagKind::kBadTrain,
                 fmt::format("'clip' bounds the norm of the gradient: {} is not positive", spec.clip));
      }
    } else if (name == "optimizer") {
      Value optimizer = Eval(field);
      if (!optimizer.is(ValueKind::kOptimizer)) {
        in_.Fail(range, DiagKind::kBadOptimizer,
                 fmt::format("an optimizer is adamw(..) or sgd(..), not {}", DescribeValue(optimizer)));
      }
      ir::OptimizerSpec given = optimizer.as<OptimizerObject>().spec;
      given.range = field.range;
      if (field.where != nullptr) given.select = in_.SelectorAt(*block_.unit, *field.where);
      if (!given.select && given.parameter_names.empty()) {
        for (const ir::OptimizerSpec& other : spec.optimizers) {
          if (other.select || !other.parameter_names.empty()) continue;
          auto error = in_.Report(field.range, DiagKind::kBadOptimizer,
                                  "there is an optimizer for all parameters already");
          error.Note(other.range, "the first one")
              .Hint("give one of them a part: `optimizer adamw(..) where [norm]`");
          throw Abort{};
        }
      }
      spec.optimizers.push_back(std::move(given));
    }
  }

  Interpreter& in_;
  std::vector<Override>* overrides_;
  TrainBlock block_;
};

}  // namespace

const std::vector<std::string>& OverridableFields() {
  static const auto* const fields = new std::vector<std::string>{
      "global_batch",     "steps", "clip",   "seed", "eval_every", "eval_batches",
      "checkpoint_every", "every", "batches"};
  return *fields;
}

TrainBlock EvaluateTrain(Interpreter& interpreter, const RunDecl& train, const RunDecl* eval,
                         std::vector<Override>* overrides) {
  return TrainEvaluator(interpreter, overrides).Run(train, eval);
}

}  // namespace piper::frontend
