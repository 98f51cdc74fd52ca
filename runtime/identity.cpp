#include "runtime/identity.h"

#include <unistd.h>

#include <cstring>
#include <optional>
#include <vector>

namespace piper::runtime {
namespace {

// A launcher's variables. Empty names: it has none.
struct Family {
  Launcher launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Family kFamilies[] = {
    {Launcher::kTorchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {Launcher::kOpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {Launcher::kPmi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {Launcher::kSlurm, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ""},
};

Result<std::optional<uint32_t>> Number(const Environment& environment, const char* name) {
  const char* text = name[0] == '\0' ? nullptr : environment(name);
  if (text == nullptr) return std::optional<uint32_t>();
  uint64_t value = 0;
  bool good = text[0] != '\0' && std::strlen(text) <= 9;
  for (const char* at = text; good && *at != '\0'; ++at) {
    good = *at >= '0' && *at <= '9';
    value = value * 10 + static_cast<uint64_t>(*at - '0');
  }
  if (!good) return UsageError(std::string("environment variable ") + name + "='" + text + "' is no number");
  return std::optional<uint32_t>(static_cast<uint32_t>(value));
}

std::string Text(const Environment& environment, const char* name) {
  const char* text = environment(name);
  return text == nullptr ? "" : text;
}

std::string JobKey(const Environment& environment, Launcher launcher) {
  std::string key;
  switch (launcher) {
    case Launcher::kTorchrun:
      key = Text(environment, "MASTER_PORT") + "." + Text(environment, "TORCHELASTIC_RUN_ID") + "." +
            Text(environment, "TORCHELASTIC_RESTART_COUNT");
      return key == ".." ? "parent-" + std::to_string(getppid()) : "torchrun-" + key;
    case Launcher::kOpenMpi:
      key = Text(environment, "PMIX_NAMESPACE") + Text(environment, "OMPI_MCA_ess_base_jobid");
      break;
    case Launcher::kPmi:
      key = Text(environment, "PMI_JOBID");
      break;
    case Launcher::kSlurm:
      key = Text(environment, "SLURM_JOB_ID") + "." + Text(environment, "SLURM_STEP_ID");
      if (key == ".") key.clear();
      break;
    default:
      break;
  }
  // Ranks of one job on one host that have nothing else in common have one parent.
  return key.empty() ? "parent-" + std::to_string(getppid()) : "job-" + key;
}

struct Found {
  const Family* family;
  uint32_t rank, size;
};

}  // namespace

Result<RankIdentity> DetectIdentity(const Environment& environment) {
  RankIdentity identity;
  if (environment(kRankVariable) != nullptr) {
    uint32_t values[3];
    const char* names[3] = {kRankVariable, kSizeVariable, kSegmentVariable};
    for (int i = 0; i < 3; ++i) {
      Result<std::optional<uint32_t>> value = Number(environment, names[i]);
      if (!value.ok()) return value.status();
      if (!*value) return UsageError(std::string(kRankVariable) + " is set, but " + names[i] + " is not");
      values[i] = **value;
    }
    identity.launcher = Launcher::kPiper;
    identity.rank = identity.local_rank = values[0];
    identity.size = identity.local_size = values[1];
    identity.segment_fd = static_cast<int>(values[2]);
    if (identity.rank >= identity.size) return UsageError("PIPER_RANK is not below PIPER_WORLD_SIZE");
    return identity;
  }
  std::vector<Found> found;
  for (const Family& family : kFamilies) {
    Result<std::optional<uint32_t>> rank = Number(environment, family.rank);
    if (!rank.ok()) return rank.status();
    Result<std::optional<uint32_t>> size = Number(environment, family.size);
    if (!size.ok()) return size.status();
    // Slurm sets SLURM_NTASKS in a job's shell, too, where no task runs.
    if (!*rank && (!*size || family.launcher == Launcher::kSlurm)) continue;
    if (!*rank || !*size) {
      return UsageError(std::string("environment variable ") + (*rank ? family.rank : family.size) +
                        " is set, but " + (*rank ? family.size : family.rank) +
                        " is not: a launcher sets both");
    }
    if (**rank >= **size) {
      return UsageError(std::string(family.rank) + "=" + std::to_string(**rank) + " is not below " +
                        family.size + "=" + std::to_string(**size));
    }
    found.push_back({&family, **rank, **size});
  }
  for (size_t i = 1; i < found.size(); ++i) {
    auto contradiction = [&](const char* first, uint32_t a, const char* second, uint32_t b) {
      return UsageError(
          std::string(first) + "=" + std::to_string(a) + " and " + second + "=" + std::to_string(b) +
          " contradict each other: unset the variables of the launcher that did not start this rank");
    };
    if (found[i].rank != found[0].rank) {
      return contradiction(found[0].family->rank, found[0].rank, found[i].family->rank, found[i].rank);
    }
    if (found[i].size != found[0].size) {
      return contradiction(found[0].family->size, found[0].size, found[i].family->size, found[i].size);
    }
  }
  Result<std::optional<uint32_t>> pmix = Number(environment, "PMIX_RANK");
  if (!pmix.ok()) return pmix.status();
  if (*pmix && !found.empty() && **pmix != found[0].rank) {
    return UsageError(std::string(found[0].family->rank) + "=" + std::to_string(found[0].rank) +
                      " and PMIX_RANK=" + std::to_string(**pmix) +
                      " contradict each other: unset the variables of the launcher that did " +
                      "not start this rank");
  }
  if (found.empty()) return identity;
  const Family& family = *found[0].family;
  identity.launcher = family.launcher;
  identity.rank = identity.local_rank = found[0].rank;
  identity.size = identity.local_size = found[0].size;
  Result<std::optional<uint32_t>> local_rank = Number(environment, family.local_rank);
  if (!local_rank.ok()) return local_rank.status();
  Result<std::optional<uint32_t>> local_size = Number(environment, family.local_size);
  if (!local_size.ok()) return local_size.status();
  if (*local_rank) identity.local_rank = **local_rank;
  if (*local_size) identity.local_size = **local_size;
  if (family.launcher == Launcher::kSlurm) {
    Result<std::optional<uint32_t>> nodes = Number(environment, "SLURM_STEP_NUM_NODES");
    if (!nodes.ok()) return nodes.status();
    if (!*nodes) nodes = Number(environment, "SLURM_NNODES");
    if (!nodes.ok()) return nodes.status();
    if (*nodes && **nodes > 1) identity.local_size = (identity.size + **nodes - 1) / **nodes;
  }
  identity.job_key = JobKey(environment, family.launcher);
  return identity;
}

}  // namespace piper::runtime
