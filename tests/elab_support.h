// What the tests of the elaborator share: programs from text, with everything but the text filled in.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "frontend/frontend.h"
#include "ir/support/diagnostics.h"
#include "ir/support/source.h"

namespace piper::frontend {

struct Loaded {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag{sources};
  std::optional<ir::Program> program;
  std::string Errors() const { return diag.Render(ir::DiagnosticEngine::Format::kHuman, false); }
  bool Has(ir::DiagKind kind) const {
    for (const ir::Diagnostic& d : diag.diagnostics()) {
      if (d.kind == kind) return true;
    }
    return false;
  }
};

inline std::unique_ptr<Loaded> LoadText(const std::string& text, std::vector<std::string> overrides = {}) {
  auto loaded = std::make_unique<Loaded>();
  LoadOptions options;
  options.text = text;
  options.overrides = std::move(overrides);
  loaded->program = LoadProgram("test.piper", options, loaded->sources, loaded->diag);
  return loaded;
}

inline std::unique_ptr<Loaded> LoadPath(const std::string& path, std::vector<std::string> overrides = {}) {
  auto loaded = std::make_unique<Loaded>();
  LoadOptions options;
  options.overrides = std::move(overrides);
  loaded->program = LoadProgram(path, options, loaded->sources, loaded->diag);
  return loaded;
}

// Evaluates an expression of type int, bool, string.. as a top-level let and returns its text through an
// error message.
inline std::unique_ptr<Loaded> CheckText(const std::string& text) {
  auto loaded = std::make_unique<Loaded>();
  LoadOptions options;
  options.text = text;
  CheckFile("test.piper", options, loaded->sources, loaded->diag);
  return loaded;
}

// A program around a strategy called `s` and a model with regions embed, layer x 4, head; four ranks.
inline std::string WithStrategy(const std::string& strategy, const std::string& train = "") {
  return R"(
import std.gpt
import std.schedules
import std.strategies
import std.topologies
model net = gpt.GPT(layers = 4, embed = 16, heads = 2, vocab = 32, seq = 8)
)" + strategy +
         R"(
train {
  model net
  data random(32)
  global_batch 16
  optimizer sgd(0.1)
  on topologies.local(ranks = 4)
  using s
)" + train +
         "}\n";
}

}  // namespace piper::frontend
