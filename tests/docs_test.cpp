// The documentation against the code: every directive, operation, function and kind of diagnostic has its
// place in docs/language.md, every link leads somewhere, and every example of every page is loaded; those
// that hold a train block are planned and proved.
//
// A fenced block ```piper is a file of its own; behind the language may stand
//   run             the file has a train block
//   strategy        the body of a strategy, in the frame of kStrategyFrame
//   forward         the body of a forward, in the frame of kForwardFrame
//   fails=KIND      the example is refused with that kind of diagnostic
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "frontend/frontend.h"
#include "frontend/natives.h"
#include "ir/model/operations.h"
#include "ir/pipeline.h"
#include "ir/support/diagnostics.h"
#include "tools/report.h"
#include "tools/schedule_svg.h"
#include "tools/timeline.h"

namespace piper {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStrategyFrame = R"(import std.gpt
import std.schedules
import std.strategies
import std.topologies
model net = gpt.GPT(layers = 4, embed = 32, heads = 4, vocab = 256, seq = 16)
strategy example(p: int = 2, m: int = 4) {
BODY
}
train {
  model net; data random(); global_batch 16; optimizer adamw(lr = 1e-3)
  on topologies.local(ranks = 4); using example()
}
)";

constexpr std::string_view kForwardFrame = R"(import std.strategies
import std.topologies
module Example() {
  param table:   [vocab = 256, embed = 32]                      = normal(0.02)
  param w:       [embed, hidden = 64]                           = normal(0.02)
  param bias:    [hidden]                                       = zeros
  param gamma:   [embed]                                        = ones
  param beta:    [embed]                                        = zeros
  param queries: [embed, heads = 4, head_dim = 8]               = normal(0.02)
  param keys:    [embed, kv_heads = 2, head_dim = 8]            = normal(0.02)
  forward(tokens: [batch, seq = 16] i32, targets: [batch, seq = 16] i32) -> loss {
    let x = layer_norm(embedding(table, tokens), gamma, beta)
    let z = tanh(x)
    let (q, k, v) = (x @ queries, x @ keys, z @ keys)
    let unused = x @ w + bias
BODY
  }
}
model net = Example()
train {
  model net; data random(); global_batch 4; optimizer sgd(0.1)
  on topologies.local(ranks = 1); using strategies.single(m = 2)
}
)";

std::string ReadText(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<fs::path> Pages() {
  std::set<fs::path> pages;
  for (const char* directory : {".", "docs", "bench"}) {
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
      if (entry.path().extension() == ".md") pages.insert(entry.path().lexically_normal());
    }
  }
  return {pages.begin(), pages.end()};
}

// The text under each heading, by its text without the hashes; of headings that occur twice both, one behind
// the other. Headings within fences do not count.
std::map<std::string, std::string> Sections(const std::string& text, std::string_view hashes) {
  std::map<std::string, std::string> sections;
  std::string current;
  bool fenced = false;
  for (const std::string& line : Lines(text)) {
    if (line.starts_with("```")) fenced = !fenced;
    size_t level = line.find_first_not_of('#');
    bool heading = !fenced && level != std::string::npos && level > 0 && line[level] == ' ';
    if (heading && level <= hashes.size()) {
      current = level == hashes.size() ? line.substr(level + 1) : "";
      continue;
    }
    if (!current.empty()) sections[current] += line + '\n';
  }
  return sections;
}

struct Example {
  std::string where;  // "docs/language.md:12"
  std::set<std::string> words;
  std::string fails;  // a kind, or empty
  std::string text;
};

std::vector<Example> Examples(const fs::path& page) {
  std::vector<Example> examples;
  bool inside = false, ours = false;
  size_t number = 0;
  for (const std::string& line : Lines(ReadText(page))) {
    ++number;
    if (line.starts_with("```")) {
      inside = !inside;
      ours = inside && (line == "```piper" || line.starts_with("```piper "));
      if (!ours) continue;
      Example& example = examples.emplace_back();
      example.where = page.string() + ":" + std::to_string(number);
      std::istringstream words(line.substr(8));
      for (std::string word; words >> word;) {
        if (word.starts_with("fails=")) {
          example.fails = word.substr(6);
        } else {
          example.words.insert(word);
        }
      }
    } else if (inside && ours) {
      examples.back().text += line + '\n';
    }
  }
  EXPECT_FALSE(inside) << page << " ends inside a fence";
  return examples;
}

std::string InFrame(std::string_view frame, const std::string& body) {
  std::string text(frame);
  return text.replace(text.find("BODY"), 4, body);
}

std::string FullText(const Example& example) {
  if (example.words.count("strategy") != 0) return InFrame(kStrategyFrame, example.text);
  if (example.words.count("forward") == 0) return example.text;
  bool returns = example.text.find("return ") != std::string::npos;
  return InFrame(kForwardFrame, example.text + (returns ? "" : "    return mean_loss(y)"));
}

