// The whole of a generated program's main. Three kinds of executable lie in one directory:
//
//   train     RunTrain: finds out which rank it is (torchrun, Open MPI, MPICH, Slurm, or bare: then it starts
//   all
//             ranks itself) and becomes that rank's role executable; `train --sample` becomes `sample`
//   <role>    RunMain: one rank of the role, named RankProgram::name; may also hold all roles (role = kNone)
//   sample    RunSample: generates text from a checkpoint
//
// train needs of Job only name, rank_count, rank_role and the names of `train`; a role executable needs its
// own program in full and of the other roles only the names. `sample_job` has one rank whose train[0]
// computes logits [1, sequence, vocab] into a buffer named "logits" from the input field "tokens". All return
// the process's exit code (runtime/status.h) and print problems to standard error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/executor.h"
#include "runtime/program.h"

namespace piper::runtime {

using BodyRunnerFactory = std::function<std::unique_ptr<BodyRunner>(const Job&, const RankProgram&)>;

int RunTrain(const Job& job, int argc, char** argv);
// `bodies` interprets bodies without a function; generated programs leave it out.
int RunMain(const Job& job, uint32_t role, int argc, char** argv, const BodyRunnerFactory& bodies = {});
int RunSample(const Job& sample_job, int argc, char** argv, const BodyRunnerFactory& bodies = {});

}  // namespace piper::runtime
