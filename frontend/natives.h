// The functions that every file sees without importing them. Each is one entry of the table in natives.cpp:
// its name, its signature as messages show it, and its body.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "frontend/value.h"

namespace piper::frontend {

class Interpreter;

// The evaluated arguments of a call, in order, with the names of the named ones.
struct NativeArg {
  NameId name = kNoName;
  Value value;
  SourceRange range;
  const Expr* expr = nullptr;  // as written
};
struct NativeCall {
  SourceRange range;
  std::vector<NativeArg> args;
};

struct Native {
  std::string_view name;
  std::string_view signature;
  Value (*call)(Interpreter&, NativeCall&);  // null: a constant, see `constant`
  Value (*constant)();
  bool takes_names;  // its first argument is the name of a tag or dimension, taken as written
  // The common case of two whole numbers; false: `call` decides.
  bool (*of_two_ints)(int64_t a, int64_t b, int64_t* result) = nullptr;
};

const std::vector<Native>& Natives();
// kNoSlot if there is none.
int FindNative(std::string_view name);

}  // namespace piper::frontend
