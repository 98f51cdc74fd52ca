// Result<T> for what the environment may refuse (files, processes, sockets); PIPER_CHECK for what only a bug
// can break (exit 70). Bad *input* is neither: it is a located diagnostic (diagnostics.h).
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace piper {

struct Error {
  std::string message;  // lower case, complete: "cannot open 'x': no such file or directory"
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : state_(std::move(error)) {}  // NOLINT
  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }
  T& value() { return std::get<T>(state_); }
  const T& value() const { return std::get<T>(state_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const std::string& error() const { return std::get<Error>(state_).message; }

 private:
  std::variant<T, Error> state_;
};

struct Nothing {};
using Status = Result<Nothing>;
inline Status Ok() { return Nothing{}; }

namespace internal {
[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition,
                                     const std::string& message);
}  // namespace internal

}  // namespace piper

#include <cstdio>
#include <cstdlib>

namespace piper::internal {
inline void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "piper: internal error: %s:%d: %s%s%s\n", file, line, condition,
               message.empty() ? "" : ": ", message.c_str());
  std::fflush(stderr);
  std::_Exit(70);
}
}  // namespace piper::internal

// A violated invariant of our own code. Usage: PIPER_CHECK(a == b) or PIPER_CHECK(a == b, "why").
#define PIPER_CHECK(condition, ...)                                                             \
  do {                                                                                          \
    if (!(condition))                                                                           \
      ::piper::internal::CheckFailed(__FILE__, __LINE__, #condition, std::string{__VA_ARGS__}); \
  } while (false)
