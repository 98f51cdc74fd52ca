// How the runtime reports what went wrong: a message and the exit code that the process ends with (the
// sysexits numbers that the executables promise). Nothing is thrown; a Status that is not ok travels up to
// main.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace piper::runtime {

constexpr int kExitOk = 0;
constexpr int kExitInput =
    1;  // a diagnosed error in what the user gave: data, checkpoint, a value not finite
constexpr int kExitUsage = 2;       // command line, contradicting environment
constexpr int kExitInternal = 70;   // a bug of ours: a program that contradicts itself
constexpr int kExitIo = 74;         // the machine refused: disk full, no memory
constexpr int kExitTemporary = 75;  // a peer died; trying again may help

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(int code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == kExitOk && message_.empty(); }
  int code() const { return code_; }
  const std::string& message() const { return message_; }  // lower case, complete

 private:
  int code_ = kExitOk;
  std::string message_;
};

inline Status InputError(std::string message) { return {kExitInput, std::move(message)}; }
inline Status UsageError(std::string message) { return {kExitUsage, std::move(message)}; }
inline Status InternalError(std::string message) { return {kExitInternal, std::move(message)}; }
inline Status IoError(std::string message) { return {kExitIo, std::move(message)}; }
inline Status PeerError(std::string message) { return {kExitTemporary, std::move(message)}; }

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}         // NOLINT: implicit by design
  Result(Status status) : state_(std::move(status)) {}  // NOLINT
  bool ok() const { return std::holds_alternative<T>(state_); }
  T& operator*() { return std::get<T>(state_); }
  const T& operator*() const { return std::get<T>(state_); }
  T* operator->() { return &std::get<T>(state_); }
  const T* operator->() const { return &std::get<T>(state_); }
  const Status& status() const { return std::get<Status>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace piper::runtime

#define PIPER_RETURN_IF_ERROR(expression)                                               \
  do {                                                                                  \
    if (::piper::runtime::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)
