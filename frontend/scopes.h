// What a name means where it stands: the scopes of the unit (function, strategy, module member) that is being
// resolved, the module's slots, the file's top level, the built-in functions. The Resolver walks the syntax
// tree over this.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "frontend/resolver.h"
#include "ir/support/diagnostics.h"

namespace piper::frontend {

struct Binding {
  NameId name;
  int slot;
  bool is_var;
  SourceRange range;
};

// One frame under construction, with its nested blocks of bindings.
struct UnitScope {
  FunctionInfo* info = nullptr;
  UnitScope* outer = nullptr;
  std::vector<std::vector<Binding>> blocks;
  std::vector<Binding> captured;
  bool lenient = false;  // strategies: unresolved names may be axes
};

class Scopes {
 protected:
  Scopes(LoadedProgram& program, ir::DiagnosticEngine& diag, ResolvedProgram* out)
      : program_(program), diag_(diag), out_(*out) {}

  std::string Text(NameId name) const { return std::string(program_.ast.names.Text(name)); }

  // While it lives, names are bound in a unit of their own inside the current one.
  struct UnitGuard {
    UnitGuard(Scopes* scopes, FunctionInfo* info);
    ~UnitGuard() { scopes_->unit_ = scope.outer; }
    UnitScope scope;
    Scopes* scopes_;
  };

  // Where a name's value lies; kFrameUnresolved: nowhere.
  struct Place {
    FrameKind frame = kFrameUnresolved;
    int slot = kNoSlot;
  };

  FunctionInfo* NewUnit(const void* node, std::string name);
  // Reports a name that the innermost block has already.
  void Bind(NameRef& name, bool is_var);
  void BindPattern(Pattern& pattern, bool is_var);
  static const Binding* FindIn(const UnitScope& unit, NameId name);
  // The slot of a name of this unit or, by capture, of an outer one. Valid until the next capture.
  const Binding* FindLocal(UnitScope* unit, NameId name);
  Place Lookup(NameId name);
  // A dimension that a tensor type of this unit or an outer one introduces.
  bool IsFreeDim(NameId name) const;
  // Once a misspelling and unit, with the nearest name or the standard module that has it.
  void ReportUnknown(NameId name, SourceRange range, std::string_view what = "name");

  LoadedProgram& program_;
  ir::DiagnosticEngine& diag_;
  ResolvedProgram& out_;
  int file_ = 0;
  UnitScope* unit_ = nullptr;
  ModuleInfo* module_ = nullptr;

 private:
  // For hints: everything that a name could mean here.
  std::vector<std::string> VisibleNames();

  std::vector<std::pair<FunctionInfo*, NameId>> reported_;
};

}  // namespace piper::frontend
