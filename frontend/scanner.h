// Text -> tokens. Refuses what the parser must not see (bad UTF-8, deep nesting, unclosed brackets, strings
// and comments, stray characters), decides where lines end statements, joins numbers with their units and
// tells words apart by their shape; grammar/Piper.g4 lists how. Internal to frontend/.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "frontend/syntax.h"
#include "ir/support/diagnostics.h"
#include "ir/support/source.h"

namespace piper::frontend {

// A comment, with its slashes; a block comment may span lines.
struct Comment {
  uint32_t begin = 0, end = 0;
  bool block = false;
};

struct ScanResult {
  std::vector<Token> tokens;  // without comments; ends in a kEnd token of no width
  std::vector<Comment> comments;
  bool ok = true;              // nothing was reported
  bool brackets_match = true;  // else only what lies before the offset `reliable_end` may be parsed
  uint32_t reliable_end = UINT32_MAX;
  bool last_incomplete = false;  // the last statement was cut off by an unclosed bracket
  // Ascending; a syntax error in a statement that holds one is not worth a second message.
  std::vector<uint32_t> error_offsets;
};

ScanResult Scan(ir::FileId file, std::string_view text, ir::DiagnosticEngine& diag);

// Scans and parses a file and marks its tokens for the formatter (parser.cpp). False if an error was
// reported.
bool ParseMarked(const ir::SourceManager& sources, ir::FileId file, ir::DiagnosticEngine& diag,
                 ScanResult* result);

// The keyword or contextual word that `text` spells, else kIdent.
Tok WordKind(std::string_view text);

// The known word nearest to `text` for which `accept` holds ("" if none is within two edits and a third of
// its length).
std::string_view NearestWord(std::string_view text, bool (*accept)(Tok));

}  // namespace piper::frontend