TEST(Docs, EveryDirectiveHasAHeadingWithAnExample) {
  std::string grammar = ReadText("grammar/Piper.g4");
  size_t begin = grammar.find("\ndirectiveWord\n");
  ASSERT_NE(begin, std::string::npos);
  std::string rule = grammar.substr(begin, grammar.find(';', begin) - begin);
  auto chapters = Sections(ReadText("docs/language.md"), "##");
  auto sections = Sections("## x\n" + chapters["Strategies and directives"], "###");
  size_t words = 0;
  for (size_t at = rule.find('\''); at != std::string::npos; at = rule.find('\'', at + 1)) {
    size_t end = rule.find('\'', at + 1);
    std::string word = rule.substr(at + 1, end - at - 1);
    at = end;
    ++words;
    const std::string& section = sections[word];
    EXPECT_FALSE(section.empty()) << "docs/language.md has no heading '### " << word
                                  << "' among the directives";
    EXPECT_NE(section.find("```piper strategy"), std::string::npos) << word << " has no example";
    EXPECT_NE(section.find("| before | after"), std::string::npos)
        << word << " does not show the graph before and after";
  }
  EXPECT_GE(words, 20u);
}

TEST(Docs, EveryOperationHasAHeadingWithItsFormAndAnExample) {
  auto chapters = Sections(ReadText("docs/language.md"), "##");
  auto sections = Sections("## x\n" + chapters["Operations"], "###");
  std::set<std::string> known;
  for (const ir::OperationRule* rule : ir::AllOperations()) {
    if (!rule->user_visible()) continue;
    std::string name(rule->name());
    known.insert(name);
    const std::string& section = sections[name];
    ASSERT_FALSE(section.empty()) << "docs/language.md has no heading '### " << name
                                  << "' among the operations";
    EXPECT_NE(section.find(ir::Signature(*rule)), std::string::npos)
        << "the form is " << ir::Signature(*rule);
    EXPECT_NE(section.find("```piper forward"), std::string::npos) << name << " has no example";
  }
  for (const auto& [name, _] : sections) EXPECT_EQ(known.count(name), 1u) << name << " is no operation";
}

TEST(Docs, EveryFunctionOfTheLanguageIsListed) {
  std::string text = ReadText("docs/language.md");
  for (const frontend::Native& native : frontend::Natives()) {
    std::string name(native.name);
    bool listed =
        text.find("`" + name + "(") != std::string::npos || text.find("`" + name + "`") != std::string::npos;
    EXPECT_TRUE(listed) << name;
  }
}

TEST(Docs, EveryKindOfDiagnosticIsListed) {
  std::string table = Sections(ReadText("docs/language.md"), "##")["Diagnostics"];
  std::set<std::string> kinds;
  for (ir::DiagKind kind : ir::AllDiagKinds()) {
    kinds.insert(std::string(ir::DiagKindName(kind)));
    std::string row = "| `" + std::string(ir::DiagKindName(kind)) + "` |";
    EXPECT_NE(table.find(row), std::string::npos) << "no row " << row;
  }
  for (const std::string& line : Lines(table)) {
    if (!line.starts_with("| `")) continue;
    std::string kind = line.substr(3, line.find('`', 3) - 3);
    EXPECT_EQ(kinds.count(kind), 1u) << "there is no kind " << kind;
  }
}

// As GitHub makes them: lower case, punctuation dropped, spaces to hyphens; a repeated one gets "-1".
std::set<std::string> Anchors(const std::string& text) {
  std::set<std::string> anchors;
  std::map<std::string, int> seen;
  bool fenced = false;
  for (const std::string& line : Lines(text)) {
    if (line.starts_with("```")) fenced = !fenced;
    size_t level = line.find_first_not_of('#');
    if (fenced || level == 0 || level == std::string::npos || line[level] != ' ') continue;
    std::string anchor;
    for (char c : line.substr(level + 1)) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
      if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-') anchor += c;
      if (c == ' ') anchor += '-';
    }
    int repeats = seen[anchor]++;
    anchors.insert(repeats == 0 ? anchor : anchor + "-" + std::to_string(repeats));
  }
  return anchors;
}

TEST(Docs, EveryLinkLeadsSomewhere) {
  for (const fs::path& page : Pages()) {
    std::string text = ReadText(page);
    for (size_t at = text.find("]("); at != std::string::npos; at = text.find("](", at + 1)) {
      std::string target = text.substr(at + 2, text.find(')', at) - at - 2);
      if (target.starts_with("http")) continue;
      size_t hash = target.find('#');
      fs::path file = hash == 0 ? page : page.parent_path() / target.substr(0, hash);
      EXPECT_TRUE(fs::exists(file)) << page << " links to " << target;
      if (hash == std::string::npos || !fs::exists(file)) continue;
      EXPECT_EQ(Anchors(ReadText(file)).count(target.substr(hash + 1)), 1u) << page << " links to " << target;
    }
  }
}

