// Edits of a plan's text (ir/dag/dag_text.h) for tests of the proofs: a node deleted or doubled with its
// edges and its places in orders.
#pragma once

#include <cctype>
#include <sstream>
#include <string>
#include <vector>

namespace piper::ir {

inline std::vector<std::string> Lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

inline std::string Join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

inline void ReplaceAll(std::string* text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text->find(from, at)) != std::string::npos; at += to.size())
    text->replace(at, from.size(), to);
}

// Removes a node from the text: its line, its edges and its places in orders.
inline std::string Without(const std::vector<std::string>& lines, const std::string& quoted) {
  std::vector<std::string> kept;
  for (std::string line : lines) {
    bool about = line.find(quoted) != std::string::npos;
    if (about && (line.rfind("node ", 0) == 0 || line.rfind("edge ", 0) == 0)) {
      if (line.rfind("edge ", 0) == 0 || line.rfind("node " + quoted, 0) == 0) continue;
    }
    if (about && line.rfind("  ", 0) == 0) {
      // "; \"name\" 3" within a bracket or a repetition, or a line of its own.
      for (size_t at; (at = line.find(quoted)) != std::string::npos;) {
        size_t end = at + quoted.size();
        while (end < line.size() &&
               (line[end] == ' ' || line[end] == '-' || std::isdigit(static_cast<unsigned char>(line[end]))))
          ++end;
        if (end < line.size() && line[end] == ';') {
          line.erase(at, end + 2 - at);
        } else if (at >= 2 && line.compare(at - 2, 2, "; ") == 0) {
          line.erase(at - 2, end - at + 2);
          if (at - 2 < line.size() && line[at - 2] != ' ') line.insert(at - 2, " ");
        } else {
          line.clear();
        }
      }
      if (line.find('"') == std::string::npos) continue;
    }
    kept.push_back(line);
  }
  return Join(kept);
}

// A second node that does the same, beside the first.
inline std::string Doubled(const std::vector<std::string>& lines, const std::string& quoted) {
  std::string twin = quoted.substr(0, quoted.size() - 1) + " twin\"";
  std::vector<std::string> kept;
  for (const std::string& line : lines) {
    kept.push_back(line);
    if (line.find(quoted) == std::string::npos) continue;
    std::string copy = line;
    ReplaceAll(&copy, quoted, twin);
    if (line.rfind("node " + quoted, 0) == 0 || line.rfind("edge ", 0) == 0) {
      kept.push_back(copy);
    } else if (line.rfind("  ", 0) == 0) {
      std::string& both = kept.back();
      for (size_t at = 0; (at = both.find(quoted, at)) != std::string::npos;) {
        size_t end = at + quoted.size();
        while (end < both.size() && (both[end] == ' ' || std::isdigit(static_cast<unsigned char>(both[end]))))
          ++end;
        while (both[end - 1] == ' ') --end;
        std::string item = both.substr(at, end - at);
        std::string again = item;
        ReplaceAll(&again, quoted, twin);
        both.insert(end, "; " + again);
        at = end + 2 + again.size();
      }
    }
  }
  return Join(kept);
}

}  // namespace piper::ir
