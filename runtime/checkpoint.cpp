#include "runtime/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "kernels/finite.h"
#include "runtime/safetensors.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace piper::runtime {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kMaxManifest = 256 << 20;

Status SystemError(const std::string& what, const std::string& name) {
  return IoError("cannot " + what + " '" + name + "': " + std::strerror(errno));
}

class Directory {
 public:
  Directory() = default;
  explicit Directory(const std::string& path) {
    fd_ = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }
  ~Directory() {
    if (fd_ >= 0) close(fd_);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  int fd() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

std::string Hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string FileName(const char* kind, uint32_t index, uint32_t count) {
  char text[64];
  std::snprintf(text, sizeof text, "%s-%05u-of-%05u.safetensors", kind, index + 1, count);
  return text;
}

const char* DtypeOf(ElementType type) {
  switch (type) {
    case ElementType::kF64:
      return "F64";
    case ElementType::kBF16:
      return "BF16";
    case ElementType::kI32:
      return "I32";
    default:
      return "F32";
  }
}

// Names of a parameter's optimizer state, as torch.optim calls them.
std::string StateName(const Job& job, const Parameter& parameter, int which) {
  bool adam = job.optimizers[parameter.optimizer].kind == 1;
  return std::string(parameter.name) + (!adam ? ".momentum_buffer" : which == 0 ? ".exp_avg" : ".exp_avg_sq");
}

TensorView View(const Executor& executor, const Parameter& parameter, uint32_t buffer, std::string name) {
  ElementType type = executor.program().buffers[buffer].type;
  return {std::move(name), DtypeOf(type), std::vector<int64_t>(parameter.dims.begin(), parameter.dims.end()),
          executor.buffer(buffer), parameter.elements * ElementBytes(type)};
}

// The step of a name "step-N"; -1: another name.
int64_t StepOf(const char* name) {
  int64_t step = 0;
  if (std::sscanf(name, "step-%18ld", &step) != 1 || step < 0) return -1;
  // Only the spelling that we write: two names never mean one step.
  return "step-" + std::to_string(step) == name ? step : -1;
}

// Entries of a directory, sorted.
std::vector<std::string> List(const std::string& path) {
  std::vector<std::string> names;
  DIR* directory = opendir(path.c_str());
  if (directory == nullptr) return names;
  while (dirent* entry = readdir(directory)) names.push_back(entry->d_name);
  closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

// Removes a checkpoint or what is left of one: a flat directory of plain files. What a symbolic link in its
// place points at stays; only the link goes.
void RemoveFlat(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR* directory = fd < 0 ? nullptr : fdopendir(fd);
  if (directory == nullptr) {
    if (fd >= 0) close(fd);
    unlink(path.c_str());  // refuses a directory
    return;
  }
  std::vector<std::string> names;
  while (dirent* entry = readdir(directory)) names.push_back(entry->d_name);
  for (const std::string& name : names) {
    if (name != "." && name != "..") unlinkat(fd, name.c_str(), 0);
  }
  closedir(directory);
  rmdir(path.c_str());
}

bool IsComplete(const std::string& path) {
  struct stat info;
  return stat((path + "/manifest.json").c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

// The N of a name ".step-N" + `suffix`; -1: another name.
int64_t HiddenStepOf(const std::string& name, const std::string& suffix) {
  if (name.size() <= 1 + suffix.size() || name[0] != '.' || !name.ends_with(suffix)) return -1;
  return StepOf(name.substr(1, name.size() - 1 - suffix.size()).c_str());
}

// Complete checkpoints beneath `directory`, ascending by step.
std::vector<int64_t> Steps(const std::string& directory) {
  std::vector<int64_t> steps;
  for (const std::string& name : List(directory)) {
    int64_t step = StepOf(name.c_str());
    if (step >= 0 && IsComplete(directory + "/" + name)) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// A gradient can be finite and its update not: such a state must not take the place of a good one.
Status CheckFinite(const Executor& executor, const TensorView& tensor, uint64_t steps_done) {
  const int64_t element =
      tensor.dtype == "F32"
          ? kernels::first_non_finite(reinterpret_cast<const float*>(tensor.data), tensor.bytes / 4)
      : tensor.dtype == "F64"
          ? kernels::first_non_finite(reinterpret_cast<const double*>(tensor.data), tensor.bytes / 8)
          : -1;
  if (element < 0) return {};
  return InputError("after step " + std::to_string(steps_done) + " '" + tensor.name + "' on rank " +
                    std::to_string(executor.rank()) + " is not finite, at element " +
                    std::to_string(element) + ": no checkpoint is written, those before stay");
}

Status WriteShard(const Executor& executor, int directory, uint32_t index, uint32_t count,
                  uint64_t steps_done) {
  std::vector<TensorView> values, states;
  for (const Parameter& parameter : executor.program().parameters) {
    if (parameter.owner == 0 || executor.row().replica != 0) continue;
    values.push_back(View(executor, parameter, parameter.value, parameter.name));
    for (int which = 0; which < 2; ++which) {
      if (parameter.state[which] == kNone || parameter.optimizer == kNone) continue;
      states.push_back(
          View(executor, parameter, parameter.state[which], StateName(executor.job(), parameter, which)));
    }
  }
  for (auto* tensors : {&values, &states}) {
    if (tensors->empty()) continue;
    for (const TensorView& tensor : *tensors) {
      PIPER_RETURN_IF_ERROR(CheckFinite(executor, tensor, steps_done));
    }
    std::map<std::string, std::string> metadata = {{"format", "pt"}};
    for (const TensorView& tensor : *tensors) {
      metadata["xxh3." + tensor.name] = Hex(XXH3_64bits(tensor.data, static_cast<size_t>(tensor.bytes)));
    }
    PIPER_RETURN_IF_ERROR(WriteSafetensors(
        directory, FileName(tensors == &values ? "model" : "optimizer", index, count), *tensors, metadata));
  }
  return {};
}

Status WriteJson(int directory, const char* name, const ordered_json& value) {
  std::string text = value.dump(2) + "\n";
  return WriteFileDurably(directory, name, {{text.data(), text.size()}});
}

// Rank 0, when all shards are on disk: the indices, and the manifest last.
Status WriteManifest(const Executor& executor, int directory, uint64_t steps_done, uint32_t shards) {
  const Job& job = executor.job();
  ordered_json tensors = ordered_json::object();
  for (const char* kind : {"model", "optimizer"}) {
    std::map<std::string, std::string> weight_map;
    int64_t total = 0;
    for (uint32_t shard = 0; shard < shards; ++shard) {
      std::string name = FileName(kind, shard, shards);
      if (faccessat(directory, name.c_str(), F_OK, 0) != 0) continue;
      Result<std::unique_ptr<SafetensorsFile>> file = SafetensorsFile::Open(directory, name);
      if (!file.ok()) return file.status();
      for (const TensorInfo& tensor : (*file)->tensors()) {
        if (!weight_map.emplace(tensor.name, name).second) {
          return InternalError("tensor '" + tensor.name + "' is saved by two ranks");
        }
        total += tensor.end - tensor.begin;
        auto hash = (*file)->metadata().find("xxh3." + tensor.name);
        tensors[tensor.name] = {{"file", name},
                                {"xxh3", hash == (*file)->metadata().end() ? "" : hash->second}};
      }
    }
    if (weight_map.empty()) continue;
    ordered_json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
    PIPER_RETURN_IF_ERROR(
        WriteJson(directory, (std::string(kind) + ".safetensors.index.json").c_str(), index));
  }
  ordered_json manifest = {
      {"format", "piper checkpoint"},
      {"version", 1},
      {"job", job.name},
      {"step", steps_done},
      {"seed", executor.seed()},
      {"plan_hash", job.plan_hash},
      {"next_sample", steps_done * static_cast<uint64_t>(job.global_batch)},
      {"tensors", tensors},
  };
  return WriteJson(directory, "manifest.json", manifest);
}

Status Publish(const std::string& directory, const std::string& temporary, uint64_t steps_done,
               int64_t keep) {
  std::string final_path = directory + "/step-" + std::to_string(steps_done);
  {
    Directory made(temporary);
    if (!made.ok() || fsync(made.fd()) != 0) return SystemError("flush", temporary);
  }
  if (std::rename(temporary.c_str(), final_path.c_str()) != 0) {
    if (errno != EEXIST && errno != ENOTEMPTY) return SystemError("rename", temporary);
    // The same step again: the old one steps aside first.
    std::string aside = directory + "/.step-" + std::to_string(steps_done) + ".old";
    RemoveFlat(aside);
    if (std::rename(final_path.c_str(), aside.c_str()) != 0) return SystemError("replace", final_path);
    if (std::rename(temporary.c_str(), final_path.c_str()) != 0) {
      Status status = SystemError("replace", final_path);
      std::rename(aside.c_str(), final_path.c_str());
      return status;
    }
    RemoveFlat(aside);
  }
  Directory parent(directory);
  if (!parent.ok() || fsync(parent.fd()) != 0) return SystemError("flush", directory);
  if (keep > 0) {
    std::vector<int64_t> steps = Steps(directory);
    for (size_t i = 0; i + static_cast<size_t>(keep) < steps.size(); ++i) {
      if (steps[i] != static_cast<int64_t>(steps_done))
        RemoveFlat(directory + "/step-" + std::to_string(steps[i]));
    }
  }
  return {};
}

Result<json> ReadJson(int directory, const std::string& path, const std::string& name) {
  auto wrong = [&](const std::string& what) { return InputError("'" + path + "/" + name + "': " + what); };
  int fd = openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return IoError("'" + path + "/" + name + "': cannot open: " + std::strerror(errno));
  struct stat info;
  std::string text;
  bool good = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size <= kMaxManifest;
  if (good) {
    text.resize(static_cast<size_t>(info.st_size));
    for (size_t at = 0; good && at < text.size();) {
      ssize_t got = pread(fd, text.data() + at, text.size() - at, static_cast<off_t>(at));
      good = got > 0;
      at += good ? static_cast<size_t>(got) : 0;
    }
  }
  close(fd);
  if (!good) return wrong("is no readable regular file");
  json value = json::parse(text, nullptr, false);
  if (!value.is_object()) return wrong("is not a JSON object");
  return value;
}

}  // namespace

Status SaveCheckpoint(Executor& executor, Transport& transport, const std::string& directory,
                      uint64_t steps_done, int64_t keep) {
  auto fail = [&](Status status) {
    transport.Abort(status);
    return status;
  };
  std::string temporary = directory + "/.step-" + std::to_string(steps_done) + ".tmp";
  uint32_t owned = 0;
  for (const Parameter& parameter : executor.program().parameters) {
    owned += parameter.owner != 0 && executor.row().replica == 0;
  }
  if (transport.rank() == 0) {
    RemoveFlat(temporary);
    if (mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST) return fail(SystemError("create", directory));
    if (mkdir(temporary.c_str(), 0755) != 0) return fail(SystemError("create", temporary));
  }
  std::vector<uint32_t> counts(transport.size());
  PIPER_RETURN_IF_ERROR(transport.Exchange(&owned, counts.data(), sizeof owned));
  uint32_t shards = 0, own = 0;
  for (uint32_t rank = 0; rank < transport.size(); ++rank) {
    if (rank == transport.rank()) own = shards;
    shards += counts[rank] > 0;
  }
  // A failed save frees its space. A rank whose shard fails may remove everything: rank 0, which publishes,
  // cannot get past the exchange. Once a rank has arrived there, only rank 0 may.
  auto discard = [&](Status status) {
    status = fail(std::move(status));
    RemoveFlat(temporary);
    return status;
  };
  Directory made(temporary);
  if (!made.ok()) return discard(SystemError("open", temporary));
  if (owned > 0) {
    if (Status written = WriteShard(executor, made.fd(), own, shards, steps_done); !written.ok())
      return discard(written);
  }
  Status met = transport.Exchange(&owned, counts.data(), sizeof owned);
  if (!met.ok()) return transport.rank() == 0 ? discard(met) : met;
  if (transport.rank() == 0) {
    Status written = WriteManifest(executor, made.fd(), steps_done, shards);
    if (written.ok()) written = Publish(directory, temporary, steps_done, keep);
    if (!written.ok()) return discard(written);
  }
  return transport.Exchange(&owned, counts.data(), sizeof owned);
}

void RestoreReplaced(const std::string& directory) {
  for (const std::string& name : List(directory)) {
    int64_t step = HiddenStepOf(name, ".old");
    if (step < 0) continue;
    std::string aside = directory + "/" + name, final_path = directory + "/step-" + std::to_string(step);
    if (IsComplete(final_path)) {
      RemoveFlat(aside);
    } else if (IsComplete(aside)) {
      std::rename(aside.c_str(), final_path.c_str());  // refused if something else stands there
    }
  }
}

void RemoveUnfinished(const std::string& directory) {
  for (const std::string& name : List(directory)) {
    if (HiddenStepOf(name, ".tmp") >= 0) RemoveFlat(directory + "/" + name);
  }
}

Result<std::string> FindCheckpoint(const std::string& argument, const std::string& out) {
  if (argument != "auto" && IsComplete(argument)) return argument;
  const std::string& directory = argument == "auto" ? out : argument;
  std::vector<int64_t> steps = directory.empty() ? std::vector<int64_t>{} : Steps(directory);
  if (!steps.empty()) return directory + "/step-" + std::to_string(steps.back());
  if (argument == "auto") return std::string();
  return IoError("'" + argument + "' holds no checkpoint (a directory step-N with a manifest.json)");
}

Result<CheckpointInfo> ReadCheckpointInfo(const std::string& path) {
  Directory directory(path);
  if (!directory.ok()) return IoError("cannot open checkpoint '" + path + "': " + std::strerror(errno));
  Result<json> manifest = ReadJson(directory.fd(), path, "manifest.json");
  if (!manifest.ok()) return manifest.status();
  CheckpointInfo info;
  info.path = path;
  const json& value = *manifest;
  auto number = [&](const char* key) { return value.contains(key) && value[key].is_number_unsigned(); };
  if (!number("step") || !number("seed") || !value.contains("plan_hash") || !value["plan_hash"].is_string()) {
    return InputError("'" + path + "/manifest.json' lacks step, seed or plan_hash");
  }
  info.step = value["step"].get<uint64_t>();
  info.seed = value["seed"].get<uint64_t>();
  info.plan_hash = value["plan_hash"].get<std::string>();
  return info;
}

Status LoadCheckpoint(const std::string& path, Executor& executor, bool parameters_only) {
  Directory directory(path);
  if (!directory.ok()) return IoError("cannot open checkpoint '" + path + "': " + std::strerror(errno));
  Result<json> manifest = ReadJson(directory.fd(), path, "manifest.json");
  if (!manifest.ok()) return manifest.status();
  if (!manifest->contains("tensors") || !(*manifest)["tensors"].is_object()) {
    return InputError("'" + path + "/manifest.json' lists no tensors");
  }
  const json& tensors = (*manifest)["tensors"];
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files;
  auto load = [&](const TensorView& wanted) -> Status {
    auto wrong = [&](const std::string& what) {
      return InputError("checkpoint '" + path + "', tensor '" + wanted.name + "': " + what);
    };
    auto entry = tensors.find(wanted.name);
    if (entry == tensors.end()) return wrong("is missing");
    if (!entry->is_object() || !entry->contains("file") || !(*entry)["file"].is_string() ||
        !entry->contains("xxh3") || !(*entry)["xxh3"].is_string()) {
      return wrong("the manifest gives no file or no hash");
    }
    std::string name = (*entry)["file"];
    // Beneath the checkpoint only.
    if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos)
      return wrong("its file is elsewhere");
    std::unique_ptr<SafetensorsFile>& file = files[name];
    if (file == nullptr) {
      Result<std::unique_ptr<SafetensorsFile>> opened = SafetensorsFile::Open(directory.fd(), name);
      if (!opened.ok()) return opened.status();
      file = std::move(*opened);
    }
    const TensorInfo* tensor = file->Find(wanted.name);
    if (tensor == nullptr) return wrong("is not in '" + name + "'");
    if (tensor->dtype != wanted.dtype)
      return wrong("is " + tensor->dtype + ", the model has " + wanted.dtype);
    if (tensor->shape != wanted.shape) return wrong("has another shape than the model's");
    auto* to = const_cast<std::byte*>(wanted.data);
    PIPER_RETURN_IF_ERROR(file->Read(*tensor, to));
    if (Hex(XXH3_64bits(to, static_cast<size_t>(wanted.bytes))) != (*entry)["xxh3"].get<std::string>()) {
      return wrong("its bytes do not match the manifest's hash");
    }
    return {};
  };
  for (const Parameter& parameter : executor.program().parameters) {
    PIPER_RETURN_IF_ERROR(load(View(executor, parameter, parameter.value, parameter.name)));
    for (int which = 0; which < 2 && !parameters_only; ++which) {
      if (parameter.state[which] == kNone || parameter.optimizer == kNone) continue;
      PIPER_RETURN_IF_ERROR(load(
          View(executor, parameter, parameter.state[which], StateName(executor.job(), parameter, which))));
    }
  }
  return {};
}

}  // namespace piper::runtime
