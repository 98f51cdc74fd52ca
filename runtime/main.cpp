#include "runtime/main.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include "runtime/checkpoint.h"
#include "runtime/data.h"
#include "runtime/identity.h"
#include "runtime/initialize.h"
#include "runtime/launcher.h"
#include "runtime/options.h"
#include "runtime/sampler.h"
#include "runtime/shared_memory_transport.h"
#include "runtime/trace.h"
#include "runtime/trainer.h"

namespace piper::runtime {
namespace {

constexpr int kJoinSeconds = 120;

int Report(const Status& status) {
  std::fprintf(stderr, "piper: %s\n", status.message().c_str());
  return status.code();
}

const char* BaseName(const char* path) {
  const char* slash = std::strrchr(path, '/');
  return slash == nullptr ? path : slash + 1;
}

void PrintList(const Job& job) {
  std::printf("job %s, plan %s, %u ranks\n", job.name, job.plan_hash == nullptr ? "" : job.plan_hash,
              job.rank_count);
  for (uint32_t rank = 0; rank < job.rank_count; ++rank) {
    std::printf("rank %u: %s\n", rank, job.train[job.rank_role[rank]].name);
  }
  for (const RankProgram& program : job.train) {
    if (program.tasks.empty()) continue;
    std::printf("%s: %zu tasks on %zu streams, %lld bytes\n", program.name, program.tasks.size(),
                program.streams.size(), static_cast<long long>(program.arena_bytes));
    for (const Parameter& parameter : program.parameters) {
      std::printf("  %s [", parameter.name);
      for (size_t i = 0; i < parameter.dims.size(); ++i) {
        std::printf("%s%lld", i == 0 ? "" : ", ", static_cast<long long>(parameter.dims[i]));
      }
      std::printf("]%s\n", parameter.gradient == kNone ? " frozen" : "");
    }
  }
}

// --help and --list, which need no rank. True: done.
bool Answered(const Job& job, const RunOptions& options, char** argv) {
  if (options.help) {
    std::fputs(HelpText(BaseName(argv[0]), job.name).c_str(), stdout);
  } else if (options.list) {
    PrintList(job);
  }
  return options.help || options.list;
}

// Sizes and counts of all ranks, into `directory`/run.json.
Status WriteSummary(const Executor& executor, Transport& transport, const std::string& directory,
                    uint64_t steps) {
  RankStatistics mine = executor.statistics();
  std::vector<RankStatistics> all(transport.size());
  PIPER_RETURN_IF_ERROR(transport.Exchange(&mine, all.data(), sizeof mine));
  if (transport.rank() != 0) return {};
  std::string path = directory + "/run.json";
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return IoError("cannot write '" + path + "': " + std::strerror(errno));
  std::fprintf(file, "{\"job\":\"%s\",\"plan_hash\":\"%s\",\"seed\":%llu,\"steps\":%llu,\"ranks\":[",
               EscapeJson(executor.job().name).c_str(), EscapeJson(executor.job().plan_hash).c_str(),
               static_cast<unsigned long long>(executor.seed()), static_cast<unsigned long long>(steps));
  for (uint32_t rank = 0; rank < all.size(); ++rank) {
    const RankStatistics& one = all[rank];
    auto count = [](int64_t value) { return static_cast<long long>(value); };
    std::fprintf(file,
                 "%s\n{\"rank\":%u,\"parameter_bytes\":%lld,\"arena_bytes\":%lld,\"high_water_bytes\":%lld,"
                 "\"host_bytes\":%lld,\"host_high_water_bytes\":%lld,"
                 "\"peak_live_bytes\":%lld,\"steps\":%lld,\"messages\":%lld,\"message_bytes\":%lld,"
                 "\"collectives\":%lld,\"collective_bytes\":%lld,\"rollbacks\":%lld,\"late_updates\":%lld}",
                 rank == 0 ? "" : ",", rank, count(one.parameter_bytes), count(one.arena_bytes),
                 count(one.high_water_bytes), count(one.host_bytes), count(one.host_high_water_bytes),
                 count(one.peak_live_bytes), count(one.steps), count(one.messages), count(one.message_bytes),
                 count(one.collectives), count(one.collective_bytes), count(one.rollbacks),
                 count(one.late_updates));
  }
  std::fprintf(file, "\n]}\n");
  bool bad = std::ferror(file) != 0;
  if (std::fclose(file) != 0 || bad) return IoError("cannot write '" + path + "'");
  return {};
}

// Everything of one rank behind the transport. `stop_signal` is set when the run was stopped by one.
Status TrainRank(const Job& job, uint32_t rank, const RunOptions& options, Transport& transport,
                 const BodyRunnerFactory& bodies, int& stop_signal) {
  bool console = rank == 0 && !options.quiet;
  CheckpointInfo checkpoint;
  if (!options.eval_only && !options.out.empty()) {
    if (rank == 0) RestoreReplaced(options.out);
    uint32_t none = 0;
    std::vector<uint32_t> all(transport.size());
    PIPER_RETURN_IF_ERROR(transport.Exchange(&none, all.data(), sizeof none));
  }
  if (options.resumes || options.eval_only) {
    if (options.resume == "auto" && options.out.empty()) {
      return UsageError("--resume without a path looks for checkpoints in --out, which is not given");
    }
    Result<std::string> path = FindCheckpoint(options.resume, options.out);
    if (!path.ok()) return path.status();
    if (path->empty() && options.eval_only)
      return IoError("'" + options.out + "' holds no checkpoint to evaluate");
    if (!path->empty()) {
      Result<CheckpointInfo> info = ReadCheckpointInfo(*path);
      if (!info.ok()) return info.status();
      checkpoint = *info;
    }
  } else if (!options.out.empty()) {
    // Two runs in one directory would remove and resume each other's checkpoints.
    Result<std::string> other = FindCheckpoint("auto", options.out);
    if (!other.ok()) return other.status();
    if (!other->empty()) {
      return UsageError("--out '" + options.out + "' already holds checkpoints of a run (" + *other +
                        "): give --resume to go on, or another --out");
    }
  }
  bool resumed = !checkpoint.path.empty();
  // The position in the data depends on the seed, so a resumed run keeps the one that it began with.
  uint64_t seed = resumed ? checkpoint.seed : options.seeded ? options.seed : job.seed;
  if (resumed && options.seeded && options.seed != checkpoint.seed) {
    return UsageError("--seed " + std::to_string(options.seed) + " contradicts the checkpoint's seed " +
                      std::to_string(checkpoint.seed));
  }
  uint64_t end = static_cast<uint64_t>(options.steps >= 0 ? options.steps : job.steps);

  bool evaluates = HasValidation(job);
  if (options.eval_only && !evaluates) return InputError("the job has no validation data");
  evaluates &= options.eval_only || job.eval_every > 0;
  std::unique_ptr<BatchSource> sources[2];
  for (int which = 0; which < (evaluates ? 2 : 1); ++which) {
    Result<std::unique_ptr<BatchSource>> source = OpenData(job, options.data, seed, which == 1);
    if (!source.ok()) return source.status();
    sources[which] = std::move(*source);
  }
  std::unique_ptr<BodyRunner> runners[2];
  uint32_t role = job.rank_role[rank];
  if (bodies) {
    runners[0] = bodies(job, job.train[role]);
    if (evaluates) runners[1] = bodies(job, job.eval[role]);
  }
  Executor::Setup setup;
  setup.job = &job;
  setup.rank = rank;
  setup.transport = &transport;
  setup.train_source = sources[0].get();
  setup.eval_source = sources[1].get();
  setup.train_bodies = runners[0].get();
  setup.eval_bodies = runners[1].get();
  setup.seed = seed;
  setup.options.check_finite = options.check_finite;
  setup.options.record_timings = !options.trace.empty();
  Result<std::unique_ptr<Executor>> made = Executor::Create(setup);
  if (!made.ok()) return made.status();
  Executor& executor = **made;
  if (resumed) {
    PIPER_RETURN_IF_ERROR(LoadCheckpoint(checkpoint.path, executor, options.eval_only));
    if (console && checkpoint.plan_hash != job.plan_hash) {
      std::printf("note: the checkpoint comes from another plan: training goes on, but not bit for bit\n");
    }
    if (console && !options.eval_only) {
      std::printf("resuming from %s at step %llu\n", checkpoint.path.c_str(),
                  static_cast<unsigned long long>(checkpoint.step));
    }
  } else {
    executor.InitializeParameters(seed);
  }
  if (console) std::fflush(stdout);

  if (options.eval_only) {
    double loss = 0;
    PIPER_RETURN_IF_ERROR(
        Evaluate(executor, transport, std::max<int64_t>(1, job.eval_batches), loss, stop_signal));
    if (rank == 0 && stop_signal == 0) std::printf("validation loss %.9g\n", loss);
    return {};
  }
  if (checkpoint.step >= end) {
    if (console)
      std::printf("nothing to do: the checkpoint has %llu of %llu steps\n",
                  static_cast<unsigned long long>(checkpoint.step), static_cast<unsigned long long>(end));
    return {};
  }
  if (rank == 0 && !options.out.empty() && mkdir(options.out.c_str(), 0755) != 0 && errno != EEXIST) {
    return IoError("cannot create '" + options.out + "': " + std::strerror(errno));
  }
  if (rank == 0 && !options.out.empty()) RemoveUnfinished(options.out);
  TrainerOptions trainer;
  trainer.first_step = checkpoint.step;
  trainer.end_step = end;
  trainer.eval_every = evaluates ? job.eval_every : 0;
  trainer.eval_batches = std::max<int64_t>(1, job.eval_batches);
  trainer.eval_at_end = evaluates;
  trainer.checkpoint_every = options.checkpoint_every >= 0 ? options.checkpoint_every : job.checkpoint_every;
  trainer.keep = options.keep;
  trainer.directory = options.out;
  trainer.metrics_path = !options.metrics.empty() ? options.metrics
                         : !options.out.empty()   ? options.out + "/metrics.jsonl"
                                                  : "";
  trainer.append_metrics = resumed;
  trainer.trace_path = options.trace;
  trainer.console = console;
  TrainerResult result;
  PIPER_RETURN_IF_ERROR(RunTrainer(executor, transport, trainer, {}, result));
  if (!options.out.empty())
    PIPER_RETURN_IF_ERROR(WriteSummary(executor, transport, options.out, result.steps_done));
  stop_signal = result.stop_signal;
  if (console) {
    if (stop_signal != 0) {
      std::printf("stopped by signal %d after step %llu\n", stop_signal,
                  static_cast<unsigned long long>(result.steps_done));
    }
    if (!result.checkpoint.empty()) std::printf("checkpoint %s\n", result.checkpoint.c_str());
    if (!trainer.metrics_path.empty()) std::printf("metrics    %s\n", trainer.metrics_path.c_str());
    if (!options.trace.empty()) std::printf("trace      %s\n", options.trace.c_str());
    std::fflush(stdout);
  }
  return {};
}

int RunRank(const Job& job, uint32_t rank, const RunOptions& options, Segment& segment,
            const BodyRunnerFactory& bodies) {
  InstallStopSignals();
  SharedMemoryTransport transport(segment, rank, job.strings);
  int stop_signal = 0;
  Status status;
  try {
    status = TrainRank(job, rank, options, transport, bodies, stop_signal);
  } catch (const std::system_error& error) {
    status = IoError("rank " + std::to_string(rank) + " cannot start a thread: " + error.code().message());
  }
  if (!status.ok()) {
    // One rank says why the job ends; a death is reported by every survivor.
    transport.Abort(status);
    Status cause = transport.Failure();
    bool died = cause.code() == kExitTemporary;
    if (died) cause = PeerError("rank " + std::to_string(rank) + " stops: " + cause.message());
    if (transport.ClaimReport() || died) Report(cause);
    return cause.code();
  }
  transport.Leave();
  return stop_signal != 0 ? 128 + stop_signal : kExitOk;
}

std::vector<std::string> Arguments(int argc, char** argv) { return {argv + 1, argv + argc}; }

uint64_t PlanKey(const Job& job) { return ParameterKey(job.plan_hash == nullptr ? "" : job.plan_hash); }

// Paths of the ranks' executables; `self` if this executable holds all roles.
Result<std::vector<std::string>> Programs(const Job& job, bool self) {
  std::vector<std::string> programs;
  Result<std::string> directory = ExecutableDirectory();
  if (!directory.ok()) return directory.status();
  for (uint32_t rank = 0; rank < job.rank_count; ++rank) {
    programs.push_back(self ? "/proc/self/exe" : *directory + "/" + job.train[job.rank_role[rank]].name);
  }
  return programs;
}

Status CheckSize(const Job& job, const RankIdentity& identity) {
  if (identity.size == job.rank_count) return {};
  return UsageError("the launcher started " + std::to_string(identity.size) +
                    " ranks, the program was compiled for " + std::to_string(job.rank_count) +
                    ": start as many, or unset the launcher's variables and it starts its ranks itself");
}

int Exec(const std::string& program, char** argv) {
  argv[0] = const_cast<char*>(program.c_str());
  execv(program.c_str(), argv);
  return Report(IoError("cannot start '" + program + "': " + std::strerror(errno)));
}

}  // namespace

int RunTrain(const Job& job, int argc, char** argv) {
  Result<RunOptions> options = ParseOptions(argc, argv);
  if (!options.ok()) return Report(options.status());
  if (Answered(job, *options, argv)) return kExitOk;
  if (options->samples) {
    Result<std::string> directory = ExecutableDirectory();
    if (!directory.ok()) return Report(directory.status());
    return Exec(*directory + "/sample", argv);
  }
  Result<RankIdentity> identity = DetectIdentity([](const char* name) { return std::getenv(name); });
  if (!identity.ok()) return Report(identity.status());
  Result<std::vector<std::string>> programs = Programs(job, false);
  if (!programs.ok()) return Report(programs.status());
  if (identity->launcher == Launcher::kBare) {
    if (job.rank_count == 1) return Exec((*programs)[0], argv);
    return LaunchRanks(*programs, Arguments(argc, argv), PlanKey(job));
  }
  if (Status size = CheckSize(job, *identity); !size.ok()) return Report(size);
  return Exec((*programs)[identity->rank], argv);
}

int RunMain(const Job& job, uint32_t role, int argc, char** argv, const BodyRunnerFactory& bodies) {
  Result<RunOptions> options = ParseOptions(argc, argv);
  if (!options.ok()) return Report(options.status());
  if (Answered(job, *options, argv)) return kExitOk;
  if (options->samples) return Report(UsageError("--sample is an option of the program 'train'"));
  Result<RankIdentity> identity = DetectIdentity([](const char* name) { return std::getenv(name); });
  if (!identity.ok()) return Report(identity.status());
  if (identity->launcher == Launcher::kBare && job.rank_count > 1) {
    Result<std::vector<std::string>> programs = Programs(job, role == kNone);
    if (!programs.ok()) return Report(programs.status());
    return LaunchRanks(*programs, Arguments(argc, argv), PlanKey(job));
  }
  if (Status size = CheckSize(job, *identity); !size.ok()) return Report(size);
  if (role != kNone && job.rank_role[identity->rank] != role) {
    return Report(UsageError("rank " + std::to_string(identity->rank) + " runs " +
                             job.train[job.rank_role[identity->rank]].name + ", not " + job.train[role].name +
                             ": start 'train', which knows"));
  }
  Result<std::unique_ptr<Segment>> segment =
      job.rank_count == 1 ? Segment::CreateLocal(1)
      : identity->launcher == Launcher::kPiper
          ? Segment::Attach(identity->segment_fd, job.rank_count, PlanKey(job))
          : JoinSiblings(*identity, PlanKey(job), kJoinSeconds);
  if (!segment.ok()) return Report(segment.status());
  return RunRank(job, identity->rank, *options, **segment, bodies);
}

int RunSample(const Job& sample_job, int argc, char** argv, const BodyRunnerFactory& bodies) {
  Result<RunOptions> options = ParseOptions(argc, argv);
  if (!options.ok()) return Report(options.status());
  if (Answered(sample_job, *options, argv)) return kExitOk;
  SampleOptions sample;
  Result<std::string> path = FindCheckpoint(options->resumes ? options->resume : "auto", options->out);
  if (!path.ok()) return Report(path.status());
  if (path->empty())
    return Report(UsageError("no checkpoint to sample from: give --resume PATH, or --out DIR"));
  sample.checkpoint = *path;
  sample.tokens = options->sample;
  sample.prompt = options->prompt;
  sample.temperature = options->temperature;
  sample.top_k = options->top_k;
  sample.seed = options->seeded ? options->seed : sample_job.seed;
  Status status = Sample(sample_job, sample, bodies, [](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  });
  if (!status.ok()) return Report(status);
  std::fputc('\n', stdout);
  return kExitOk;
}

}  // namespace piper::runtime
