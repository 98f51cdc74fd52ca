// Syntax errors in our own words: the situation, the rule, a hint. Internal to frontend/.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "frontend/syntax.h"
#include "ir/support/diagnostics.h"
#include "ir/support/source.h"

namespace piper::frontend {

// Where and why the parser stopped.
struct SyntaxFailure {
  size_t position = 0;        // of the unexpected token, in the token list that was parsed
  std::vector<Tok> expected;  // what could have stood there
  std::vector<Rule> rules;    // the rules being parsed, innermost first
};

// `tokens` is the list that was parsed; `statement` the position where the offending statement begins.
void ReportSyntaxFailure(const SyntaxFailure& failure, const std::vector<Token>& tokens, size_t statement,
                         ir::FileId file, std::string_view text, ir::DiagnosticEngine& diag);

}  // namespace piper::frontend
