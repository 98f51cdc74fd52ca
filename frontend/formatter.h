// `piper fmt`: one layout for every `.piper` text. It works on tokens, so it formats whatever scans, keeps
// every comment and the user's blank lines (runs of them become one), and changes nothing that the parser
// sees:
//  * a statement a line; `;` only inside one-line braces and lanes;
//  * two spaces an indent, one space around operators, at most 110 columns where a line can be broken
//    (after `,` and operators);
//  * a block of at most three plain statements stands on one line if that fits, functions never do;
//  * the settings of train, eval and infer, and the streams of lanes, stand in two columns;
//  * comments at a line's end stand two spaces after it; others on lines of their own, indented like
//    what follows.
// Formatting the result again gives the same bytes.
#pragma once

#include <optional>
#include <string>

#include "ir/support/diagnostics.h"
#include "ir/support/source.h"

namespace piper::frontend {

// Nothing after an error (reported through `diag`): text that does not parse is not formatted.
std::optional<std::string> FormatSource(const ir::SourceManager& sources, ir::FileId file,
                                        ir::DiagnosticEngine& diag);

}  // namespace piper::frontend
