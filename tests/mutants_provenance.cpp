#include "tests/mutants_provenance.h"

#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "ir/model/body.h"

namespace piper::mutants {
namespace {

constexpr float kRate =
    0.0009765625f;  // of the programs of tests/mutants_text.h: a power of two, so that products are exact

enum Salt : uint64_t {
  kValueSalt = 1,
  kCotangentSalt,
  kGradientSalt,
  kParameterSalt,
  kDataSalt,
  kSavedSalt = 1000
};

uint64_t OfText(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

uint64_t OfFloats(const float* data, int64_t elements) {
  uint64_t hash = 17;
  for (int64_t i = 0; i < elements; ++i) {
    uint32_t bits;
    std::memcpy(&bits, data + i, sizeof bits);
    hash = Mix(hash, bits);
  }
  return hash;
}

std::vector<float> Filled(uint64_t hash, uint64_t salt, int64_t elements) {
  std::vector<float> values(static_cast<size_t>(elements));
  Fill(hash, salt, values.data(), elements);
  return values;
}

// sum + term, or term alone at first.
void AddTo(std::vector<float>* sum, const std::vector<float>& term) {
  if (sum->empty()) {
    *sum = term;
    return;
  }
  for (size_t i = 0; i < term.size(); ++i) (*sum)[i] += term[i];
}

}  // namespace

uint64_t Mix(uint64_t hash, uint64_t value) {
  uint64_t z = (hash ^ (value + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

void Fill(uint64_t hash, uint64_t salt, float* out, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    const uint64_t bits = Mix(Mix(hash, salt), static_cast<uint64_t>(i));
    const uint32_t exponent = 127 - 6 + static_cast<uint32_t>((bits >> 32) % 13);
    const uint32_t word = (static_cast<uint32_t>(bits & 1) << 31) | (exponent << 23) |
                          static_cast<uint32_t>((bits >> 1) & 0x7fffff);
    std::memcpy(out + i, &word, sizeof word);
  }
}

uint64_t Expectation::Data(uint32_t field, uint64_t step, int64_t sample) {
  return Mix(Mix(Mix(OfText("data"), field), step), static_cast<uint64_t>(sample));
}

Expectation::Expectation(const Chain& chain, const FoldOrders& one_replica, int replicas, int steps)
    : chain_(chain) {
  // The fold over replicas of the fold over copies: a copy of a replica is a copy.
  FoldOrders folds(one_replica.size());
  int a_replica = 0;
  for (const std::vector<int>& copy : one_replica[0]) a_replica += static_cast<int>(copy.size());
  for (size_t u = 0; u < folds.size(); ++u) {
    for (int d = 0; d < replicas; ++d) {
      for (std::vector<int> copy : one_replica[u]) {
        for (int& mb : copy) mb += d * a_replica;
        folds[u].push_back(copy);
      }
    }
  }

  const auto microbatches = static_cast<size_t>(a_replica * replicas);
  steps_.resize(static_cast<size_t>(steps) + 1);
  for (const Unit& unit : chain.units) {
    for (const std::string& name : unit.parameters) {
      steps_[0].before[name] = Filled(OfText(name), kParameterSalt, chain.width);
    }
  }
  for (int s = 0; s < steps; ++s) {
    Step& step = steps_[static_cast<size_t>(s)];
    std::map<std::string, uint64_t> parameters;
    for (const auto& [name, values] : step.before) parameters[name] = OfFloats(values.data(), chain.width);
    step.values.resize(chain.units.size());
    step.inner.resize(chain.units.size());
    for (int u = 0; u < chain.size(); ++u) {
      const Unit& unit = chain.units[u];
      for (size_t mb = 0; mb < microbatches; ++mb) {
        uint64_t hash =
            Mix(Mix(Mix(OfText("F " + unit.region), static_cast<uint64_t>(s)), mb), unit.inputs.size());
        for (int input : unit.inputs) hash = Mix(hash, step.values[input][mb]);
        if (unit.inputs.empty())
          hash = Mix(hash, Data(0, static_cast<uint64_t>(s), static_cast<int64_t>(mb)));
        if (u + 1 == chain.size())
          hash = Mix(hash, Data(1, static_cast<uint64_t>(s), static_cast<int64_t>(mb)));
        for (const std::string& name : unit.parameters) hash = Mix(hash, parameters[name]);
        step.values[u].push_back(hash);
      }
    }
    for (int u = chain.size() - 1; u >= 0; --u) {
      for (size_t mb = 0; mb < microbatches; ++mb) {
        uint64_t hash = Mix(OfText("BI " + chain.units[u].region), step.values[u][mb]);
        for (int reader : chain.ReadersOf(u)) hash = Mix(hash, step.cotangents[{u, reader}][mb]);
        step.inner[u].push_back(hash);
        for (int input : chain.units[u].inputs) {
          step.cotangents[{input, u}].push_back(
              Mix(Mix(hash, OfText("input")), static_cast<uint64_t>(input)));
        }
      }
    }
    // The fold over using units of the fold over copies of the fold over microbatches.
    for (const auto& [name, values] : step.before) {
      std::vector<float> total;
      for (int u = 0; u < chain.size(); ++u) {
        for (const std::string& used : chain.units[u].parameters) {
          if (used != name) continue;
          std::vector<float> use;
          for (const std::vector<int>& copy : folds[u]) {
            std::vector<float> sum;
            for (int mb : copy) AddTo(&sum, Filled(Gradient(s, u, name, mb), kGradientSalt, chain.width));
            AddTo(&use, sum);
          }
          AddTo(&total, use);
        }
      }
      step.gradients[name] = total;
      std::vector<float>& after = steps_[static_cast<size_t>(s) + 1].before[name];
      for (size_t i = 0; i < total.size(); ++i) after.push_back(values[i] - kRate * total[i]);
    }
    std::vector<float> loss;
    int first = 0;
    for (const std::vector<int>& copy : folds.back()) {
      std::vector<float> sum;
      // Losses fold by ascending microbatch, whatever the order of the passes.
      for (size_t i = 0; i < copy.size(); ++i) {
        AddTo(&sum, Filled(step.values.back()[static_cast<size_t>(first) + i], kValueSalt, 1));
      }
      first += static_cast<int>(copy.size());
      AddTo(&loss, sum);
    }
    step.loss = loss.at(0);
  }
}

uint64_t Expectation::Gradient(int step, int unit, const std::string& parameter, int microbatch) const {
  return Mix(Mix(OfText("BW " + parameter),
                 at(step).inner[static_cast<size_t>(unit)][static_cast<size_t>(microbatch)]),
             static_cast<uint64_t>(unit));
}

namespace {

class Faults {
 public:
  void Add(const std::string& fault) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (first_.empty()) first_ = fault;
  }
  std::string first() {
    std::lock_guard<std::mutex> lock(mutex_);
    return first_;
  }

 private:
  std::mutex mutex_;
  std::string first_;
};

// The bodies of one rank.
class HashBodies : public runtime::BodyRunner {
 public:
  HashBodies(const ir::Plan& plan, const Expectation& expected, const runtime::Job& job,
             const runtime::RankProgram& program, Faults* faults)
      : plan_(plan), expected_(expected), faults_(faults), bodies_(program.bodies.size()) {
    for (const ir::Region& region : plan.regions.regions) unit_of_.push_back(FindUnit(region));
    for (const runtime::Task& task : program.tasks) {
      if (task.kind != runtime::TaskKind::kCompute) continue;
      // "BI stage3.unit2 copy 1"
      const std::string name = job.strings[task.name];
      const size_t space = name.find(' ');
      const std::string pass = name.substr(0, space),
                        region = name.substr(space + 1, name.find(' ', space + 1) - space - 1);
      Known& known = bodies_[task.argument];
      for (const ir::Region& candidate : plan.regions.regions) {
        if (candidate.name == region) known.region = &candidate;
      }
      if (known.region == nullptr) {
        faults->Add("no region is called " + region);
        continue;
      }
      known.pass = pass;
      known.body = pass == "F"    ? &known.region->forward
                   : pass == "R"  ? &known.region->recompute
                   : pass == "BI" ? &known.region->backward_input
                                  : &known.region->backward_weight;
      known.unit = UnitOf(known.region->id);
    }
  }

  void Run(uint32_t index, runtime::BodyContext& context) override {
    const Known& known = bodies_[index];
    if (known.body == nullptr) return;
    const int step = static_cast<int>(context.step), mb = static_cast<int>(context.first_sample);
    uint64_t wrong = 0;  // what was read and should not stand there
    for (size_t i = 0; i < known.body->formals.size(); ++i) {
      const ir::Formal& formal = known.body->formals[i];
      if (formal.written || formal.kind == ir::FormalKind::kScale) continue;
      const auto* data = static_cast<const float*>(context.operands[i]);
      const std::vector<float> want = Content(known, formal, step, mb, 0);
      if (std::memcmp(want.data(), data, want.size() * sizeof(float)) == 0) continue;
      wrong = Mix(wrong, OfFloats(data, static_cast<int64_t>(want.size())));
      Fault(known, formal, step, mb, "reads something else as");
    }
    for (size_t i = 0; i < known.body->formals.size(); ++i) {
      const ir::Formal& formal = known.body->formals[i];
      if (!formal.written) continue;
      if (formal.alias_of != ir::kNone) Fault(known, formal, step, mb, "forwards a buffer as");
      const std::vector<float> result = Content(known, formal, step, mb, wrong);
      std::memcpy(context.operands[i], result.data(), result.size() * sizeof(float));
    }
  }

 private:
  struct Known {
    const ir::Region* region = nullptr;
    const ir::Body* body = nullptr;
    std::string pass;
    int unit = 0;
  };

  int UnitOf(ir::RegionId region) const { return unit_of_[region]; }
  // By the parameters that it reads.
  int FindUnit(const ir::Region& region) const {
    std::set<std::string> names;
    for (ir::ParameterId p : region.parameters) names.insert(plan_.regions.graph.parameters[p].name);
    for (int u = 0; u < expected_.chain().size(); ++u) {
      const std::vector<std::string>& wanted = expected_.chain().units[u].parameters;
      if (names == std::set<std::string>(wanted.begin(), wanted.end())) return u;
    }
    faults_->Add("no unit has the parameters of region " + region.name);
    return 0;
  }
  int MakerOf(ir::ValueId value) const { return UnitOf(plan_.regions.value_region[value]); }
  void Fault(const Known& known, const ir::Formal& formal, int step, int mb, const std::string& what) {
    faults_->Add(known.pass + " " + known.region->name + " of microbatch " + std::to_string(mb) + ", step " +
                 std::to_string(step) + ", " + what + " '" + formal.name + "'");
  }

  uint64_t Cotangent(const Expectation::Step& now, int of, int from, size_t mb) const {
    auto found = now.cotangents.find({of, from});
    if (found != now.cotangents.end()) return found->second[mb];
    faults_->Add("unit " + std::to_string(from) + " has no cotangent of unit " + std::to_string(of));
    return 0;
  }
  // What stands, or must stand, behind a formal. `wrong` marks results of wrong operands.
  std::vector<float> Content(const Known& known, const ir::Formal& formal, int step, int mb,
                             uint64_t wrong) const {
    const Expectation::Step& now = expected_.at(step);
    const auto at = static_cast<size_t>(mb);
    const int64_t elements = formal.type.elements();
    const auto filled = [&](uint64_t hash, uint64_t salt) {
      return Filled(wrong == 0 ? hash : Mix(hash, wrong), salt, elements);
    };
    switch (formal.kind) {
      case ir::FormalKind::kParameter:
        return now.before.at(plan_.regions.graph.parameters[formal.parameter].name);
      case ir::FormalKind::kValue:
        if (const ir::Value& value = plan_.regions.graph.values[formal.value];
            value.source == ir::Value::Source::kInput) {
          return filled(Expectation::Data(value.index, static_cast<uint64_t>(step), mb), kDataSalt);
        }
        return filled(now.values[static_cast<size_t>(MakerOf(formal.value))][at], kValueSalt);
      case ir::FormalKind::kOutput:
        return filled(now.values[static_cast<size_t>(known.unit)][at], kValueSalt);
      case ir::FormalKind::kSaved: {
        bool forward = false;
        for (const ir::Body* body : {&known.region->forward, &known.region->recompute}) {
          for (const ir::Formal& other : body->formals) {
            forward |= other.kind == ir::FormalKind::kSaved && other.written && other.saved == formal.saved;
          }
        }
        return filled((forward ? now.values : now.inner)[static_cast<size_t>(known.unit)][at],
                      kSavedSalt + formal.saved);
      }
      case ir::FormalKind::kCotangent:
        return filled(Cotangent(now, known.unit, UnitOf(formal.consumer), at), kCotangentSalt);
      case ir::FormalKind::kInputCotangent:
        return filled(Cotangent(now, MakerOf(formal.value), known.unit, at), kCotangentSalt);
      case ir::FormalKind::kGradient:
        return filled(
            expected_.Gradient(step, known.unit, plan_.regions.graph.parameters[formal.parameter].name, mb),
            kGradientSalt);
      case ir::FormalKind::kScale:
        break;
    }
    return {};
  }

  const ir::Plan& plan_;
  const Expectation& expected_;
  Faults* faults_;
  std::vector<int> unit_of_;  // a region
  std::vector<Known> bodies_;
};

class HashData : public runtime::BatchSource {
 public:
  explicit HashData(int width) : width_(width) {}
  runtime::Status Fill(uint32_t field, uint64_t step, int64_t first, int64_t samples, void* out) override {
    for (int64_t i = 0; i < samples; ++i) {
      mutants::Fill(Expectation::Data(field, step, first + i), kDataSalt,
                    static_cast<float*>(out) + i * width_, width_);
    }
    return {};
  }
  bool AllTargetsCount() const override { return true; }

 private:
  int width_;
};

}  // namespace

std::string RunWithHashes(const ir::Plan& plan, const Expectation& expected, const HashRun& run) {
  Faults faults;
  const size_t bytes = static_cast<size_t>(expected.chain().width) * sizeof(float);
  const auto same = [&](const std::byte* data, const std::vector<float>& want) {
    return data != nullptr && want.size() * sizeof(float) == bytes &&
           std::memcmp(data, want.data(), bytes) == 0;
  };
  runtime::LocalOptions options;
  options.steps = expected.steps();
  options.rendezvous = run.rendezvous;
  options.execution.poison = true;
  options.execution.delay_microseconds = run.delay_microseconds;
  options.execution.delay_one_in = run.delay_one_in;
  options.execution.delay_seed = run.delay_seed;
  options.execution.stall_seconds = 120;
  options.bodies = [&](const runtime::Job& job, const runtime::RankProgram& program) {
    return std::make_unique<HashBodies>(plan, expected, job, program, &faults);
  };
  options.source = [&](const runtime::Job&, uint32_t) {
    return std::make_unique<HashData>(expected.chain().width);
  };
  runtime::LocalHooks hooks;
  hooks.initialized = [&](const runtime::RankView& view) {
    for (const runtime::Parameter& parameter : view.program->parameters) {
      const std::vector<float>& value = expected.at(0).before.at(parameter.name);
      std::memcpy(view.value(parameter), value.data(), bytes);
    }
  };
  const auto compare = [&](const char* what, const runtime::RankView& view, uint64_t step, bool gradients) {
    for (const runtime::Parameter& parameter : view.program->parameters) {
      const auto at = static_cast<int>(step);
      const std::vector<float>& want = gradients ? expected.at(at).gradients.at(parameter.name)
                                                 : expected.at(at + 1).before.at(parameter.name);
      if (same(gradients ? view.gradient(parameter) : view.value(parameter), want)) continue;
      // Where steps overlap, the rank may have updated again.
      if (!gradients && at + 1 < expected.steps() &&
          same(view.value(parameter), expected.at(at + 2).before.at(parameter.name)))
        continue;
      faults.Add(std::string("the ") + what + " of " + parameter.name + " on rank " +
                 std::to_string(view.rank) + ", step " + std::to_string(step) +
                 ", is not the fold of its slices");
    }
  };
  hooks.gradients = [&](const runtime::RankView& view, uint64_t step) {
    compare("gradient", view, step, true);
  };
  hooks.step_done = [&](const runtime::RankView& view, uint64_t step, const runtime::StepOutcome&) {
    compare("updated value", view, step, false);
  };
  runtime::Result<runtime::LocalResult> result = runtime::RunLocal(plan.job->job(), options, hooks);
  if (!result.ok()) return result.status().message();
  for (size_t step = 0; step < result->losses.size(); ++step) {
    if (result->losses[step] != static_cast<double>(expected.at(static_cast<int>(step)).loss)) {
      faults.Add("the loss of step " + std::to_string(step) + " is not the fold of its slices");
    }
  }
  if (result->losses.size() != static_cast<size_t>(expected.steps())) faults.Add("steps are missing");
  return faults.first();
}

}  // namespace piper::mutants