// The README shows the real report and timeline of the example that it quotes; PIPER_UPDATE_GOLDENS=1
// rewrites them and the picture.
TEST(Docs, TheReadmeShowsTheExampleAndItsDryRun) {
  constexpr const char* kExample = "examples/gpt_1f1b.piper";
  std::string readme = ReadText("README.md"), example = ReadText(kExample);
  std::string quoted = example.substr(example.find("import "));
  EXPECT_NE(readme.find("```piper run\n" + quoted + "```"), std::string::npos)
      << "README.md quotes " << kExample;

  ir::SourceManager sources;
  ir::DiagnosticEngine diag(sources);
  auto program = frontend::LoadProgram(kExample, {}, sources, diag);
  ASSERT_TRUE(program);
  std::optional<ir::Plan> plan = ir::BuildPlan(*program, diag);
  ASSERT_TRUE(plan) << diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
  const runtime::Job& job = plan->job->job();
  const std::vector<tools::CellRow> rows =
      tools::MakeCellRows(tools::TimelineRows(job, plan->simulation, false),
                          ir::ListStageCopies(plan->dag, *program), job.strings);
  std::string text = tools::RenderReport(job, plan->simulation, false) + "\n" +
                     tools::RenderTimeline(rows, plan->simulation.makespan,
                                           {.columns = 80, .max_rows = 64, .colour = false});
  std::string svg = tools::RenderScheduleSvg(rows, plan->simulation.makespan,
                                             {.title = program->name, .bubble = plan->simulation.bubble()});
  constexpr const char* kPicture = "docs/images/gpt_1f1b.svg";
  size_t begin = readme.find("```\nstep time");
  ASSERT_NE(begin, std::string::npos);
  begin += 4;
  size_t length = readme.find("```", begin) - begin;
  if (std::getenv("PIPER_UPDATE_GOLDENS") != nullptr) {
    std::ofstream("README.md", std::ios::binary) << readme.replace(begin, length, text);
    std::ofstream(kPicture, std::ios::binary) << svg;
    return;
  }
  EXPECT_EQ(readme.substr(begin, length), text) << "after a wanted change: PIPER_UPDATE_GOLDENS=1";
  EXPECT_EQ(ReadText(kPicture), svg) << kPicture << ": after a wanted change, PIPER_UPDATE_GOLDENS=1";
}

// What docs/language.md calls "not yet" is refused as such: whoever builds one of these learns here what to
// rewrite.
TEST(Docs, WhatIsNotThereYetIsRefused) {
  const std::string pipeline =
      "mesh (pp = 2)\ncut embed, layer, head into 2 as stage\nsplit batch into m as mb\n";
  const std::string data = "mesh (dp = 2)\nsplit batch into m as mb\nshard batch over dp\n";
  for (const std::string& body : {
           std::string("mesh (tp = 2)\nshard heads | hidden over tp"),
           std::string("mesh (tp = 2)\nshard seq over tp"),
           std::string("mesh (dp = 2)\nshard batch over dp via hierarchical"),
           std::string("mesh (dp = 2)\nshard batch over dp where [layer]"),
           data + "zero 1 [*] as dp",
           data + "zero 2 [*] as dp { reduce per mb }",
           data + "zero 3 [*] per layer as fsdp",
           data + "zero 0 [*] as dp { keep [head] }",
           std::string("mesh (pp = 1)\nsplit seq into 2 as chunk"),
           std::string("mesh (pp = 1)\nsplit batch by tokens into 2 as mb"),
           std::string("mesh (pp = 1)\nsplit batch into 3 as mb uneven"),
           std::string("mesh (pp = 1)\nsplit [layer] batch into 2 as piece"),
           pipeline + "run ready hint [B, F, W]",
           pipeline + "let costs = table from \"x.csv\"",
           pipeline + "offload [attn] to disk",
       }) {
    ir::SourceManager sources;
    ir::DiagnosticEngine diag(sources);
    frontend::LoadOptions options;
    options.text = InFrame(kStrategyFrame, body);
    auto program = frontend::LoadProgram("examples/example.piper", options, sources, diag);
    EXPECT_FALSE(program && ir::BuildPlan(*program, diag)) << body;
    std::string report = diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
    EXPECT_NE(report.find("[unsupported]"), std::string::npos) << body << "\n" << report;
  }
}

TEST(Docs, EveryExampleLoads) {
  size_t count = 0;
  for (const fs::path& page : Pages()) {
    for (const Example& example : Examples(page)) {
      SCOPED_TRACE(example.where);
      ++count;
      ir::SourceManager sources;
      ir::DiagnosticEngine diag(sources);
      frontend::LoadOptions options;
      options.text = FullText(example);
      bool accepted = false;
      if (example.words.empty()) {
        accepted = frontend::CheckFile("examples/example.piper", options, sources, diag);
      } else if (auto program = frontend::LoadProgram("examples/example.piper", options, sources, diag)) {
        accepted = ir::BuildPlan(*program, diag).has_value();
      }
      std::string report = diag.Render(ir::DiagnosticEngine::Format::kHuman, false);
      EXPECT_EQ(accepted, example.fails.empty()) << report;
      std::string kind = example.fails.empty() ? "" : "[" + example.fails + "]";
      EXPECT_NE(report.find(kind), std::string::npos) << report;
    }
  }
  EXPECT_GE(count, 60u);
}

}  // namespace
}  // namespace piper
