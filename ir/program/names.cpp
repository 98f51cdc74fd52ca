#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ir/program/program.h"
#include "ir/support/result.h"

namespace piper::ir {

namespace {

// Texts live in a deque, so that references stay valid while it grows. Id 0 is the empty name.
struct NameTable {
  std::mutex mutex;
  std::deque<std::string> texts;
  std::unordered_map<std::string_view, NameId> ids;
  NameTable() {
    texts.emplace_back();
    ids.emplace(texts.back(), 0);
  }
};

NameTable& Table() {
  static NameTable* table =
      new NameTable;  // never destroyed: names may be read by other statics' destructors
  return *table;
}

}  // namespace

NameId InternName(std::string_view name) {
  NameTable& table = Table();
  std::lock_guard lock(table.mutex);
  if (auto it = table.ids.find(name); it != table.ids.end()) return it->second;
  auto id = static_cast<NameId>(table.texts.size());
  table.texts.emplace_back(name);
  table.ids.emplace(table.texts.back(), id);
  return id;
}

const std::string& NameText(NameId id) {
  NameTable& table = Table();
  std::lock_guard lock(table.mutex);
  PIPER_CHECK(id < table.texts.size());
  return table.texts[id];
}

}  // namespace piper::ir
