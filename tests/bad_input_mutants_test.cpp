// Broken programs: deterministic mutants of every example, of the standard library inside a program that uses
// it, and of a strategy with most directives. Each must end soon, without a crash, and with a plan or with
// located errors.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/bad_input_support.h"

namespace piper::bad_input {
namespace {

struct Seed {
  std::string name, text;
};

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> FilesIn(const std::string& directory) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.is_regular_file() && entry.path().extension() == ".piper")
      paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// A program in which a strategy uses most directives.
constexpr char kEverything[] = R"(
import std.gpt
import std.topologies
model net = gpt.GPT(layers = 4, embed = 8, heads = 2, vocab = 16, seq = 4)
strategy s(p: int, m: int, dp: int = 2) requires p >= 1, m >= p {
  mesh grid (pp = p, dp = dp)
  cut embed, layer, head into [embed + layer, 2 * layer, layer + head] as stage
  split batch into 2 as half, div(m, 2) as mb
  shard batch over dp
  zero 0 [*] as dp { bucket 1 KiB }
  for s in 0..p { place [stage = s] on pp[s] }
  order on pp[0] {
    for h in 0..2 { lanes { compute: for i in 0..div(m, 2) { F[stage = 0, half = h, mb = i] } } }
    barrier
    for h in 0..2 { for i in 0..div(m, 2) { B[stage = 0, half = h, mb = i] } }
  }
  edge F[stage = 1, half = 0, mb = 0] -> F[stage = 1, half = 1, mb = 0]
  limit 6 live F[stage = 2]
  stream [dp.reduce] on reduce
  freeze [layer = 0]
  cost F[layer] = 10 us
  cost [send] = 1 MiB
  run strict
  numerics reproducible
  assert peak_memory < 4 GiB
  assert step_time < 1000 s
}
train {
  model net
  data random(16)
  global_batch 16
  steps 2
  optimizer adamw(lr = warmup(2, 1e-3)) where not [mlp]
  optimizer sgd(0.1) where [mlp]
  clip 1.0
  on topologies.local(ranks = 6)
  using s(p = 3, m = 4)
}
)";

// Plain data parallelism and pipelines over the library, after the text of one of its files.
std::string AroundLibrary(const std::string& name, const std::string& text) {
  auto imports = [&](const char* module) {
    return name == module ? std::string() : std::string("import std.") + module + "\n";
  };
  auto of = [&](const char* module) { return name == module ? std::string() : std::string(module) + "."; };
  std::string harness;
  for (const char* module : {"gpt", "llama", "mlp", "schedules", "strategies", "topologies"}) {
    if (text.find(std::string("import std.") + module) == std::string::npos) harness += imports(module);
  }
  harness += text;
  std::string model = of("gpt") + "GPT(layers = 4, embed = 8, heads = 2, vocab = 16, seq = 4)";
  if (name == "mlp") model = "MLP(layers = 3, inputs = 4, width = 4, outputs = 2)";
  if (name == "llama")
    model = "Llama(layers = 2, embed = 8, heads = 2, kv_heads = 1, hidden = 16, vocab = 16, seq = 4)";
  std::string strategy = "strategies.one_f_one_b(p = 2, m = 4)";
  if (name == "schedules") strategy = "strategies.pipeline_by(interleaved_all, 2, 4)";
  if (name == "strategies") strategy = "pipeline_data_parallel(p = 2, dp = 2, m = 4)";
  if (name == "mlp") strategy = "strategies.data_parallel(2)";
  if (name == "schedules") {
    harness += "fn interleaved_all(s: int, p: int, m: int) -> schedule { one_f_one_b(s, p, m) }\n";
  }
  return harness + "\nmodel fuzz_net = " + model +
         "\ntrain {\n  model fuzz_net\n  data random()\n  global_batch 8\n" + "  optimizer sgd(0.1)\n  on " +
         of("topologies") + "local(ranks = 4)\n  using " + strategy + "\n}\n";
}

std::vector<Seed> Seeds() {
  std::vector<Seed> seeds;
  seeds.push_back({"everything", kEverything});
  for (const std::string& path : FilesIn("examples")) seeds.push_back({path, ReadAll(path)});
  for (const std::string& path : FilesIn("stdlib")) {
    seeds.push_back({path, AroundLibrary(std::filesystem::path(path).stem().string(), ReadAll(path))});
  }
  return seeds;
}

