#include "frontend/frontend.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "frontend/interpreter.h"
#include "frontend/loader.h"
#include "frontend/parser.h"
#include "frontend/resolver.h"
#include "frontend/test_runner.h"
#include "frontend/train.h"
#include "ir/model/operations.h"

namespace piper::frontend {

using ir::DiagKind;

namespace {

// One elaboration: the files, their names, and the interpreter over them.
class Elaboration {
 public:
  Elaboration(const std::string& path, const LoadOptions& options, ir::SourceManager& sources,
              ir::DiagnosticEngine& diag)
      : path_(path), options_(options), sources_(sources), diag_(diag) {}

  // Loads, resolves, and evaluates the lets and models of the main file. False after an error.
  bool Load() {
    if (!LoadFiles(path_, options_.text, sources_, diag_, &program_)) return false;
    if (diag_.HasErrors()) return false;
    ResolveNames(program_, diag_, &resolved_);
    if (diag_.HasErrors()) return false;
    interpreter_ = std::make_unique<Interpreter>(program_, resolved_, sources_, diag_);
    if (!ReadOverrides()) return false;
    for (Override& override : overrides_) {
      const TopLevelName* name = Main().Find(program_.ast.names.Find(override.name));
      if (name == nullptr || name->decl->kind != DeclKind::kLet) continue;
      interpreter_->OverrideGlobal(name->global, override.value);
      override.used = true;
    }
    for (const TopLevelName& name : Main().names) {
      if (name.decl->kind != DeclKind::kLet && name.decl->kind != DeclKind::kModel) continue;
      try {
        (void)interpreter_->Global(name.global);
      } catch (const Abort&) {
      }
    }
    return !diag_.HasErrors();
  }

  static std::string KnownBlocks(const std::vector<std::string>& names) {
    if (names.empty()) return "it has none: write `train { model ..; on ..; using .. }`";
    std::string text;
    for (const std::string& name : names) {
      text += (text.empty() ? "it has " : ", ") +
              (name.empty() ? "one without a name" : fmt::format("'{}'", name));
    }
    return text;
  }

  // The block's first word: the block itself is too long to point at.
  static SourceRange Keyword(const RunDecl& run) {
    SourceRange range = run.range;
    range.end = std::min(range.end, range.begin + (run.run == RunKind::kEval ? 4 : 5));
    return range;
  }

  // The train block that is asked for. Null after an error.
  const RunDecl* FindTrain(bool required) {
    std::vector<const RunDecl*> blocks;
    std::vector<std::string> known;
    for (Decl* decl : Main().syntax->decls) {
      if (decl->kind != DeclKind::kRun) continue;
      const auto& run = As<RunDecl>(*decl);
      if (run.run == RunKind::kInfer) {
        diag_.Error(Keyword(run), DiagKind::kUnsupported, "infer blocks are not run yet")
            .Hint("a trained model generates text with `DIR/train --sample N --resume RUN`");
        return nullptr;
      }
      if (run.run != RunKind::kTrain) continue;
      blocks.push_back(&run);
      known.emplace_back(program_.ast.names.Text(run.name.name));
    }
    SourceRange start{Main().id, 0, 0};
    if (!options_.run.empty()) {
      for (size_t i = 0; i < blocks.size(); ++i) {
        if (known[i] == options_.run) return blocks[i];
      }
      diag_.Error(start, DiagKind::kBadTrain, fmt::format("the file has no train block '{}'", options_.run))
          .Hint(KnownBlocks(known));
      return nullptr;
    }
    if (blocks.empty()) {
      const RunDecl* eval = FindEval();
      const bool whole =
          eval != nullptr && std::any_of(eval->fields.begin(), eval->fields.end(), [&](const Field& f) {
            return program_.ast.names.Text(f.name.name) == "model";
          });
      if (whole) return eval;
      if (required && eval != nullptr) {
        diag_
            .Error(Keyword(*eval), DiagKind::kBadTrain,
                   "there is no train block beside this eval block, and it does not say what to evaluate")
            .Hint("alone it reads: eval { model ..; data ..; global_batch ..; on ..; using .. }");
      } else if (required) {
        diag_.Error(start, DiagKind::kBadTrain, "the file has no train block, so there is nothing to run")
            .Hint("write `train { model ..; on ..; using .. }`");
      }
      return nullptr;
    }
    const RunDecl* unnamed = nullptr;
    for (const RunDecl* block : blocks) {
      if (block->name.name != kNoName) continue;
      if (unnamed != nullptr) {
        diag_.Error(block->range, DiagKind::kDuplicateName, "the file has two train blocks without a name")
            .Note(unnamed->range, "the first one")
            .Hint("name one of them: `train small { .. }`");
        return nullptr;
      }
      unnamed = block;
    }
    return unnamed != nullptr ? unnamed : blocks.front();
  }

