#include "runtime/options.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace piper::runtime {
namespace {

enum class Kind : uint8_t { kFlag, kCount, kText, kReal, kMaybeText };

struct Option {
  const char* name;
  Kind kind;
  const char* value;  // as --help calls it
  const char* help;
};

constexpr Option kOptions[] = {
    {"steps", Kind::kCount, "N", "train until N steps are done, instead of the file's number"},
    {"data", Kind::kText, "PATH", "read this instead of the file's data; wildcards; may be repeated"},
    {"out", Kind::kText, "DIR", "write checkpoints (DIR/step-N), metrics.jsonl and run.json there"},
    {"resume", Kind::kMaybeText, "[PATH]", "go on from a checkpoint: a path, or the newest in --out (auto)"},
    {"keep", Kind::kCount, "N", "keep the newest N checkpoints (default 3; 0: all)"},
    {"checkpoint-every", Kind::kCount, "N", "write a checkpoint every N steps, and at the end"},
    {"metrics", Kind::kText, "FILE", "write the metrics (JSON lines) there"},
    {"trace", Kind::kText, "FILE", "write a Chrome trace of two steps there"},
    {"check-finite", Kind::kFlag, "", "look for infinities and NaNs after every task (slow)"},
    {"seed", Kind::kCount, "N", "the seed of training, or of sampling with --sample"},
    {"eval-only", Kind::kFlag, "", "print the validation loss of the checkpoint and stop"},
    {"sample", Kind::kCount, "N", "generate N tokens from the checkpoint instead of training"},
    {"prompt", Kind::kText, "TEXT", "what the generated text begins with"},
    {"temperature", Kind::kReal, "T", "of sampling (default 0.8; 0: the likeliest token)"},
    {"top-k", Kind::kCount, "K", "sample among the K likeliest tokens (default 0: all)"},
    {"quiet", Kind::kFlag, "", "print nothing but errors"},
    {"list", Kind::kFlag, "", "print ranks, roles and parameters, and stop"},
    {"help", Kind::kFlag, "", "print this, and stop"},
};

const Option* Find(const std::string& name) {
  for (const Option& option : kOptions) {
    if (name == option.name) return &option;
  }
  return nullptr;
}

// Steps of insertion, deletion and replacement between two words.
size_t Distance(const std::string& a, const std::string& b) {
  std::string row(b.size() + 1, '\0');
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<char>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    char diagonal = row[0];
    row[0] = static_cast<char>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      char above = row[j];
      int best = std::min<int>(std::min<int>(above, row[j - 1]) + 1, diagonal + (a[i - 1] != b[j - 1]));
      row[j] = static_cast<char>(best);
      diagonal = above;
    }
  }
  return static_cast<size_t>(row[b.size()]);
}

Status Set(RunOptions& options, const Option& option, const std::string& value) {
  std::string name = option.name;
  uint64_t count = 0;
  double real = 0;
  if (option.kind == Kind::kCount) {
    errno = 0;
    char* end = nullptr;
    count = std::strtoull(value.c_str(), &end, 10);
    bool digits = !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || errno != 0 || (name != "seed" && count > uint64_t{1} << 40)) {
      return UsageError("--" + name + " takes a whole number, not '" + value + "'");
    }
  } else if (option.kind == Kind::kReal) {
    char* end = nullptr;
    real = std::strtod(value.c_str(), &end);
    if (value.empty() || *end != '\0' || !std::isfinite(real) || real < 0) {
      return UsageError("--" + name + " takes a number that is not negative, not '" + value + "'");
    }
  }
  int64_t number = static_cast<int64_t>(count);
  if (name == "steps") options.steps = number;
  if (name == "data") options.data += (options.data.empty() ? "" : "\n") + value;
  if (name == "out") options.out = value;
  if (name == "resume") options.resumes = true, options.resume = value.empty() ? "auto" : value;
  if (name == "keep") options.keep = number;
  if (name == "checkpoint-every") options.checkpoint_every = number;
  if (name == "metrics") options.metrics = value;
  if (name == "trace") options.trace = value;
  if (name == "check-finite") options.check_finite = true;
  if (name == "seed") options.seeded = true, options.seed = count;
  if (name == "eval-only") options.eval_only = true;
  if (name == "sample") options.samples = true, options.sample = number;
  if (name == "prompt") options.prompt = value;
  if (name == "temperature") options.temperature = real;
  if (name == "top-k") options.top_k = number;
  if (name == "quiet") options.quiet = true;
  if (name == "list") options.list = true;
  if (name == "help") options.help = true;
  return {};
}

}  // namespace

Result<RunOptions> ParseOptions(int argc, char** argv) {
  RunOptions options;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "-h") word = "--help";
    if (word.size() < 3 || word.compare(0, 2, "--") != 0) {
      return UsageError("unexpected argument '" + word + "' (see --help)");
    }
    size_t equals = word.find('=');
    std::string name = word.substr(2, equals == std::string::npos ? std::string::npos : equals - 2);
    const Option* option = Find(name);
    if (option == nullptr) {
      const Option* nearest = nullptr;
      for (const Option& other : kOptions) {
        if (name.size() < 100 && Distance(name, other.name) <= 2 &&
            (nearest == nullptr || Distance(name, other.name) < Distance(name, nearest->name))) {
          nearest = &other;
        }
      }
      return UsageError(
          "unknown option --" + name +
          (nearest != nullptr ? std::string("; did you mean --") + nearest->name + "?" : " (see --help)"));
    }
    bool inline_value = equals != std::string::npos;
    std::string value = inline_value ? word.substr(equals + 1) : "";
    if (option->kind == Kind::kFlag && inline_value) return UsageError("--" + name + " takes no value");
    bool next_is_value = i + 1 < argc && std::strncmp(argv[i + 1], "--", 2) != 0;
    if (option->kind == Kind::kMaybeText && !inline_value && next_is_value) value = argv[++i];
    if (option->kind != Kind::kFlag && option->kind != Kind::kMaybeText && !inline_value) {
      if (i + 1 >= argc) return UsageError("--" + name + " needs a value");
      value = argv[++i];
    }
    PIPER_RETURN_IF_ERROR(Set(options, *option, value));
  }
  return options;
}

std::string HelpText(const char* program, const char* job) {
  std::string text = std::string("usage: ") + program + " [options]\ntrains '" + job + "'\n\n";
  for (const Option& option : kOptions) {
    std::string left =
        std::string("  --") + option.name + (option.value[0] != '\0' ? " " : "") + option.value;
    left.resize(std::max<size_t>(left.size() + 2, 24), ' ');
    text += left + option.help + "\n";
  }
  return text;
}

}  // namespace piper::runtime