// ---- mutation

struct Token {
  enum Kind { kSpace, kWord, kNumber, kString, kComment, kMark } kind;
  std::string text;
};

std::vector<Token> Tokens(const std::string& text) {
  auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  std::vector<Token> tokens;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    Token::Kind kind = Token::kMark;
    char c = text[at];
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      kind = Token::kSpace;
      while (end < text.size() && std::isspace(static_cast<unsigned char>(text[end])) != 0) ++end;
    } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      kind = Token::kNumber;
      while (end < text.size() &&
             (word(text[end]) || (text[end] == '.' && end + 1 < text.size() && word(text[end + 1])))) {
        ++end;
      }
    } else if (word(c)) {
      kind = Token::kWord;
      while (end < text.size() && word(text[end])) ++end;
    } else if (c == '"') {
      kind = Token::kString;
      while (end < text.size() && text[end] != '"' && text[end] != '\n') ++end;
      end = std::min(end + 1, text.size());
    } else if (c == '/' && end < text.size() && text[end] == '/') {
      kind = Token::kComment;
      end = std::min(text.find('\n', at), text.size());
    }
    tokens.push_back({kind, text.substr(at, end - at)});
    at = end;
  }
  return tokens;
}

std::string Text(const std::vector<Token>& tokens) {
  std::string text;
  for (const Token& token : tokens) text += token.text;
  return text;
}

std::vector<size_t> Where(const std::vector<Token>& tokens, Token::Kind kind) {
  std::vector<size_t> places;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].kind == kind) places.push_back(i);
  }
  return places;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    lines.push_back(text.substr(at, end - at));
    at = end;
  }
  return lines;
}

std::string Join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

// One change that a person could make by mistake, or that a broken tool would.
void MutateOnce(std::string* text, Random& random) {
  static const std::vector<std::string> kNumbers = {"0",
                                                    "-1",
                                                    "1",
                                                    "2",
                                                    "3",
                                                    "5",
                                                    "7",
                                                    "16",
                                                    "64",
                                                    "1000",
                                                    "65536",
                                                    "1000000",
                                                    "1000000000",
                                                    "2147483648",
                                                    "4294967297",
                                                    "9223372036854775807",
                                                    "-9223372036854775807",
                                                    "0.5",
                                                    "1e-300",
                                                    "1e308",
                                                    "0.0",
                                                    "1.5",
                                                    "3 us",
                                                    "1 MiB",
                                                    "9000000 TiB",
                                                    "0 us",
                                                    "true",
                                                    "[]",
                                                    "[1, 2]",
                                                    "\"x\"",
                                                    "all",
                                                    "p",
                                                    "m"};
  static const std::vector<std::string> kWords = {
      "F",     "B",      "BI",    "BW",    "U",       "R",     "[*]",         "[layer]",  "[stage = 0]",
      "stage", "layer",  "embed", "head",  "norm",    "attn",  "mb",          "batch",    "seq",
      "vocab", "heads",  "all",   "not",   "for",     "in",    "0..3",        "if",       "let",
      "var",   "return", "else",  "tag",   "loss",    "fn",    "sel",         "place",    "order",
      "use",   "queue",  "lanes", "fused", "barrier", "count", "[dp.reduce]", "[send]",   "[recv]",
      "?",     "..",     "-",     "%",     "/",       "@",     ".T",          "*",        "+",
      "==",    "<",      "and",   "or",    "(",       ")",     "{",           "}",        "[",
      "]",     ",",      ";",     "\n",    "->",      "=",     "uneven",      "override", "strict",
      "ready", "reduce"};
  std::vector<Token> tokens = Tokens(*text);
  if (tokens.empty()) return;
  auto retext = [&] { *text = Text(tokens); };
  switch (random.Below(16)) {
    case 0:
    case 1:
    case 2:
    case 3: {  // a number
      std::vector<size_t> numbers = Where(tokens, Token::kNumber);
      if (numbers.empty()) return;
      tokens[random.Of(numbers)].text = random.Of(kNumbers);
      return retext();
    }
    case 4:
    case 5: {  // one name for another
      std::vector<size_t> words = Where(tokens, Token::kWord);
      if (words.empty()) return;
      tokens[random.Of(words)].text = tokens[random.Of(words)].text;
      return retext();
    }
    case 6:  // a word that the language knows
      tokens[random.Below(tokens.size())].text = " " + random.Of(kWords) + " ";
      return retext();
    case 7:  // a token less
      tokens[random.Below(tokens.size())].text.clear();
      return retext();
    case 8: {  // a token twice
      Token& token = tokens[random.Below(tokens.size())];
      token.text += " " + token.text;
      return retext();
    }
    case 9: {  // a line less, or twice, or elsewhere
      std::vector<std::string> lines = Lines(*text);
      size_t at = random.Below(lines.size());
      std::string line = lines[at];
      size_t how = random.Below(4);
      if (how != 1) lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(at));
      if (how != 0) {
        size_t to = how == 1 ? at : random.Below(lines.size() + 1);
        lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(to), line);
      }
      *text = Join(lines);
      return;
    }
    case 10: {  // two neighbouring lines swapped
      std::vector<std::string> lines = Lines(*text);
      if (lines.size() < 2) return;
      size_t at = random.Below(lines.size() - 1);
      std::swap(lines[at], lines[at + 1]);
      *text = Join(lines);
      return;
    }
    case 11: {  // two tokens swapped
      size_t a = random.Below(tokens.size()), b = random.Below(tokens.size());
      std::swap(tokens[a].text, tokens[b].text);
      return retext();
    }
    case 12: {  // a mark for another
      std::vector<size_t> marks = Where(tokens, Token::kMark);
      if (marks.empty()) return;
      tokens[random.Of(marks)].text = std::string(1, "+-*/%<>=.,:;()[]{}@?|!"[random.Below(22)]);
      return retext();
    }
    case 13: {  // bytes lost
      size_t at = random.Below(text->size());
      text->erase(at, 1 + random.Below(random.Below(4) == 0 ? 200 : 4));
      return;
    }
    case 14: {  // bytes repeated
      size_t at = random.Below(text->size());
      text->insert(random.Below(text->size()), text->substr(at, 1 + random.Below(60)));
      return;
    }
    default:  // any byte
      (*text)[random.Below(text->size())] = static_cast<char>(random.Below(256));
      return;
  }
}

