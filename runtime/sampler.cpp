#include "runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "runtime/checkpoint.h"
#include "runtime/segment.h"
#include "runtime/shared_memory_transport.h"

namespace piper::runtime {
namespace {

// The window as the only sample of every batch.
class WindowSource : public BatchSource {
 public:
  explicit WindowSource(const Job& job) : job_(job), tokens(static_cast<size_t>(job.sequence), 0) {}

  Status Fill(uint32_t field, uint64_t, int64_t, int64_t samples, void* out) override {
    const InputField& input = job_.inputs[field];
    int64_t bytes = input.elements_per_sample * samples * ElementBytes(input.type);
    std::memset(out, 0, static_cast<size_t>(bytes));
    if (std::strcmp(input.name, "tokens") != 0) return {};
    std::memcpy(out, tokens.data(),
                std::min<size_t>(static_cast<size_t>(bytes), tokens.size() * sizeof(int32_t)));
    return {};
  }

 private:
  const Job& job_;

 public:
  std::vector<int32_t> tokens;
};

double Unit(uint64_t seed, uint64_t index) {
  uint64_t z = seed + 0x9e3779b97f4a7c15u * (index + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

Result<std::vector<int32_t>> ReadPrompt(const std::string& prompt, int64_t vocab) {
  std::vector<int32_t> tokens;
  if (vocab <= 256) {
    for (char c : prompt) tokens.push_back(static_cast<uint8_t>(c));
  } else {
    const char* at = prompt.c_str();
    while (*at != '\0') {
      if (*at == ' ') {
        ++at;
        continue;
      }
      char* end = nullptr;
      long value = std::strtol(at, &end, 10);
      if (end == at || value < 0)
        return UsageError("--prompt: the model's vocabulary has more than bytes: give token numbers");
      tokens.push_back(static_cast<int32_t>(std::min<long>(value, INT32_MAX)));
      at = end;
    }
  }
  for (int32_t token : tokens) {
    if (token >= vocab)
      return UsageError("--prompt: token " + std::to_string(token) + " is not in the vocabulary");
  }
  return tokens;
}

std::string TokenText(int32_t token, int64_t vocab, bool first) {
  if (vocab <= 256) return std::string(1, static_cast<char>(token));
  return (first ? "" : " ") + std::to_string(token);
}

}  // namespace

int64_t ChooseToken(const float* logits, int64_t vocab, double temperature, int64_t top_k, double unit) {
  int64_t best = 0;
  for (int64_t i = 0; i < vocab; ++i) {
    if (std::isnan(logits[i])) return -1;
    if (logits[i] > logits[best]) best = i;
  }
  if (!std::isfinite(logits[best])) return -1;
  if (temperature <= 0) return best;
  std::vector<int64_t> order(static_cast<size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  if (top_k > 0 && top_k < vocab) order.resize(static_cast<size_t>(top_k));
  std::vector<double> weights;
  double sum = 0;
  for (int64_t token : order) {
    weights.push_back(
        std::exp((static_cast<double>(logits[token]) - static_cast<double>(logits[best])) / temperature));
    sum += weights.back();
  }
  double rest = unit * sum;
  for (size_t i = 0; i < order.size(); ++i) {
    rest -= weights[i];
    if (rest < 0) return order[i];
  }
  return order.back();
}

Status Sample(const Job& job, const SampleOptions& options,
              const std::function<std::unique_ptr<BodyRunner>(const Job&, const RankProgram&)>& bodies,
              const std::function<void(const std::string&)>& emit) {
  if (job.rank_count != 1 || job.train.size() != 1) return InternalError("a sampling job has one rank");
  const RankProgram& program = job.train[0];
  uint32_t logits = kNone;
  for (uint32_t i = 0; i < program.buffers.size(); ++i) {
    if (std::strcmp(program.buffers[i].name, "logits") == 0) logits = i;
  }
  int64_t vocab = 0;
  for (const InputField& input : job.inputs) {
    if (std::strcmp(input.name, "tokens") == 0) vocab = input.vocab;
  }
  if (logits == kNone || vocab <= 0 || job.sequence <= 0 ||
      program.buffers[logits].type != ElementType::kF32 ||
      program.buffers[logits].bytes < job.sequence * vocab * 4) {
    return InternalError("the sampling job has no f32 buffer 'logits' of its sequence and vocabulary");
  }
  Result<std::vector<int32_t>> prompt = ReadPrompt(options.prompt, vocab);
  if (!prompt.ok()) return prompt.status();
  std::vector<int32_t> text = *prompt;
  // Without a prompt the text begins after a line's end, where the vocabulary is bytes.
  bool invisible = text.empty();
  if (invisible) text.push_back(vocab > '\n' ? '\n' : 0);

  Result<std::unique_ptr<Segment>> segment = Segment::CreateLocal(1);
  if (!segment.ok()) return segment.status();
  SharedMemoryTransport transport(**segment, 0, job.strings);
  WindowSource window(job);
  std::unique_ptr<BodyRunner> runner = bodies ? bodies(job, program) : nullptr;
  Executor::Setup setup;
  setup.job = &job;
  setup.transport = &transport;
  setup.train_source = &window;
  setup.train_bodies = runner.get();
  setup.seed = options.seed;
  Result<std::unique_ptr<Executor>> executor = Executor::Create(setup);
  if (!executor.ok()) return executor.status();
  PIPER_RETURN_IF_ERROR(LoadCheckpoint(options.checkpoint, **executor, /*parameters_only=*/true));

  for (size_t i = invisible ? 1 : 0; i < text.size(); ++i) emit(TokenText(text[i], vocab, i == 0));
  for (int64_t i = 0; i < options.tokens; ++i) {
    int64_t length = std::min<int64_t>(static_cast<int64_t>(text.size()), job.sequence);
    std::fill(window.tokens.begin(), window.tokens.end(), 0);
    std::copy(text.end() - length, text.end(), window.tokens.begin());
    StepOutcome outcome;
    PIPER_RETURN_IF_ERROR((*executor)->RunTrain(static_cast<uint64_t>(i), outcome));
    const float* row = reinterpret_cast<const float*>((*executor)->buffer(logits)) + (length - 1) * vocab;
    int64_t token = ChooseToken(row, vocab, options.temperature, options.top_k,
                                Unit(options.seed, static_cast<uint64_t>(i)));
    if (token < 0) return InputError("the model's logits are not finite");
    text.push_back(static_cast<int32_t>(token));
    emit(TokenText(text.back(), vocab, invisible && i == 0));
  }
  return {};
}

}  // namespace piper::runtime
