// Gives every name its place before anything is evaluated, so that evaluation never looks a name up by its
// text, and a misspelt name is an error even in a function that nobody calls. Places are written into the
// syntax tree's slots.
//
// A *code unit* is what is evaluated with one frame of slots: a function, a strategy, a topology, the right
// side of a top-level let, a test. Functions inside functions capture by value what they use of the outer
// frame; hence a captured variable cannot be assigned.
//
// Names that nothing binds are left unresolved where they may still mean something: a tag or dimension as an
// argument or inside brackets, an axis in a strategy, a free dimension in a forward. Evaluation decides about
// those.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "frontend/ast.h"
#include "frontend/loader.h"
#include "ir/support/diagnostics.h"

namespace piper::frontend {

// Where a name lives: NameExpr::frame, and the upper bits of NameRef::slot where a NameRef mentions a name.
enum FrameKind : int32_t {
  kFrameUnresolved = kNoSlot,
  kFrameLocal = 0,      // slot of the current frame
  kFrameSelf = 1,       // slot of the current instance
  kFrameGlobal = 2,     // index over all files
  kFrameNative = 3,     // index into the table of natives
  kFrameOperation = 4,  // an operation of ir/model; no slot
};
constexpr int32_t EncodePlace(FrameKind frame, int32_t slot) { return (frame << 24) | slot; }
constexpr FrameKind PlaceFrame(int32_t place) {
  return place < 0 ? kFrameUnresolved : static_cast<FrameKind>(place >> 24);
}
constexpr int32_t PlaceSlot(int32_t place) { return place & 0xffffff; }

struct FunctionInfo {
  const FnDecl* decl = nullptr;  // null for units that are not functions
  List<Param> params;
  List<Requirement> requirements;
  std::string name;
  int file = 0;
  int frame_size = 0;  // the first params.size() slots are the parameters
  struct Capture {
    int outer;  // slot in the frame that creates the closure
    int inner;
  };
  std::vector<Capture> captures;
  int self_slot = kNoSlot;        // where it sees itself, if it is recursive and local
  std::vector<NameId> free_dims;  // forward: dimensions that its signature binds
};

// The members of a module are slots of its instances: parameters first.
struct ModuleInfo {
  const ModuleDecl* decl = nullptr;
  std::string name;
  int file = 0;
  FunctionInfo init;  // frame for the expressions of parameters and members
  struct Slot {
    NameId name = kNoName;
    const ModuleMember* member =
        nullptr;  // null for a parameter of the module and for a dimension of a parameter
    const FunctionInfo* function = nullptr;
  };
  std::vector<Slot> slots;
  int forward = kNoSlot;
  int FindSlot(NameId name) const {
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].name == name) return static_cast<int>(i);
    }
    return kNoSlot;
  }
};

struct StrategyInfo {
  const StrategyDecl* decl = nullptr;
  FunctionInfo function;
};

struct ResolvedProgram {
  // Owned here; pointers stay valid.
  std::deque<FunctionInfo> functions;
  std::deque<ModuleInfo> modules;
  std::deque<StrategyInfo> strategies;
  std::unordered_map<const void*, FunctionInfo*> unit_of;  // Decl, Field value, FnDecl -> its unit
  std::unordered_map<const void*, ModuleInfo*> module_of;
  std::unordered_map<const void*, StrategyInfo*> strategy_of;
  const FunctionInfo& Unit(const void* node) const { return *unit_of.at(node); }
};

// Reports kUnknownName, kDuplicateName, kNotAssignable, kSyntax-free structural errors; goes on after each.
void ResolveNames(LoadedProgram& program, ir::DiagnosticEngine& diag, ResolvedProgram* resolved);

}  // namespace piper::frontend
