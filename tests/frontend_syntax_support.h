// Shared by the syntax tests: reading inputs, parsing a string, deterministic random numbers.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "frontend/formatter.h"
#include "frontend/parser.h"

namespace piper::frontend {

inline const std::vector<std::string>& SyntaxInputs() {
  static const std::vector<std::string> inputs = {"gpt_1f1b",       "schedules", "gpt",        "dualpipe_v3",
                                                  "zero3_megatron", "frontier",  "directives", "comments"};
  return inputs;
}

inline std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// One parsed text and all that keeps it alive.
struct Parsed {
  explicit Parsed(const std::string& text) : diag(sources) {
    id = sources.Add("t.piper", text);
    file = ParseFile(sources, id, ast, diag);
  }
  std::string Dump() const { return DumpAst(*file, ast.names); }
  std::string Errors() const { return diag.Render(ir::DiagnosticEngine::Format::kHuman, false); }

  ir::SourceManager sources;
  ir::DiagnosticEngine diag;
  Ast ast;
  ir::FileId id;
  File* file;
};

// The formatted text, or "" after an error.
inline std::string Format(const std::string& text) {
  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  return FormatSource(sources, sources.Add("t.piper", text), diag).value_or("");
}

// xorshift64*: the same sequence everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint64_t Next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1Dull;
  }
  size_t Below(size_t bound) { return static_cast<size_t>((Next() >> 16) % bound); }

 private:
  uint64_t state_;
};

}  // namespace piper::frontend
