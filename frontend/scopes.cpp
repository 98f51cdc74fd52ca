#include "frontend/scopes.h"

#include <fmt/format.h>

#include <algorithm>

#include "frontend/natives.h"
#include "frontend/value.h"
#include "ir/model/operations.h"

namespace piper::frontend {

using ir::DiagKind;

Scopes::UnitGuard::UnitGuard(Scopes* scopes, FunctionInfo* info) : scopes_(scopes) {
  info->file = scopes->file_;
  scope.info = info;
  scope.outer = scopes->unit_;
  if (scope.outer != nullptr) scope.lenient = scope.outer->lenient;
  scope.blocks.emplace_back();
  scopes->unit_ = &scope;
}

FunctionInfo* Scopes::NewUnit(const void* node, std::string name) {
  out_.functions.emplace_back();
  FunctionInfo* info = &out_.functions.back();
  info->name = std::move(name);
  out_.unit_of[node] = info;
  return info;
}

void Scopes::Bind(NameRef& name, bool is_var) {
  if (name.name == names::kUnderscore || name.name == kNoName) return;
  for (const Binding& other : unit_->blocks.back()) {
    if (other.name != name.name) continue;
    diag_
        .Error(name.range, DiagKind::kDuplicateName,
               fmt::format("'{}' is already defined here", Text(name.name)))
        .Note(other.range, "the first definition")
        .Hint("an inner block may hide an outer name; one block defines a name once");
    name.slot = other.slot;
    return;
  }
  name.slot = unit_->info->frame_size++;
  unit_->blocks.back().push_back({name.name, name.slot, is_var, name.range});
}

void Scopes::BindPattern(Pattern& pattern, bool is_var) {
  for (NameRef& name : pattern.names) Bind(name, is_var);
}

const Binding* Scopes::FindIn(const UnitScope& unit, NameId name) {
  for (auto block = unit.blocks.rbegin(); block != unit.blocks.rend(); ++block) {
    for (auto binding = block->rbegin(); binding != block->rend(); ++binding) {
      if (binding->name == name) return &*binding;
    }
  }
  return nullptr;
}

const Binding* Scopes::FindLocal(UnitScope* unit, NameId name) {
  if (const Binding* found = FindIn(*unit, name)) return found;
  for (const Binding& binding : unit->captured) {
    if (binding.name == name) return &binding;
  }
  if (unit->outer == nullptr) return nullptr;
  const Binding* outer = FindLocal(unit->outer, name);
  if (outer == nullptr) return nullptr;
  int inner = unit->info->frame_size++;
  unit->info->captures.push_back({outer->slot, inner});
  unit->captured.push_back({name, inner, false, outer->range});
  return &unit->captured.back();
}

Scopes::Place Scopes::Lookup(NameId name) {
  if (unit_ != nullptr) {
    if (const Binding* binding = FindLocal(unit_, name)) return {kFrameLocal, binding->slot};
  }
  if (module_ != nullptr) {
    if (int slot = module_->FindSlot(name); slot != kNoSlot) return {kFrameSelf, slot};
  }
  if (const TopLevelName* top = program_.files[file_].Find(name)) return {kFrameGlobal, top->global};
  if (int native = FindNative(program_.ast.names.Text(name)); native != kNoSlot)
    return {kFrameNative, native};
  return {};
}

std::vector<std::string> Scopes::VisibleNames() {
  std::vector<std::string> result;
  for (UnitScope* unit = unit_; unit != nullptr; unit = unit->outer) {
    for (const auto& block : unit->blocks) {
      for (const Binding& binding : block) result.push_back(Text(binding.name));
    }
  }
  if (module_ != nullptr) {
    for (const ModuleInfo::Slot& slot : module_->slots) result.push_back(Text(slot.name));
  }
  for (const TopLevelName& top : program_.files[file_].names) result.push_back(Text(top.name));
  for (const Native& native : Natives()) result.emplace_back(native.name);
  for (const char* pass : {"F", "B", "BI", "BW", "U", "R"}) result.emplace_back(pass);  // papers say W for BW
  if (module_ != nullptr) {
    for (const ir::OperationRule* rule : ir::AllOperations()) {
      if (rule->user_visible()) result.emplace_back(rule->name());
    }
  }
  return result;
}

void Scopes::ReportUnknown(NameId name, SourceRange range, std::string_view what) {
  std::string text = Text(name);
  // The same misspelling in one unit is said once.
  auto key = std::make_pair(unit_ != nullptr ? unit_->info : nullptr, name);
  if (std::find(reported_.begin(), reported_.end(), key) != reported_.end()) return;
  reported_.push_back(key);
  auto error = diag_.Error(range, DiagKind::kUnknownName, fmt::format("unknown {} '{}'", what, text));
  if (std::string near = NearestName(text, VisibleNames()); !near.empty()) {
    error.Hint(fmt::format("did you mean '{}'?", near));
    return;
  }
  for (const LoadedFile& file : program_.files) {
    if (!file.is_std || file.Find(name) == nullptr) continue;
    std::string module = file.path.substr(4, file.path.size() - 10);
    error.Hint(fmt::format("std.{} has one: write {}.{}", module, module, text));
    return;
  }
}

bool Scopes::IsFreeDim(NameId name) const {
  for (UnitScope* unit = unit_; unit != nullptr; unit = unit->outer) {
    const auto& dims = unit->info->free_dims;
    if (std::find(dims.begin(), dims.end(), name) != dims.end()) return true;
  }
  return false;
}

}  // namespace piper::frontend
