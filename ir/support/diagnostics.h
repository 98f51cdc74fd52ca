// Located diagnostics. Bad input is reported through a DiagnosticEngine: a phase reports what it finds, goes
// on as far as it can, and stops at its end if HasErrors(). The kinds stand in one table,
// diagnostic_kinds.def; a test fails for a kind that no golden in tests/ covers. Messages are lower case: the
// situation and the rule; a hint names the nearest legal choice.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/support/source.h"

namespace piper::ir {

enum class DiagKind : uint16_t {
#define PIPER_DIAG(name, id, hint) name,
#include "ir/support/diagnostic_kinds.def"
#undef PIPER_DIAG
};

// The stable spelling, e.g. "shape-mismatch".
std::string_view DiagKindName(DiagKind kind);
// Every kind, in table order.
const std::vector<DiagKind>& AllDiagKinds();

enum class Severity : uint8_t { kError, kWarning };

struct DiagNote {
  SourceRange range;  // may point nowhere
  std::string message;
};

struct Diagnostic {
  Severity severity = Severity::kError;
  DiagKind kind;
  SourceRange range;
  std::string message;
  std::vector<DiagNote> notes;     // a hint is a note that starts with "hint: "
  std::vector<std::string> cases;  // of a `test`: "p = 4, m = 8", each combination of parameters that met it
  bool HasHint() const;
};

class DiagnosticEngine {
 public:
  explicit DiagnosticEngine(const SourceManager& sources) : sources_(sources) {}

  // Fluent: diag.Error(range, DiagKind::kShapeMismatch, "...").Note(r, "...").Hint("...");
  class Builder {
   public:
    Builder& Note(SourceRange range, std::string message);
    Builder& Hint(std::string message);
    Builder& Case(std::string parameters);

   private:
    friend class DiagnosticEngine;
    Builder(DiagnosticEngine* engine, size_t index) : engine_(engine), index_(index) {}
    DiagnosticEngine* engine_;
    size_t index_;
  };

  // After kMaxErrors further errors are counted and dropped; warnings likewise.
  static constexpr size_t kMaxErrors = 20;
  Builder Error(SourceRange range, DiagKind kind, std::string message);
  Builder Warning(SourceRange range, DiagKind kind, std::string message);
  // The diagnostic reported last, for a caller that knows what led there; a diagnostic must have been
  // reported.
  Builder Last();

  // Of diagnostics [since, ..) that say the same at the same place, only the first stays, with the cases of
  // all.
  void MergeRepeats(size_t since);

  bool HasErrors() const { return error_count_ > 0; }
  size_t error_count() const { return error_count_; }
  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }
  const SourceManager& sources() const { return sources_; }
  // Forgets everything (used by `test` blocks that expect a refusal).
  void Clear();

  enum class Format { kHuman, kJson, kSarif };
  // Human: "file:line:col: error: message [kind]", the line, a caret, then the notes likewise. Columns count
  // bytes, in SARIF code points. Control characters and broken UTF-8 of sources, names and messages are never
  // written.
  std::string Render(Format format, bool colour) const;

 private:
  const SourceManager& sources_;
  std::vector<Diagnostic> diagnostics_;
  Diagnostic dropped_;
  size_t error_count_ = 0, warning_count_ = 0;
};

}  // namespace piper::ir
