// What a generated executable looks like to the runtime: one program for all ranks of the four-rank job.
#include "runtime/main.h"
#include "tests/runtime_four_ranks.h"

int main(int argc, char** argv) {
  piper::runtime::testing::FourRanks four;
  return piper::runtime::RunMain(four.job(), piper::runtime::kNone, argc, argv);
}
