// A small job built by hand for tests of code generation: two roles of one rank each, an embedding on the
// first, a projection with cross-entropy on the second, two microbatches in 1F1B order. Every name in it can
// be chosen, so that hostile ones can be tried.
#pragma once

#include <memory>
#include <string>

#include "ir/lower/job_storage.h"

namespace piper::test {

struct JobNames {
  std::string embed_body = "embed_fwd", embed_weight = "embed_bwd_weight";
  std::string head_body = "head_fwd", head_input = "head_bwd_input", head_weight = "head_bwd_weight";
  std::string table = "wte.weight", projection = "head.w";
  std::string stream = "compute";
  std::string task = "F embed", origin = "small.piper:20:5";
  std::string operation = "wte#0";
  std::string job = "small";
};

// Every name holds what would break a literal, a comment or an identifier of the generated text.
JobNames HostileNames();

constexpr int64_t kBatch = 2, kSequence = 8, kVocab = 256, kWidth = 16;  // samples a microbatch, ..

std::unique_ptr<ir::JobStorage> MakeSmallJob(const JobNames& names = {});

// One role with `tasks` tasks over four streams: for the time that tables take to compile.
std::unique_ptr<ir::JobStorage> MakeLongJob(uint32_t tasks);

}  // namespace piper::test
