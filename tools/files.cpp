#include "tools/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace piper::tools {
namespace {

Error SystemError(const char* what, const std::string& path) {
  return Error{fmt::format("cannot {} '{}': {}", what, path, std::strerror(errno))};
}

}  // namespace

Result<std::string> ReadFile(const std::string& path, size_t limit) {
  const bool standard_input = path == "-";
  const int file = standard_input ? 0 : open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return SystemError("open", path);
  auto done = [&](Result<std::string> result) {
    if (!standard_input) close(file);
    return result;
  };
  struct stat status = {};
  if (fstat(file, &status) != 0) return done(SystemError("read", path));
  if (!standard_input && !S_ISREG(status.st_mode))
    return done(Error{fmt::format("'{}' is not a regular file", path)});
  std::string text;
  char chunk[65536];
  while (true) {
    const ssize_t count = read(file, chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return done(SystemError("read", path));
    if (count == 0) return done(std::move(text));
    text.append(chunk, static_cast<size_t>(count));
    if (text.size() > limit) return done(Error{fmt::format("'{}' is larger than {} bytes", path, limit)});
  }
}

Status WriteFile(const std::string& given, const std::string& text) {
  // A link stays a link: what it leads to is replaced.
  std::string path = given;
  if (char* resolved = realpath(given.c_str(), nullptr)) {
    path = resolved;
    std::free(resolved);
  }
  // A device (/dev/stdout) or pipe cannot be replaced: it is written to.
  struct stat status = {};
  const bool exists = stat(path.c_str(), &status) == 0;
  const bool direct = exists && !S_ISREG(status.st_mode);
  std::string temporary = direct ? path : path + ".XXXXXX";
  const int file = direct ? open(path.c_str(), O_WRONLY | O_CLOEXEC) : mkstemp(temporary.data());
  if (file < 0) return SystemError("write", path);
  auto fail = [&] {
    Error error = SystemError("write", path);
    close(file);
    if (!direct) unlink(temporary.c_str());
    return error;
  };
  if (!direct) fchmod(file, exists ? status.st_mode & 0777 : 0644);
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = write(file, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail();
    done += static_cast<size_t>(count);
  }
  if (close(file) != 0 || (!direct && rename(temporary.c_str(), path.c_str()) != 0)) {
    Error error = SystemError("write", path);
    if (!direct) unlink(temporary.c_str());
    return error;
  }
  return Ok();
}

}  // namespace piper::tools
