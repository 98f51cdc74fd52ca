#include "frontend/ast.h"

#include <algorithm>
#include <array>

#include "ir/support/result.h"

namespace piper::frontend {

NameTable::NameTable() {
  texts_.emplace_back();  // kNoName
  ids_.reserve(512);
#define PIPER_NAME(id, text) PIPER_CHECK(Intern(text) == names::id);
  PIPER_KNOWN_NAMES(PIPER_NAME)
#undef PIPER_NAME
}

NameId NameTable::Intern(std::string_view text) {
  if (text.empty()) return kNoName;
  auto it = ids_.find(text);
  if (it != ids_.end()) return it->second;
  std::string_view stored = Store(text);
  auto id = static_cast<NameId>(texts_.size());
  texts_.push_back(stored);
  ids_.emplace(stored, id);
  return id;
}

NameId NameTable::Find(std::string_view text) const {
  auto it = ids_.find(text);
  return it == ids_.end() ? kNoName : it->second;
}

std::string_view NameTable::Store(std::string_view text) {
  if (block_used_ + text.size() > block_size_) {
    block_size_ = std::max<size_t>(4096, text.size());
    blocks_.push_back(std::make_unique<char[]>(block_size_));
    block_used_ = 0;
  }
  char* data = blocks_.back().get() + block_used_;
  std::copy(text.begin(), text.end(), data);
  block_used_ += text.size();
  return {data, text.size()};
}

void Arena::Grow(size_t size) {
  constexpr size_t kBlock = size_t{64} << 10;
  capacity_ = std::max(kBlock, size);
  blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(capacity_));
  total_ += capacity_;
  used_ = 0;
}

std::string_view ExprKindName(ExprKind kind) {
  static constexpr std::array<std::string_view, 18> kNames = {
      "number", "string", "bool",  "name",   "list",     "selector", "tuple", "comprehension", "unary",
      "chain",  "call",   "index", "member", "optional", "lambda",   "if",    "tag",           "table"};
  return kNames.at(static_cast<size_t>(kind));
}

std::string_view StmtKindName(StmtKind kind) {
  static constexpr std::array<std::string_view, 31> kNames = {
      "let",       "assign",  "expression", "return", "for",      "if",        "fn",      "expect",
      "lanes",     "barrier", "steps",      "mesh",   "cut",      "split",     "place",   "shard",
      "zero",      "order",   "edge",       "limit",  "stream",   "recompute", "offload", "freeze",
      "optimizer", "run",     "numerics",   "cost",   "slowdown", "assert",    "use"};
  return kNames.at(static_cast<size_t>(kind));
}

std::string_view DeclKindName(DeclKind kind) {
  static constexpr std::array<std::string_view, 9> kNames = {"import",   "let",      "fn",  "module", "model",
                                                             "topology", "strategy", "run", "test"};
  return kNames.at(static_cast<size_t>(kind));
}

std::string_view PassName(Pass pass) {
  static constexpr std::array<std::string_view, 7> kNames = {"", "F", "B", "BI", "BW", "R", "U"};
  return kNames.at(static_cast<size_t>(pass));
}

Pass PassOfName(NameId name) {
  switch (name) {
    case names::kF:
      return Pass::kF;
    case names::kB:
      return Pass::kB;
    case names::kBI:
      return Pass::kBI;
    case names::kBW:
      return Pass::kBW;
    case names::kR:
      return Pass::kR;
    case names::kU:
      return Pass::kU;
    default:
      return Pass::kNone;
  }
}

std::string_view BinaryOpText(BinaryOp op) {
  static constexpr std::array<std::string_view, 18> kTexts = {
      "or",     "and", "==", "!=", "<", "<=", ">", ">=", "divides",
      "learns", "by",  "..", "+",  "-", "*",  "/", "%",  "@"};
  return kTexts.at(static_cast<size_t>(op));
}

}  // namespace piper::frontend
