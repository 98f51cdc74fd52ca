#include "runtime/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "runtime/shared_memory_transport.h"

extern char** environ;

namespace piper::runtime {
namespace {

constexpr double kGrace = 3;  // seconds between a failure and the end of those who have not noticed

double Seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Status SystemError(const char* what) {
  return IoError(std::string("cannot ") + what + ": " + std::strerror(errno));
}

struct Child {
  pid_t pid = -1;
  bool running = false;
  int status = 0;
};

// The environment for a rank: ours without the variables that we set.
std::vector<std::string> RankEnvironment(uint32_t rank, size_t size, int fd) {
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    std::string variable = *at;
    bool ours = false;
    for (const char* name : {kRankVariable, kSizeVariable, kSegmentVariable}) {
      ours |= variable.compare(0, std::strlen(name) + 1, std::string(name) + "=") == 0;
    }
    if (!ours) variables.push_back(std::move(variable));
  }
  variables.push_back(std::string(kRankVariable) + "=" + std::to_string(rank));
  variables.push_back(std::string(kSizeVariable) + "=" + std::to_string(size));
  variables.push_back(std::string(kSegmentVariable) + "=" + std::to_string(fd));
  return variables;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Starts one rank. Between fork and exec only what is safe there.
Result<pid_t> StartRank(const std::string& program, std::vector<std::string> arguments,
                        std::vector<std::string> variables, int fd) {
  arguments.insert(arguments.begin(), program);
  std::vector<char*> argv = Pointers(arguments), envp = Pointers(variables);
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) return SystemError("make a pipe");
  pid_t parent = getpid();
  pid_t pid = fork();
  if (pid < 0) {
    Status status = SystemError("start a process");
    close(failure[0]);
    close(failure[1]);
    return status;
  }
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kExitTemporary);
    fcntl(fd, F_SETFD, 0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(program.c_str(), argv.data(), envp.data());
    int code = errno;
    if (write(failure[1], &code, sizeof code) < 0) _exit(kExitInternal);
    _exit(kExitInternal);
  }
  close(failure[1]);
  int code = 0;
  ssize_t got = 0;
  do {
    got = read(failure[0], &code, sizeof code);
  } while (got < 0 && errno == EINTR);
  close(failure[0]);
  if (got == sizeof code) {
    waitpid(pid, nullptr, 0);
    return IoError("cannot start '" + program + "': " + std::strerror(code));
  }
  return pid;
}

}  // namespace

Result<std::string> ExecutableDirectory() {
  char path[4096];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0 || length == sizeof path) return SystemError("find the running executable");
  std::string text(path, static_cast<size_t>(length));
  return text.substr(0, text.rfind('/'));
}

namespace {

void OnStopSignal(int signal) {
  if (process_stop_signal.exchange(signal) != 0) _exit(128 + signal);
}

}  // namespace

void InstallStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnStopSignal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaction(signal, &action, nullptr);
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, nullptr);
}