  const RunDecl* FindEval() const {
    for (Decl* decl : Main().syntax->decls) {
      if (decl->kind == DeclKind::kRun && As<RunDecl>(*decl).run == RunKind::kEval)
        return &As<RunDecl>(*decl);
    }
    return nullptr;
  }

  TrainBlock Train(const RunDecl& train) {
    return EvaluateTrain(*interpreter_, train, train.run == RunKind::kEval ? nullptr : FindEval(),
                         &overrides_);
  }

  // Puts a program together. `strategy`: if given, instead of the block's own.
  ir::Program Assemble(const TrainBlock& block, const Value* strategy, SourceRange range) {
    ir::Program program;
    program.name = std::filesystem::path(path_).stem().string();
    program.base_directory = program_.main_directory;
    program.train = block.spec;
    std::shared_ptr<const ir::Graph> graph =
        interpreter_->BuildModel(block.model, block.spec.global_batch, block.model_range);
    program.model = block.evaluates ? ir::WithoutDropout(*graph) : *graph;
    if (block.evaluates) {
      for (ir::Parameter& parameter : program.model.parameters) parameter.frozen = true;
    }
    program.topology = block.topology.as<TopologyObject>().topology;
    if (strategy != nullptr) {
      interpreter_->EvaluateStrategy(*strategy, range, program.model, program.topology, nullptr,
                                     &program.directives);
      return program;
    }
    std::vector<Interpreter::ArgumentOverride> arguments;
    for (const Override& override : overrides_)
      arguments.push_back({override.name, override.value, override.range});
    Value value = interpreter_->EvaluateUsing(*block.unit, *block.strategy->value, &arguments);
    interpreter_->EvaluateStrategy(value, block.strategy->value->range, program.model, program.topology,
                                   &arguments, &program.directives);
    for (size_t i = 0; i < arguments.size(); ++i)
      overrides_[i].used = overrides_[i].used || arguments[i].used;
    if (value.is(ValueKind::kStrategy)) {
      for (const Param& param : value.as<StrategyObject>().info->function.params) {
        strategy_parameters_.push_back(interpreter_->Text(param.name.name));
      }
    }
    return program;
  }

  bool CheckOverridesUsed() {
    bool ok = true;
    for (const Override& override : overrides_) {
      if (override.used) continue;
      std::vector<std::string> known = strategy_parameters_;
      for (const TopLevelName& name : Main().names) {
        if (name.decl->kind == DeclKind::kLet) known.push_back(interpreter_->Text(name.name));
      }
      for (const std::string& field : OverridableFields()) known.push_back(field);
      auto error = diag_.Error(override.range, DiagKind::kBadOverride,
                               fmt::format("--set names '{}', which nothing here is called", override.name));
      std::string near = NearestName(override.name, known);
      error.Hint(near.empty()
                     ? "it may name a top-level let, an argument of `using`, or a number of the train block"
                     : fmt::format("did you mean '{}'?", near));
      ok = false;
    }
    return ok;
  }

  Interpreter& interpreter() { return *interpreter_; }
  const LoadedFile& Main() const { return program_.files.front(); }
  std::vector<Override>& overrides() { return overrides_; }
  const ResolvedProgram& resolved() const { return resolved_; }

 private:
  bool ReadOverrides() {
    bool ok = true;
    for (const std::string& text : options_.overrides) {
      ir::FileId file = sources_.Add("--set", text);
      SourceRange whole{file, 0, static_cast<uint32_t>(text.size())};
      size_t equals = text.find('=');
      auto identifier = [](std::string_view name) {
        return !name.empty() && !(name[0] >= '0' && name[0] <= '9') &&
               std::all_of(name.begin(), name.end(), [](char c) {
                 return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                        (c >= 'A' && c <= 'Z');
               });
      };
      if (equals == std::string::npos || !identifier(text.substr(0, equals))) {
        diag_.Error(whole, DiagKind::kBadOverride, fmt::format("'{}' is no setting", text))
            .Hint("write name=value, for example --set m=16");
        ok = false;
        continue;
      }
      bool again = std::any_of(overrides_.begin(), overrides_.end(),
                               [&](const Override& other) { return other.name == text.substr(0, equals); });
      if (again) {
        diag_
            .Error(whole, DiagKind::kBadOverride,
                   fmt::format("--set gives '{}' twice", text.substr(0, equals)))
            .Hint("remove one");
        ok = false;
        continue;
      }
      // The value keeps its place in the text: the name before it is blanked out.
      std::string value = std::string(equals + 1, ' ') + text.substr(equals + 1);
      ir::FileId value_file = sources_.Add("--set", std::move(value));
      size_t errors = diag_.error_count();
      Expr* expr = ParseExpression(sources_, value_file, program_.ast, diag_);
      if (expr == nullptr || diag_.error_count() > errors) {
        ok = false;
        continue;
      }
      Override override;
      override.name = text.substr(0, equals);
      override.range = whole;
      try {
        override.value = interpreter_->EvaluateIn(constant_unit_, *expr);
        overrides_.push_back(std::move(override));
      } catch (const Abort&) {
        ok = false;
      }
    }
    return ok;
  }

