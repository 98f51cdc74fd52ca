// The brute-force model that confirms or contradicts the compiler's verdict on a schedule. It reads the
// program's text itself, line by line, derives from the model's definition what every pass needs and which
// messages there are, and then plays the step: every rank has its lists, a list's head is done as soon as it
// can be, a message goes over only when both its send and its receive are heads (nothing is buffered). What
// is left when nothing moves is stuck.
//
// Independence: it shares no code with the compiler, the proofs, the simulator or the executor, and includes
// none of it. It knows the language only in the form in which tests/mutants_text.h writes programs: one
// directive or step a line.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/mutants_chain.h"

namespace piper::mutants {

struct Verdict {
  enum class Kind { kFine, kStuck, kWrong } kind = Kind::kFine;
  std::string why;  // kStuck, kWrong: in words
  // kWrong: lines of the steps that must not stand there, or that stand there twice, and of the `order` that
  // leaves a step out.
  std::set<int> wrong_lines;
  // kStuck: lines of the steps that lie on a cycle of waiting; and of all that the cycle's nodes come from
  // (the places of their stages, the `stream` lines) as well.
  std::set<int> cycle_steps, cycle_lines;
  // kStuck: lines of all steps that never happen.
  std::set<int> stuck_steps;
  // kFine: lines of compute steps in an order in which they can be done.
  std::vector<int> executed;
  // kFine: per unit, per copy of its stage: microbatches in the order of its BWs.
  std::vector<std::vector<std::vector<int>>> folds;
};

// `text`: a program in the form of tests/mutants_text.h, with `chain` as its model. Lines count from 1.
Verdict Judge(const std::string& text, const Chain& chain);

// The sizes of messages in a plan's text (`piperc --emit=dag`): numbers of the lines of messages of which one
// end states other bytes than the other, or than `bytes`, those of a unit's value for one microbatch.
std::set<int> WrongSizes(const std::string& dag_text, int64_t bytes);

}  // namespace piper::mutants
