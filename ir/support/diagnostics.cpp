#include "ir/support/diagnostics.h"

#include <algorithm>

#include <fmt/format.h>
#include <llvm/Support/JSON.h>
#include <llvm/Support/raw_ostream.h>

namespace piper::ir {

namespace {

constexpr std::string_view kNames[] = {
#define PIPER_DIAG(name, id) id,
#include "ir/support/diagnostic_kinds.def"
#undef PIPER_DIAG
};

llvm::StringRef Ref(std::string_view text) { return {text.data(), text.size()}; }

// One located line with its caret. Control bytes of the source never reach the terminal.
void RenderAt(const SourceManager& sources, SourceRange range, std::string_view label, std::string_view colour,
              std::string_view message, std::string_view suffix, bool use_colour, std::string* out) {
  std::string_view bold = use_colour ? "\x1b[1m" : "";
  std::string_view reset = use_colour ? "\x1b[0m" : "";
  std::string_view tint = use_colour ? colour : std::string_view();
  if (range.valid()) *out += fmt::format("{}{}: {}", bold, sources.Describe(range), reset);
  *out += fmt::format("{}{}:{} {}{}\n", tint, label, reset, message, suffix);
  if (!range.valid()) return;
  LineColumn at = sources.Position(range.file, range.begin);
  std::string_view line = sources.Line(range.file, at.line);
  // A long line is shown as a window around the range.
  constexpr size_t kWindow = 100;
  size_t first = 0;
  size_t column = at.column - 1;
  if (column > kWindow) first = column - kWindow / 2;
  std::string shown;
  for (char c : line.substr(std::min(first, line.size()), kWindow + 20)) {
    shown += (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ? ' ' : c;
  }
  *out += fmt::format("  {}\n", shown);
  size_t length = std::max<size_t>(1, std::min<size_t>(range.end - range.begin, line.size() - std::min(column, line.size())));
  std::string caret(column - first, ' ');
  caret += '^';
  caret.append(std::min(length - 1, kWindow), '~');
  *out += fmt::format("  {}{}{}\n", tint, caret, reset);
}

llvm::json::Object Location(const SourceManager& sources, SourceRange range) {
  LineColumn begin = sources.Position(range.file, range.begin);
  LineColumn end = sources.Position(range.file, range.end);
  return llvm::json::Object{{"file", Ref(sources.Name(range.file))},
                            {"line", begin.line},
                            {"column", begin.column},
                            {"endLine", end.line},
                            {"endColumn", end.column}};
}

llvm::json::Object SarifLocation(const SourceManager& sources, SourceRange range) {
  LineColumn begin = sources.Position(range.file, range.begin);
  LineColumn end = sources.Position(range.file, range.end);
  return llvm::json::Object{
      {"physicalLocation",
       llvm::json::Object{{"artifactLocation", llvm::json::Object{{"uri", Ref(sources.Name(range.file))}}},
                          {"region", llvm::json::Object{{"startLine", begin.line},
                                                        {"startColumn", begin.column},
                                                        {"endLine", end.line},
                                                        {"endColumn", end.column}}}}}};
}

std::string ToText(llvm::json::Value value) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << llvm::formatv("{0:2}", value);
  stream.flush();
  return text + "\n";
}

}  // namespace

std::string_view DiagKindName(DiagKind kind) { return kNames[static_cast<size_t>(kind)]; }

const std::vector<DiagKind>& AllDiagKinds() {
  static const std::vector<DiagKind> kinds = [] {
    std::vector<DiagKind> all;
    for (size_t i = 0; i < std::size(kNames); ++i) all.push_back(static_cast<DiagKind>(i));
    return all;
  }();
  return kinds;
}

DiagnosticEngine::Builder& DiagnosticEngine::Builder::Note(SourceRange range, std::string message) {
  if (index_ < engine_->diagnostics_.size()) {
    engine_->diagnostics_[index_].notes.push_back({range, std::move(message)});
  }
  return *this;
}

DiagnosticEngine::Builder& DiagnosticEngine::Builder::Hint(std::string message) {
  return Note({}, "hint: " + std::move(message));
}

DiagnosticEngine::Builder DiagnosticEngine::Error(SourceRange range, DiagKind kind, std::string message) {
  ++error_count_;
  if (error_count_ > kMaxErrors) return Builder(this, SIZE_MAX);
  diagnostics_.push_back({Severity::kError, kind, range, std::move(message), {}});
  return Builder(this, diagnostics_.size() - 1);
}

DiagnosticEngine::Builder DiagnosticEngine::Warning(SourceRange range, DiagKind kind, std::string message) {
  diagnostics_.push_back({Severity::kWarning, kind, range, std::move(message), {}});
  return Builder(this, diagnostics_.size() - 1);
}

DiagnosticEngine::Builder DiagnosticEngine::Last() {
  return Builder(this, error_count_ > kMaxErrors ? SIZE_MAX : diagnostics_.size() - 1);
}

void DiagnosticEngine::Clear() {
  diagnostics_.clear();
  error_count_ = 0;
}

std::string DiagnosticEngine::Render(Format format, bool colour) const {
  if (format == Format::kHuman) {
    std::string out;
    for (const Diagnostic& d : diagnostics_) {
      bool error = d.severity == Severity::kError;
      RenderAt(sources_, d.range, error ? "error" : "warning", error ? "\x1b[1;31m" : "\x1b[1;35m", d.message,
               fmt::format(" [{}]", DiagKindName(d.kind)), colour, &out);
      for (const DiagNote& note : d.notes) {
        bool hint = note.message.rfind("hint: ", 0) == 0;
        RenderAt(sources_, note.range, hint ? "hint" : "note", "\x1b[1;36m",
                 hint ? std::string_view(note.message).substr(6) : std::string_view(note.message), "", colour, &out);
      }
    }
    if (error_count_ > kMaxErrors) out += fmt::format("{} more errors not shown\n", error_count_ - kMaxErrors);
    return out;
  }
  llvm::json::Array items;
  llvm::json::Array rules;
  for (const Diagnostic& d : diagnostics_) {
    const char* level = d.severity == Severity::kError ? "error" : "warning";
    llvm::json::Array notes;
    llvm::json::Array related;
    for (const DiagNote& note : d.notes) {
      llvm::json::Object n{{"message", note.message}};
      llvm::json::Object r{{"message", llvm::json::Object{{"text", note.message}}}};
      if (note.range.valid()) {
        n["location"] = Location(sources_, note.range);
        for (auto& [key, value] : SarifLocation(sources_, note.range)) r[key] = value;
      }
      notes.push_back(std::move(n));
      related.push_back(std::move(r));
    }
    if (format == Format::kJson) {
      llvm::json::Object item{{"severity", level}, {"kind", Ref(DiagKindName(d.kind))}, {"message", d.message}};
      if (d.range.valid()) item["location"] = Location(sources_, d.range);
      item["notes"] = std::move(notes);
      items.push_back(std::move(item));
    } else {
      llvm::json::Object item{{"ruleId", Ref(DiagKindName(d.kind))},
                              {"level", level},
                              {"message", llvm::json::Object{{"text", d.message}}}};
      if (d.range.valid()) item["locations"] = llvm::json::Array{SarifLocation(sources_, d.range)};
      if (!related.empty()) item["relatedLocations"] = std::move(related);
      items.push_back(std::move(item));
    }
  }
  if (format == Format::kJson) return ToText(llvm::json::Object{{"diagnostics", std::move(items)}});
  return ToText(llvm::json::Object{
      {"version", "2.1.0"},
      {"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
      {"runs", llvm::json::Array{llvm::json::Object{
                   {"tool", llvm::json::Object{{"driver", llvm::json::Object{{"name", "piper"}}}}},
                   {"results", std::move(items)}}}}});
}

}  // namespace piper::ir
