#include "runtime/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

namespace piper::runtime {
namespace {

const char* KindText(TaskKind kind) {
  switch (kind) {
    case TaskKind::kLoad:
      return "load";
    case TaskKind::kCompute:
      return "compute";
    case TaskKind::kAccumulate:
      return "accumulate";
    case TaskKind::kSend:
      return "send";
    case TaskKind::kRecv:
      return "receive";
    case TaskKind::kCollective:
      return "collective";
    case TaskKind::kSumSquares:
      return "norm";
    case TaskKind::kClip:
      return "clip";
    case TaskKind::kUpdate:
      return "update";
    case TaskKind::kLossFold:
      return "loss";
    case TaskKind::kBarrier:
      return "barrier";
    case TaskKind::kCopy:
      return "copy";
    case TaskKind::kSave:
      return "save";
    case TaskKind::kValidate:
      return "validate";
    case TaskKind::kPartialSquares:
      return "norm";
  }
  return "task";
}

}  // namespace

std::string EscapeJson(const char* text) {
  std::string out;
  for (const char* at = text; *at != '\0'; ++at) {
    auto c = static_cast<unsigned char>(*at);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += *at;
    } else if (c < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += *at;
    }
  }
  return out;
}

TraceRecorder::TraceRecorder(const Executor& executor, std::string path, int64_t first, int64_t steps)
    : executor_(executor), path_(std::move(path)), first_(first), steps_(steps) {
  times_.resize(executor.program().tasks.size() * static_cast<size_t>(std::max<int64_t>(0, steps)));
}

void TraceRecorder::Record(uint64_t step) {
  if (static_cast<int64_t>(step) < first_ || recorded_ == steps_) return;
  std::span<const TaskTime> now = executor_.timings();
  std::copy(now.begin(), now.end(), times_.begin() + static_cast<int64_t>(now.size()) * recorded_);
  ++recorded_;
}

std::string TraceRecorder::Events(int64_t origin) const {
  const RankProgram& program = executor_.program();
  const Job& job = executor_.job();
  uint32_t rank = executor_.rank();
  std::string out;
  char line[512];
  auto add = [&](int length) {
    if (!out.empty() || rank != 0) out += ",\n";
    out.append(line, static_cast<size_t>(std::min<int>(length, sizeof line - 1)));
  };
  add(std::snprintf(line, sizeof line,
                    "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"args\":{\"name\":\"rank %u\"}}",
                    rank, rank));
  for (size_t i = 0; i < program.streams.size(); ++i) {
    add(std::snprintf(
        line, sizeof line,
        "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%zu,\"args\":{\"name\":\"%s\"}}", rank, i,
        EscapeJson(program.streams[i].name).c_str()));
  }
  size_t tasks = program.tasks.size();
  for (int64_t k = 0; k < recorded_; ++k) {
    std::map<uint64_t, uint32_t> counts;  // messages so far of an ordered pair
    for (size_t i = 0; i < tasks; ++i) {
      const Task& task = program.tasks[i];
      const TaskTime& time = times_[static_cast<size_t>(k) * tasks + i];
      double start = static_cast<double>(time.start - origin) / 1e3;
      double end = static_cast<double>(time.end - origin) / 1e3;
      std::string name = EscapeJson(job.strings[task.name]).substr(0, 200);
      add(std::snprintf(
          line, sizeof line,
          "{\"ph\":\"X\",\"name\":\"%s\",\"cat\":\"%s\",\"pid\":%u,\"tid\":%u,\"ts\":%.3f,\"dur\":%.3f,"
          "\"args\":{\"step\":%lld,\"mb\":%d,\"bytes\":%lld}}",
          name.c_str(), KindText(task.kind), rank, task.stream, start, end - start,
          static_cast<long long>(first_ + k), task.microbatch, static_cast<long long>(task.bytes)));
      if (task.kind != TaskKind::kSend && task.kind != TaskKind::kRecv) continue;
      uint32_t peer = executor_.row().peers[task.argument];
      bool sends = task.kind == TaskKind::kSend;
      uint64_t pair = uint64_t{sends ? rank : peer} << 32 | (sends ? peer : rank);
      add(std::snprintf(
          line, sizeof line,
          "{\"ph\":\"%s\",\"name\":\"message\",\"cat\":\"message\",\"id\":\"%lld.%u.%u.%u\",\"pid\":%u,"
          "\"tid\":%u,\"ts\":%.3f%s}",
          sends ? "s" : "f", static_cast<long long>(k), sends ? rank : peer, sends ? peer : rank,
          task.key == kNone ? counts[pair]++ : task.key * 4096u + static_cast<uint32_t>(task.microbatch),
          rank, task.stream, sends ? start : end, sends ? "" : ",\"bp\":\"e\""));
    }
  }
  return out;
}

Status TraceRecorder::Write(Transport& transport) {
  int64_t earliest = INT64_MAX;
  for (size_t i = 0; i < executor_.program().tasks.size() * static_cast<size_t>(recorded_); ++i) {
    earliest = std::min(earliest, times_[i].start);
  }
  std::vector<int64_t> all(transport.size());
  PIPER_RETURN_IF_ERROR(transport.Exchange(&earliest, all.data(), sizeof earliest));
  int64_t origin = *std::min_element(all.begin(), all.end());
  for (uint32_t rank = 0; rank < transport.size(); ++rank) {
    if (rank == transport.rank()) {
      bool first = rank == 0, last = rank + 1 == transport.size();
      int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | (first ? O_TRUNC : O_APPEND), 0644);
      std::string text = (first ? "{\"traceEvents\":[\n" : "") + Events(origin) + (last ? "\n]}\n" : "");
      size_t at = 0;
      while (fd >= 0 && at < text.size()) {
        ssize_t written = write(fd, text.data() + at, text.size() - at);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) break;
        at += static_cast<size_t>(written);
      }
      if (fd >= 0) close(fd);
      if (at < text.size()) {
        Status status = IoError("cannot write the trace '" + path_ + "': " + std::strerror(errno));
        transport.Abort(status);
        return status;
      }
    }
    PIPER_RETURN_IF_ERROR(transport.Exchange(&earliest, all.data(), sizeof earliest));
  }
  return {};
}

}  // namespace piper::runtime