std::string Mutant(const Seed& seed, uint64_t number) {
  Random random(number);
  std::string text = seed.text;
  // Mostly one mistake: with several, the first hides the others.
  for (size_t edits = random.Below(4) == 0 ? 1 + random.Below(4) : 1; edits > 0 && !text.empty(); --edits) {
    MutateOnce(&text, random);
  }
  return text;
}

TEST(BadInput, MutantsEndWithAPlanOrAnError) {
  std::vector<Seed> seeds = Seeds();
  RunCases(ChosenCases(400, 40'000), [&](uint64_t number) {
    const Seed& seed = seeds[number % seeds.size()];
    return std::pair(" of " + seed.name, Mutant(seed, number));
  });
}

// Sums of figures as large as they may be stay within 64 bits.
TEST(BadInput, HugeFiguresAreSummed) {
  std::string text = kEverything;
  auto replace = [&](const std::string& from, const std::string& to) {
    size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  };
  replace("cost F[layer] = 10 us", "cost F = 9000000 s\n  cost [dp.reduce] = 8000000 TiB");
  replace("cost [send] = 1 MiB", "cost [send] = 8000000 TiB");
  replace("assert step_time < 1000 s", "assert step_time > 1000 s");
  Outcome outcome = RunProgram("huge.piper", text, false);
  EXPECT_TRUE(outcome.accepted) << outcome.rendered;
}

// The seeds themselves are good.
TEST(BadInput, SeedsAreAccepted) {
  for (const Seed& seed : Seeds()) {
    SCOPED_TRACE(seed.name);
    ir::SourceManager sources;
    ir::DiagnosticEngine diag(sources);
    frontend::LoadOptions options;
    options.text = seed.text;
    std::optional<ir::Program> program = frontend::LoadProgram("seed.piper", options, sources, diag);
    EXPECT_TRUE(program && ir::BuildPlan(*program, diag))
        << diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
  }
}

}  // namespace
}  // namespace piper::bad_input
