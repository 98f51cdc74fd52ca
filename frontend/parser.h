// `.piper` text -> syntax tree. One call a file; the files of a compilation share an Ast, hence their names.
//
// Statements end at `;`, before `}` and at the end of a line, except that a line goes on
//  * inside ( ) and [ ],
//  * after a token that cannot end a statement: an operator, `,` `:` `=` `->` `.` `{` `(` `[`, or a
//    reserved word other than `return`, `true`, `false`,
//  * before a token that cannot begin one: `.` `,` `)` `]` `{` `=` `->` `?` or a binary operator other than
//    `-`, and the words `else` `and` `or` `by` `joined` `requires` `into` `over` `where` `folds` `via`
//    (unless `=`, `.` or `:` follows).
// An expression that follows another statement cannot begin with `-` (it would look like the line above going
// on).
//
// A unit is one token after a number, with at most one space between: `25 MiB`, `1.6TB/s`. The `/s` of a
// rate is part of the unit only where it touches both sides. `5 %` is a percentage unless an operand follows
// on the same line: `7 % y` is a remainder.
//
// Errors: located, in our words, several a file (kSyntax,
// kUnterminated, kBadEncoding, kBadNumber, kTooDeep, kFileTooLarge); parsing goes on at the next statement.
#pragma once

#include "frontend/ast.h"
#include "ir/support/diagnostics.h"
#include "ir/support/source.h"

namespace piper::frontend {

// Files above this many bytes are refused.
constexpr size_t kMaxFileBytes = size_t{16} << 20;

// Parses a file that `sources` holds. Never null; File::ok is false if an error was reported, and the
// declarations are then those that parsed. The File lives in ast's arena.
File* ParseFile(const ir::SourceManager& sources, ir::FileId file, Ast& ast, ir::DiagnosticEngine& diag);

// Parses one expression, such as the right side of `--set m=16`. Null after an error.
Expr* ParseExpression(const ir::SourceManager& sources, ir::FileId file, Ast& ast,
                      ir::DiagnosticEngine& diag);

}  // namespace piper::frontend