int LaunchRanks(const std::vector<std::string>& programs, const std::vector<std::string>& arguments,
                uint64_t plan) {
  auto report = [](const std::string& message) { std::fprintf(stderr, "piper: %s\n", message.c_str()); };
  signal(SIGCHLD, SIG_DFL);  // inherited as ignored, the system would collect our children before us
  Result<std::unique_ptr<Segment>> made = Segment::CreateShared(static_cast<uint32_t>(programs.size()), plan);
  if (!made.ok()) {
    report(made.status().message());
    return made.status().code();
  }
  Segment& segment = **made;
  sigset_t watched, before;
  sigemptyset(&watched);
  for (int signal : {SIGCHLD, SIGTERM, SIGINT, SIGUSR1}) sigaddset(&watched, signal);
  sigprocmask(SIG_BLOCK, &watched, &before);
  std::vector<Child> children(programs.size());
  int result = kExitOk;
  double failed_at = 0;
  auto kill_all = [&] {
    for (Child& child : children) {
      if (child.running) kill(child.pid, SIGKILL);
    }
  };
  for (uint32_t rank = 0; rank < programs.size(); ++rank) {
    Result<pid_t> pid = StartRank(programs[rank], arguments,
                                  RankEnvironment(rank, programs.size(), segment.fd()), segment.fd());
    if (!pid.ok()) {
      report(pid.status().message());
      result = pid.status().code();
      kill_all();
      break;
    }
    children[rank] = {*pid, true, 0};
  }
  int stop = 0;
  while (std::any_of(children.begin(), children.end(), [](const Child& child) { return child.running; })) {
    timespec patience{0, 100'000'000};
    int signal = sigtimedwait(&watched, nullptr, &patience);
    if (signal == SIGTERM || signal == SIGINT || signal == SIGUSR1) {
      if (stop != 0 && signal != SIGUSR1) {
        kill_all();
        result = 128 + signal;
      }
      stop = stop == 0 ? signal : stop;
      segment.header().stop_signal.store(stop);
    }
    for (uint32_t rank = 0; rank < children.size(); ++rank) {
      Child& child = children[rank];
      if (!child.running) continue;
      pid_t ended = waitpid(child.pid, &child.status, WNOHANG);
      if (ended < 0 && errno == ECHILD) {
        child.status = kExitTemporary << 8;  // gone, and nobody can say how: as if it had exited with that
      } else if (ended != child.pid) {
        continue;
      }
      child.running = false;
      int code = WIFEXITED(child.status) ? WEXITSTATUS(child.status) : kExitTemporary;
      if (code == kExitOk) continue;
      if (WIFSIGNALED(child.status) && result == kExitOk && failed_at == 0) {
        std::string message = "rank " + std::to_string(rank) + " died (signal " +
                              std::to_string(WTERMSIG(child.status)) + ", " +
                              strsignal(WTERMSIG(child.status)) + ") at step " +
                              std::to_string(segment.control(rank).step.load());
        report(message);
        segment.Abort(kExitTemporary, message);
      } else if (code < 128) {
        segment.Abort(code,
                      "rank " + std::to_string(rank) + " ended early with exit code " + std::to_string(code));
      }
      if (result == kExitOk) result = code;
      if (failed_at == 0 && code < 128) failed_at = Seconds();
    }
    if (failed_at != 0 && Seconds() - failed_at > kGrace) kill_all();
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return result;
}

// ---- siblings
// ----------------------------------------------------------------------------------------------------

namespace {

struct Greeting {
  uint64_t magic;
  uint32_t rank, size;
  uint64_t plan;
};
constexpr uint64_t kGreetingMagic = 0x50495045524a4f49u;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

// The address: an abstract name, at most 107 bytes.
socklen_t Address(const RankIdentity& identity, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  std::string name = "piper-" + std::to_string(getuid()) + "-" + identity.job_key;
  if (name.size() > sizeof address.sun_path - 1) {
    // Long job identifiers are shortened to a hash; the name only has to be the same for siblings.
    uint64_t hash = 0xcbf29ce484222325u;
    for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    name = "piper-" + std::to_string(getuid()) + "-" + std::to_string(hash);
  }
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool SameUser(int fd) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 && credentials.uid == getuid();
}

bool WaitReadable(int fd, double deadline) {
  for (;;) {
    double left = deadline - Seconds();
    if (left <= 0) return false;
    pollfd watch{fd, POLLIN, 0};
    int ready = poll(&watch, 1, static_cast<int>(std::min(left, 1.0) * 1000) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool SendDescriptor(int socket, int fd) {
  char byte = 'p';
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

int ReceiveDescriptor(int socket) {
  char byte = 0;
  iovec part{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 || byte != 'p') return -1;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int))) {
    return -1;
  }
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

Result<std::unique_ptr<Segment>> Host(const RankIdentity& identity, uint64_t plan, double deadline) {
  Result<std::unique_ptr<Segment>> segment = Segment::CreateShared(identity.size, plan);
  if (!segment.ok()) return segment;
  // Siblings that already have the segment see how this rank fares from the first moment.
  if (Status entered = (*segment)->Enter(0); !entered.ok()) return entered;
  auto fail = [&](const Status& status) {
    (*segment)->header().reported.store(1);  // this rank reports it
    (*segment)->Abort(status.code(), status.message());
    return status;
  };
  Socket listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address;
  socklen_t length = Address(identity, address);
  if (listener.fd() < 0) return fail(SystemError("make a socket"));
  if (bind(listener.fd(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE)
      return fail(UsageError("another job of this user with the same key is starting: use another port"));
    return fail(SystemError("bind the ranks' meeting point"));
  }
  if (listen(listener.fd(), static_cast<int>(identity.size)) != 0) {
    return fail(SystemError("listen for siblings"));
  }
  std::vector<bool> here(identity.size, false);
  for (uint32_t missing = identity.size - 1; missing > 0;) {
    if (!WaitReadable(listener.fd(), deadline)) {
      std::string absent;
      for (uint32_t rank = 1; rank < identity.size; ++rank) {
        if (!here[rank]) absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
      }
      return fail(PeerError("these ranks did not come in time: " + absent));
    }
    Socket peer(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer.fd() < 0 || !SameUser(peer.fd())) continue;
    Greeting greeting{};
    if (!WaitReadable(peer.fd(), std::min(deadline, Seconds() + 5))) continue;
    if (recv(peer.fd(), &greeting, sizeof greeting, 0) != sizeof greeting || greeting.magic != kGreetingMagic)
      continue;
    if (greeting.size != identity.size || greeting.plan != plan) {
      return fail(UsageError("rank " + std::to_string(greeting.rank) +
                             " was compiled from another plan: start executables of one compilation"));
    }
    if (greeting.rank == 0 || greeting.rank >= identity.size || here[greeting.rank]) {
      return fail(UsageError("rank " + std::to_string(greeting.rank) + " came twice"));
    }
    if (!SendDescriptor(peer.fd(), (*segment)->fd())) continue;
    here[greeting.rank] = true;
    --missing;
  }
  return segment;
}

Result<std::unique_ptr<Segment>> Visit(const RankIdentity& identity, uint64_t plan, double deadline) {
  while (Seconds() < deadline) {
    Socket host(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address;
    socklen_t length = Address(identity, address);
    if (host.fd() < 0) return SystemError("make a socket");
    if (connect(host.fd(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
      usleep(20'000);  // rank 0 is not there yet
      continue;
    }
    if (!SameUser(host.fd())) return UsageError("the meeting point of this job belongs to another user");
    Greeting greeting{kGreetingMagic, identity.rank, identity.size, plan};
    if (send(host.fd(), &greeting, sizeof greeting, MSG_NOSIGNAL) != sizeof greeting) continue;
    if (!WaitReadable(host.fd(), deadline)) break;
    int fd = ReceiveDescriptor(host.fd());
    if (fd < 0) return PeerError("rank 0 turned this rank away: its own message says why");
    Result<std::unique_ptr<Segment>> segment = Segment::Attach(fd, identity.size, plan);
    if (segment.ok()) PIPER_RETURN_IF_ERROR((*segment)->Enter(identity.rank));
    return segment;
  }
  return PeerError("rank 0 did not come in time");
}

}  // namespace

Result<std::unique_ptr<Segment>> JoinSiblings(const RankIdentity& identity, uint64_t plan, int seconds) {
  if (identity.local_size != identity.size) {
    return UsageError(
        "the job has " + std::to_string(identity.size) + " ranks, " + std::to_string(identity.local_size) +
        " of them on this host: ranks on several hosts need a transport that this build does not have");
  }
  double deadline = Seconds() + seconds;
  return identity.rank == 0 ? Host(identity, plan, deadline) : Visit(identity, plan, deadline);
}

}  // namespace piper::runtime