  std::string path_;
  const LoadOptions& options_;
  ir::SourceManager& sources_;
  ir::DiagnosticEngine& diag_;
  LoadedProgram program_;
  ResolvedProgram resolved_;
  FunctionInfo constant_unit_;
  std::unique_ptr<Interpreter> interpreter_;
  std::vector<Override> overrides_;
  std::vector<std::string> strategy_parameters_;
};

}  // namespace

std::optional<ir::Program> LoadProgram(const std::string& path, const LoadOptions& options,
                                       ir::SourceManager& sources, ir::DiagnosticEngine& diag) {
  Elaboration elaboration(path, options, sources, diag);
  if (!elaboration.Load()) return std::nullopt;
  const RunDecl* train = elaboration.FindTrain(true);
  if (train == nullptr) return std::nullopt;
  try {
    TrainBlock block = elaboration.Train(*train);
    ir::Program program = elaboration.Assemble(block, nullptr, {});
    if (!elaboration.CheckOverridesUsed() || diag.HasErrors()) return std::nullopt;
    return program;
  } catch (const Abort&) {
    return std::nullopt;
  }
}

bool CheckFile(const std::string& path, const LoadOptions& options, ir::SourceManager& sources,
               ir::DiagnosticEngine& diag) {
  Elaboration elaboration(path, options, sources, diag);
  return elaboration.Load();
}

std::optional<std::vector<TestResult>> RunTests(const std::string& path, const LoadOptions& options,
                                                const std::string& filter, PlanService& plans,
                                                ir::SourceManager& sources, ir::DiagnosticEngine& diag) {
  Elaboration elaboration(path, options, sources, diag);
  if (!elaboration.Load()) return std::nullopt;
  // Tests borrow what they do not say from the train block, if there is one.
  std::optional<TrainBlock> base;
  const RunDecl* train = elaboration.FindTrain(false);
  if (diag.HasErrors()) return std::nullopt;
  Interpreter& interpreter = elaboration.interpreter();
  interpreter.set_program_maker([&](Interpreter& in, const Value& model, const Value& strategy,
                                    SourceRange range,
                                    const std::vector<std::pair<std::string, Value>>& settings) {
    if (!base && train != nullptr) base = elaboration.Train(*train);
    TrainBlock block = base ? *base : TrainBlock{};
    if (!base) {
      block.spec.optimizers.emplace_back();
      block.spec.optimizers.back().lr.peak = 1e-3;
    }
    block.model = model;
    block.model_range = range;
    for (const auto& [name, value] : settings) {
      if (name == "on") {
        if (!value.is(ValueKind::kTopology)) in.FailType(range, "'on'", "a topology", value);
        block.topology = value;
        block.topology_range = range;
      } else {
        block.spec.global_batch = in.IntOf(value, range, "'global_batch'");
        if (block.spec.global_batch < 1) in.Fail(range, DiagKind::kBadTrain, "the global batch is empty");
      }
    }
    if (!block.topology.is(ValueKind::kTopology)) {
      in.Fail(range, DiagKind::kBadTrain, "a plan needs a topology: the file has no train block",
              "write plan(model, strategy, on = topologies.local(ranks = 4), global_batch = 32)");
    }
    return elaboration.Assemble(block, &strategy, range);
  });
  std::vector<TestResult> results;
  for (Decl* decl : elaboration.Main().syntax->decls) {
    if (decl->kind != DeclKind::kTest) continue;
    const auto& test = As<TestDecl>(*decl);
    if (!filter.empty() && test.name.find(filter) == std::string_view::npos) continue;
    TestResult result;
    result.name = std::string(test.name);
    result.range = test.name_range;
    result.passed = interpreter.ExecuteTest(test, &plans);
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace piper::frontend
