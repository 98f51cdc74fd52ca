// Ranks as real processes: bare, under other launchers' variables, killed, stopped, resumed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "runtime/checkpoint.h"
#include "runtime/local_runner.h"
#include "tests/runtime_four_ranks.h"

namespace piper::runtime::testing {
namespace {

double Seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    char path[] = "/tmp/piper-test-XXXXXX";
    path_ = mkdtemp(path);
  }
  ~TemporaryDirectory() {
    if (system(("rm -rf '" + path_ + "'").c_str()) != 0) std::fprintf(stderr, "left: %s\n", path_.c_str());
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A started process; its output goes to a file.
struct Process {
  pid_t pid = -1;
  std::string output;
  // Exit code, or 1000 + signal.
  int Wait() {
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
};

// `own_namespace`: as the first process of a PID namespace of its own (needs the right to make one).
Process Start(const std::string& output, std::vector<std::string> arguments,
              std::vector<std::string> variables = {}, bool own_namespace = false) {
  arguments.insert(arguments.begin(), PIPER_RANK_PROGRAM);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  Process process;
  process.output = output;
  process.pid = fork();
  if (process.pid == 0) {
    int fd = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, 1);
    dup2(fd, 2);
    for (const char* name : {"RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "PMI_RANK", "PMI_SIZE"})
      unsetenv(name);
    for (std::string& variable : variables) putenv(variable.data());
    if (own_namespace) {
      if (unshare(CLONE_NEWPID) != 0) _exit(126);
      if (pid_t rank = fork(); rank > 0) {
        int status = 0;
        waitpid(rank, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 125);
      }
      prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    execv(PIPER_RANK_PROGRAM, argv.data());
    _exit(127);
  }
  return process;
}

// Processes started by `parent`, by rank.
pid_t ChildOfRank(pid_t parent, int rank) {
  std::stringstream children(
      ReadFile("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children"));
  pid_t child;
  while (children >> child) {
    std::string environment = ReadFile("/proc/" + std::to_string(child) + "/environ");
    if (environment.find(std::string("PIPER_RANK=") + std::to_string(rank) + '\0') != std::string::npos)
      return child;
  }
  return -1;
}

bool WaitForLines(const std::string& path, int lines) {
  double deadline = Seconds() + 30;
  while (Seconds() < deadline) {
    std::string text = ReadFile(path);
    if (std::count(text.begin(), text.end(), '\n') >= lines) return true;
    usleep(5000);
  }
  return false;
}

std::string Losses(const std::string& metrics) {
  std::string losses;
  std::stringstream lines(ReadFile(metrics));
  std::string line;
  while (std::getline(lines, line)) {
    size_t begin = line.find("\"loss\":"), end = line.find(',', begin);
    losses += line.substr(begin, end - begin) + "\n";
  }
  return losses;
}

std::vector<std::string> SharedMemoryFiles() {
  std::vector<std::string> names;
  std::FILE* list = popen("ls /dev/shm", "r");
  char line[256];
  while (std::fgets(line, sizeof line, list) != nullptr) names.push_back(line);
  pclose(list);
  return names;
}

TEST(RuntimeProcess, BareStartTrainsLikeThreads) {
  TemporaryDirectory directory;
  Process run = Start(directory / "log", {"--out", directory / "run", "--trace", directory / "trace.json"});
  ASSERT_EQ(run.Wait(), 0) << ReadFile(run.output);
  FourRanks four;
  LocalOptions options;
  options.metrics_path = directory / "local.jsonl";
  Result<LocalResult> local = RunLocal(four.job(), options);
  ASSERT_TRUE(local.ok()) << local.status().message();
  ASSERT_EQ(local->losses.size(), 12u);
  EXPECT_EQ(Losses(directory / "run/metrics.jsonl"), Losses(directory / "local.jsonl"));
  std::string summary = ReadFile(directory / "run/run.json");
  EXPECT_NE(summary.find("\"messages\":24,\"message_bytes\":393216,\"collectives\":12"), std::string::npos)
      << summary;
  std::string trace = ReadFile(directory / "trace.json");
  EXPECT_EQ(trace.substr(0, 15), "{\"traceEvents\":");
  EXPECT_NE(trace.find("\"pid\":3"), std::string::npos);
}

TEST(RuntimeProcess, RendezvousModeLearnsTheSame) {
  TemporaryDirectory directory;
  ASSERT_EQ(Start(directory / "log", {"--out", directory / "plain", "--quiet"}).Wait(), 0);
  Process run = Start(directory / "log", {"--out", directory / "run", "--quiet"}, {"PIPER_RENDEZVOUS=1"});
  ASSERT_EQ(run.Wait(), 0) << ReadFile(run.output);
  EXPECT_EQ(Losses(directory / "run/metrics.jsonl"), Losses(directory / "plain/metrics.jsonl"));
}

TEST(RuntimeProcess, OtherLaunchersRanksMeet) {
  TemporaryDirectory directory;
  ASSERT_EQ(Start(directory / "log", {"--out", directory / "bare", "--quiet"}).Wait(), 0);
  std::string port = std::to_string(20000 + getpid() % 20000);
  for (const char* family : {"torchrun", "openmpi", "slurm"}) {
    std::vector<Process> ranks;
    for (int rank = 3; rank >= 0; --rank) {
      std::string number = std::to_string(rank);
      std::vector<std::string> variables;
      if (std::string(family) == "torchrun") {
        variables = {"RANK=" + number, "WORLD_SIZE=4", "LOCAL_RANK=" + number, "LOCAL_WORLD_SIZE=4",
                     "MASTER_PORT=" + port};
      } else if (std::string(family) == "openmpi") {
        variables = {"OMPI_COMM_WORLD_RANK=" + number, "OMPI_COMM_WORLD_SIZE=4",
                     "OMPI_COMM_WORLD_LOCAL_RANK=" + number};
      } else {
        variables = {"SLURM_PROCID=" + number, "SLURM_NTASKS=4", "SLURM_LOCALID=" + number,
                     "SLURM_JOB_ID=" + port};
      }
      ranks.push_back(Start(directory / ("log" + number), {"--out", directory / family}, variables));
    }
    for (Process& rank : ranks) ASSERT_EQ(rank.Wait(), 0) << ReadFile(rank.output);
    EXPECT_EQ(Losses(directory / (std::string(family) + "/metrics.jsonl")),
              Losses(directory / "bare/metrics.jsonl"));
  }
}

TEST(RuntimeProcess, ContradictionsAreNamed) {
  TemporaryDirectory directory;
  Process run = Start(directory / "log", {}, {"RANK=1", "WORLD_SIZE=4", "SLURM_PROCID=0", "SLURM_NTASKS=4"});
  EXPECT_EQ(run.Wait(), 2);
  EXPECT_NE(ReadFile(run.output).find("RANK=1 and SLURM_PROCID=0 contradict each other"), std::string::npos);
  run = Start(directory / "log", {}, {"RANK=1", "WORLD_SIZE=2"});
  EXPECT_EQ(run.Wait(), 2);
  EXPECT_NE(ReadFile(run.output).find("started 2 ranks, the program was compiled for 4"), std::string::npos);
  run = Start(directory / "log", {"--stps", "3"});
  EXPECT_EQ(run.Wait(), 2);
  EXPECT_NE(ReadFile(run.output).find("unknown option --stps; did you mean --steps?"), std::string::npos);
}

TEST(RuntimeProcess, KilledRankEndsTheJobAndResumingContinuesBitForBit) {
  TemporaryDirectory directory;
  std::vector<std::string> before = SharedMemoryFiles();
  ASSERT_EQ(Start(directory / "log", {"--out", directory / "whole", "--steps", "40", "--quiet"}).Wait(), 0);

  std::vector<std::string> arguments = {"--out", directory / "run",    "--steps",
                                        "40",    "--checkpoint-every", "5"};
  Process run = Start(directory / "log", arguments, {"PIPER_TEST_SLEEP_US=10000"});
  ASSERT_TRUE(WaitForLines(directory / "run/metrics.jsonl", 12));
  pid_t victim = ChildOfRank(run.pid, 2);
  ASSERT_GT(victim, 0);
  double killed = Seconds();
  kill(victim, SIGKILL);
  EXPECT_EQ(run.Wait(), 75);
  double took = Seconds() - killed;
  EXPECT_LT(took, 3) << "seconds until the others ended";
  RecordProperty("milliseconds_to_end", static_cast<int>(took * 1000));
  std::string log = ReadFile(run.output);
  EXPECT_NE(log.find("rank 2 died"), std::string::npos) << log;
  EXPECT_NE(log.find("at step"), std::string::npos) << log;
  EXPECT_EQ(SharedMemoryFiles(), before);

  arguments.push_back("--resume");
  Process resumed = Start(directory / "log", arguments);
  ASSERT_EQ(resumed.Wait(), 0) << ReadFile(resumed.output);
  EXPECT_NE(ReadFile(resumed.output).find("resuming from"), std::string::npos);
  for (const char* file : {"model-00001-of-00002", "model-00002-of-00002", "optimizer-00002-of-00002"}) {
    std::string name = std::string("/step-40/") + file + ".safetensors";
    std::string whole = ReadFile(directory / ("whole" + name));
    EXPECT_GT(whole.size(), 4096u * 4);
    EXPECT_EQ(whole, ReadFile(directory / ("run" + name))) << name;
  }
  // Three checkpoints are kept.
  std::string kept = ReadFile(directory / "run/step-40/manifest.json");
  EXPECT_NE(kept.find("\"step\": 40"), std::string::npos);
  struct stat info;
  EXPECT_EQ(stat((directory / "run/step-30").c_str(), &info), 0);
  EXPECT_NE(stat((directory / "run/step-25").c_str(), &info), 0);
}

TEST(RuntimeProcess, KilledSiblingUnderAnotherLauncherIsNoticed) {
  TemporaryDirectory directory;
  std::string port = std::to_string(41000 + getpid() % 20000);
  std::vector<Process> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    std::string number = std::to_string(rank);
    ranks.push_back(
        Start(directory / ("log" + number), {"--steps", "100000", "--metrics", directory / "m"},
              {"RANK=" + number, "WORLD_SIZE=4", "MASTER_PORT=" + port, "PIPER_TEST_SLEEP_US=2000"}));
  }
  ASSERT_TRUE(WaitForLines(directory / "m", 3));
  kill(ranks[3].pid, SIGKILL);
  double killed = Seconds();
  EXPECT_EQ(ranks[3].Wait(), 1000 + SIGKILL);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks[rank].Wait(), 75);
    EXPECT_NE(ReadFile(ranks[rank].output).find("rank 3 died at step"), std::string::npos);
  }
  EXPECT_LT(Seconds() - killed, 3);
}

// Containers that share a network but no process numbers: each rank is process 1 where it lives. Nobody is
// taken for dead, and who does die is noticed.
TEST(RuntimeProcess, RanksOfDifferentPidNamespacesWatchEachOther) {
  TemporaryDirectory directory;
  for (bool kills : {false, true}) {
    std::string port = std::to_string(31000 + 2 * (getpid() % 10000) + kills);
    const std::string metrics = kills ? "killed" : "whole";
    std::vector<Process> ranks;
    for (int rank = 0; rank < 4; ++rank) {
      std::string number = std::to_string(rank);
      ranks.push_back(Start(directory / ("log" + number),
                            {"--steps", kills ? "100000" : "12", "--metrics", directory / metrics},
                            {"RANK=" + number, "WORLD_SIZE=4", "MASTER_PORT=" + port,
                             kills ? "PIPER_TEST_SLEEP_US=2000" : "PIPER_TEST_SLEEP_US=60000"},
                            true));
    }
    if (!kills) {
      // Slow steps: everybody waits long enough to look after the others.
      std::vector<int> codes;
      for (Process& rank : ranks) codes.push_back(rank.Wait());
      if (std::count(codes.begin(), codes.end(), 126) == 4)
        GTEST_SKIP() << "no right to make a PID namespace";
      for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(codes[rank], 0) << ReadFile(ranks[rank].output);
      continue;
    }
    ASSERT_TRUE(WaitForLines(directory / metrics, 3));
    kill(ranks[3].pid, SIGKILL);
    ranks[3].Wait();
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(ranks[rank].Wait(), 75);
      EXPECT_NE(ReadFile(ranks[rank].output).find("rank 3 died at step"), std::string::npos)
          << ReadFile(ranks[rank].output);
    }
  }
}

TEST(RuntimeProcess, AFailedMeetingEndsThoseWhoCame) {
  TemporaryDirectory directory;
  for (bool twice : {true, false}) {  // rank 1 comes twice; rank 0 is killed while it waits for others
    std::string port = std::to_string(30000 + 2 * (getpid() % 10000) + twice);
    std::vector<Process> ranks;
    auto start = [&](int rank) {
      std::string number = std::to_string(rank), log = "log" + std::to_string(ranks.size());
      ranks.push_back(Start(directory / log, {"--steps", "3", "--quiet"},
                            {"RANK=" + number, "WORLD_SIZE=4", "MASTER_PORT=" + port}));
    };
    double began = Seconds();
    start(0);
    start(2);
    start(1);
    usleep(300'000);
    if (twice) {
      start(1);
      EXPECT_EQ(ranks[0].Wait(), 2);
      EXPECT_NE(ReadFile(ranks[0].output).find("rank 1 came twice"), std::string::npos);
    } else {
      kill(ranks[0].pid, SIGKILL);
      EXPECT_EQ(ranks[0].Wait(), 1000 + SIGKILL);
    }
    for (size_t i = 1; i < ranks.size(); ++i) {
      int code = ranks[i].Wait();
      EXPECT_TRUE(code == 2 || code == 75) << code << ReadFile(ranks[i].output);
    }
    EXPECT_LT(Seconds() - began, 5);
  }
}

TEST(RuntimeProcess, AnInheritedIgnoredChildSignalDoesNoHarm) {
  TemporaryDirectory directory;
  signal(SIGCHLD, SIG_IGN);
  Process run = Start(directory / "log", {"--steps", "2", "--quiet"});
  signal(SIGCHLD, SIG_DFL);
  EXPECT_EQ(run.Wait(), 0) << ReadFile(run.output);
}

TEST(RuntimeProcess, RanksDieWithTheirParent) {
  TemporaryDirectory directory;
  Process run = Start(directory / "log", {"--metrics", directory / "m", "--steps", "100000"},
                      {"PIPER_TEST_SLEEP_US=2000"});
  ASSERT_TRUE(WaitForLines(directory / "m", 3));
  std::vector<pid_t> children;
  for (int rank = 0; rank < 4; ++rank) children.push_back(ChildOfRank(run.pid, rank));
  kill(run.pid, SIGKILL);
  run.Wait();
  double deadline = Seconds() + 5;
  for (pid_t child : children) {
    ASSERT_GT(child, 0);
    // Gone, or a zombie that nobody has collected yet.
    auto alive = [&] {
      std::string stat = ReadFile("/proc/" + std::to_string(child) + "/stat");
      return !stat.empty() && stat.find(") Z") == std::string::npos;
    };
    while (alive() && Seconds() < deadline) usleep(5000);
    EXPECT_FALSE(alive());
  }
}

TEST(RuntimeProcess, TermWritesACheckpointAndStops) {
  TemporaryDirectory directory;
  Process run = Start(directory / "log", {"--out", directory / "run", "--steps", "100000"},
                      {"PIPER_TEST_SLEEP_US=5000"});
  ASSERT_TRUE(WaitForLines(directory / "run/metrics.jsonl", 3));
  kill(run.pid, SIGTERM);
  EXPECT_EQ(run.Wait(), 128 + SIGTERM) << ReadFile(run.output);
  Result<std::string> found = FindCheckpoint("auto", directory / "run");
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->empty());
  Result<CheckpointInfo> info = ReadCheckpointInfo(*found);
  ASSERT_TRUE(info.ok());
  EXPECT_GE(info->step, 3u);
  EXPECT_EQ(info->seed, 7u);
}

TEST(RuntimeProcess, AFreshRunLeavesAnotherRunsCheckpointsAlone) {
  TemporaryDirectory directory;
  std::vector<std::string> arguments = {"--out", directory / "run", "--steps", "4", "--quiet"};
  ASSERT_EQ(Start(directory / "log", arguments).Wait(), 0);
  std::string metrics = ReadFile(directory / "run/metrics.jsonl");
  Process again = Start(directory / "log", arguments);
  EXPECT_EQ(again.Wait(), 2);
  std::string log = ReadFile(again.output);
  EXPECT_NE(log.find("give --resume to go on, or another --out"), std::string::npos) << log;
  EXPECT_EQ(ReadFile(directory / "run/metrics.jsonl"), metrics);
}

TEST(RuntimeProcess, BadDataEndsAllRanksWithOneReport) {
  TemporaryDirectory directory;
  FourRanks four;
  Process run = Start(directory / "log", {"--resume", directory / "nowhere"});
  EXPECT_EQ(run.Wait(), 74);
  std::string log = ReadFile(run.output);
  EXPECT_NE(log.find("holds no checkpoint"), std::string::npos) << log;
  EXPECT_EQ(log.find("piper:"), log.rfind("piper:")) << log;
}

}  // namespace
}  // namespace piper::runtime::testing
