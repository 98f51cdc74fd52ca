#include "ir/support/diagnostics.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <llvm/ADT/StringExtras.h>
#include <llvm/Support/ConvertUTF.h>
#include <llvm/Support/JSON.h>
#include <llvm/Support/Unicode.h>
#include <llvm/Support/raw_ostream.h>

namespace piper::ir {

namespace {

constexpr std::string_view kNames[] = {
#define PIPER_DIAG(name, id, hint) id,
#include "ir/support/diagnostic_kinds.def"
#undef PIPER_DIAG
};

constexpr std::string_view kHints[] = {
#define PIPER_DIAG(name, id, hint) hint,
#include "ir/support/diagnostic_kinds.def"
#undef PIPER_DIAG
};

llvm::StringRef Ref(std::string_view text) { return {text.data(), text.size()}; }

// What is shown for the character at the front of `text`, which has that many bytes. Nothing of the source
// acts on a terminal: control and format characters become a blank, bytes that are no UTF-8 a question mark.
std::string_view ShownCharacter(std::string_view text, size_t* bytes) {
  auto lead = static_cast<unsigned char>(text[0]);
  *bytes = 1;
  if (lead < 0x80) return lead < 0x20 || lead == 0x7f ? std::string_view(" ") : text.substr(0, 1);
  size_t size = llvm::getNumBytesForUTF8(lead);
  const auto* at = reinterpret_cast<const llvm::UTF8*>(text.data());
  llvm::UTF32 point = 0;
  if (size > text.size() ||
      llvm::convertUTF8Sequence(&at, at + size, &point, llvm::strictConversion) != llvm::conversionOK) {
    return "?";
  }
  *bytes = size;
  return llvm::sys::unicode::isPrintable(static_cast<int>(point)) ? text.substr(0, size)
                                                                  : std::string_view(" ");
}

std::string Printable(std::string_view text) {
  std::string shown;
  for (size_t at = 0, bytes = 0; at < text.size(); at += bytes)
    shown += ShownCharacter(text.substr(at), &bytes);
  return shown;
}

size_t Columns(std::string_view shown) {
  return static_cast<size_t>(std::max(0, llvm::sys::unicode::columnWidthUTF8(Ref(shown))));
}

// One located line with its caret.
void RenderAt(const SourceManager& sources, SourceRange range, std::string_view label,
              std::string_view colour, std::string_view message, std::string_view suffix, bool use_colour,
              std::string* out) {
  std::string_view bold = use_colour ? "\x1b[1m" : "";
  std::string_view reset = use_colour ? "\x1b[0m" : "";
  std::string_view tint = use_colour ? colour : std::string_view();
  if (range.valid()) *out += fmt::format("{}{}: {}", bold, Printable(sources.Describe(range)), reset);
  *out += fmt::format("{}{}:{} {}{}\n", tint, label, reset, Printable(message), suffix);
  if (!range.valid()) return;
  LineColumn at = sources.Position(range.file, range.begin);
  std::string_view line = sources.Line(range.file, at.line);
  // A long line is shown as a window around the range, which begins with a whole character.
  constexpr size_t kWindow = 100;
  size_t begin = std::min<size_t>(at.column - 1, line.size());
  size_t end = std::min<size_t>(begin + (range.end - range.begin), line.size());
  size_t first = begin > kWindow ? begin - kWindow / 2 : 0;
  while (first < begin && (static_cast<unsigned char>(line[first]) & 0xc0) == 0x80) ++first;
  size_t last = std::min(line.size(), first + kWindow + 20);
  while (last < line.size() && (static_cast<unsigned char>(line[last]) & 0xc0) == 0x80) ++last;
  end = std::min(end, last);
  *out += fmt::format("  {}\n", Printable(line.substr(first, last - first)));
  std::string caret(Columns(Printable(line.substr(first, begin - first))), ' ');
  caret += '^';
  size_t length = end > begin ? Columns(Printable(line.substr(begin, end - begin))) : 1;
  caret.append(std::max<size_t>(length, 1) - 1, '~');
  *out += fmt::format("  {}{}{}\n", tint, caret, reset);
}

llvm::json::Value Json(std::string_view text) { return llvm::json::fixUTF8(Ref(text)); }

// A path as a relative reference (RFC 3986).
std::string Uri(std::string_view path) {
  std::string uri;
  for (char c : path) {
    bool plain = llvm::isAlnum(c) || std::string_view("/-._~").find(c) != std::string_view::npos;
    uri += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return uri;
}

// The same position with a column that counts code points.
LineColumn CodePoints(const SourceManager& sources, FileId file, LineColumn at) {
  std::string_view line = sources.Line(file, at.line).substr(0, at.column - 1);
  auto continued = std::count_if(line.begin(), line.end(),
                                 [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; });
  at.column -= static_cast<uint32_t>(continued);
  return at;
}

llvm::json::Object Location(const SourceManager& sources, SourceRange range) {
  LineColumn begin = sources.Position(range.file, range.begin);
  LineColumn end = sources.Position(range.file, range.end);
  return llvm::json::Object{{"file", Json(sources.Name(range.file))},
                            {"line", begin.line},
                            {"column", begin.column},
                            {"endLine", end.line},
                            {"endColumn", end.column}};
}

llvm::json::Object SarifLocation(const SourceManager& sources, SourceRange range) {
  LineColumn begin = CodePoints(sources, range.file, sources.Position(range.file, range.begin));
  LineColumn end = CodePoints(sources, range.file, sources.Position(range.file, range.end));
  return llvm::json::Object{
      {"physicalLocation",
       llvm::json::Object{{"artifactLocation", llvm::json::Object{{"uri", Uri(sources.Name(range.file))}}},
                          {"region", llvm::json::Object{{"startLine", begin.line},
                                                        {"startColumn", begin.column},
                                                        {"endLine", end.line},
                                                        {"endColumn", end.column}}}}}};
}

std::string CasesText(const std::vector<std::string>& cases) {
  constexpr size_t kMostShown = 6;
  const size_t shown = std::min(cases.size(), kMostShown);
  std::string text = cases.size() == 1 ? "with " : fmt::format("{} times: with ", cases.size());
  text += fmt::format("{}", fmt::join(cases.begin(), cases.begin() + static_cast<ptrdiff_t>(shown), "; "));
  if (cases.size() > shown) text += fmt::format("; and {} more", cases.size() - shown);
  return text;
}

bool SaysTheSame(const Diagnostic& a, const Diagnostic& b) {
  return a.severity == b.severity && a.kind == b.kind && a.range == b.range && a.message == b.message &&
         std::equal(a.notes.begin(), a.notes.end(), b.notes.begin(), b.notes.end(),
                    [](const DiagNote& x, const DiagNote& y) {
                      return x.range == y.range && x.message == y.message;
                    });
}

void TakeCases(const Diagnostic& from, Diagnostic* to) {
  for (const std::string& parameters : from.cases) {
    if (std::find(to->cases.begin(), to->cases.end(), parameters) == to->cases.end())
      to->cases.push_back(parameters);
  }
}

bool IsFull(const std::vector<Diagnostic>& diagnostics, Severity severity) {
  const auto alike = [&](const Diagnostic& d) { return d.severity == severity; };
  return static_cast<size_t>(std::count_if(diagnostics.begin(), diagnostics.end(), alike)) >=
         DiagnosticEngine::kMaxErrors;
}

// Takes the last one out if an earlier one says the same.
void DropRepeatedLast(std::vector<Diagnostic>* diagnostics) {
  if (diagnostics->empty()) return;
  const auto last = diagnostics->end() - 1;
  const auto first =
      std::find_if(diagnostics->begin(), last, [&](const Diagnostic& d) { return SaysTheSame(d, *last); });
  if (first == last) return;
  TakeCases(*last, &*first);
  diagnostics->pop_back();
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

DiagnosticEngine::Builder& DiagnosticEngine::Builder::Case(std::string parameters) {
  if (index_ < engine_->diagnostics_.size()) {
    engine_->diagnostics_[index_].cases.push_back(std::move(parameters));
  }
  return *this;
}

// What says the same at the same place, notes included, is shown once: a loop over ranks or microbatches
// mostly repeats its first mistake. Whether it does is known when the next one comes, for notes follow.
DiagnosticEngine::Builder DiagnosticEngine::Error(SourceRange range, DiagKind kind, std::string message) {
  ++error_count_;
  DropRepeatedLast(&diagnostics_);
  dropped_ = {Severity::kError, kind, range, std::move(message), {}, {}};
  if (IsFull(diagnostics_, Severity::kError)) return Builder(this, SIZE_MAX);
  diagnostics_.push_back(std::exchange(dropped_, {}));
  return Builder(this, diagnostics_.size() - 1);
}

DiagnosticEngine::Builder DiagnosticEngine::Warning(SourceRange range, DiagKind kind, std::string message) {
  ++warning_count_;
  DropRepeatedLast(&diagnostics_);
  dropped_ = {Severity::kWarning, kind, range, std::move(message), {}, {}};
  if (IsFull(diagnostics_, Severity::kWarning)) return Builder(this, SIZE_MAX);
  diagnostics_.push_back(std::exchange(dropped_, {}));
  return Builder(this, diagnostics_.size() - 1);
}

DiagnosticEngine::Builder DiagnosticEngine::Last() {
  return Builder(this, dropped_.message.empty() ? diagnostics_.size() - 1 : SIZE_MAX);
}

bool Diagnostic::HasHint() const {
  return std::any_of(notes.begin(), notes.end(),
                     [](const DiagNote& note) { return note.message.rfind("hint: ", 0) == 0; });
}

void DiagnosticEngine::MergeRepeats(size_t since) {
  for (size_t i = since; i < diagnostics_.size();) {
    const Diagnostic& again = diagnostics_[i];
    const auto end = diagnostics_.begin() + static_cast<ptrdiff_t>(i);
    const auto first = std::find_if(diagnostics_.begin() + static_cast<ptrdiff_t>(since), end,
                                    [&](const Diagnostic& d) { return SaysTheSame(d, again); });
    if (first == end) {
      ++i;
      continue;
    }
    TakeCases(again, &*first);
    --(again.severity == Severity::kError ? error_count_ : warning_count_);
    diagnostics_.erase(end);
  }
}

void DiagnosticEngine::Clear() {
  diagnostics_.clear();
  error_count_ = warning_count_ = 0;
  dropped_ = {};
}

std::string DiagnosticEngine::Render(Format format, bool colour) const {
  std::vector<Diagnostic> shown = diagnostics_;
  DropRepeatedLast(&shown);
  for (Diagnostic& d : shown) {
    if (!d.cases.empty()) {
      const auto hint = std::find_if(d.notes.begin(), d.notes.end(), [](const DiagNote& note) {
        return note.message.rfind("hint: ", 0) == 0;
      });
      d.notes.insert(hint, {{}, CasesText(d.cases)});
    }
    if (!d.HasHint()) d.notes.push_back({{}, fmt::format("hint: {}", kHints[static_cast<size_t>(d.kind)])});
  }
  if (format == Format::kHuman) {
    std::string out;
    for (const Diagnostic& d : shown) {
      bool error = d.severity == Severity::kError;
      RenderAt(sources_, d.range, error ? "error" : "warning", error ? "\x1b[1;31m" : "\x1b[1;35m", d.message,
               fmt::format(" [{}]", DiagKindName(d.kind)), colour, &out);
      for (const DiagNote& note : d.notes) {
        bool hint = note.message.rfind("hint: ", 0) == 0;
        RenderAt(sources_, note.range, hint ? "hint" : "note", "\x1b[1;36m",
                 hint ? std::string_view(note.message).substr(6) : std::string_view(note.message), "", colour,
                 &out);
      }
    }
    if (error_count_ > kMaxErrors && IsFull(diagnostics_, Severity::kError))
      out += fmt::format("{} more errors not shown\n", error_count_ - kMaxErrors);
    if (warning_count_ > kMaxErrors && IsFull(diagnostics_, Severity::kWarning))
      out += fmt::format("{} more warnings not shown\n", warning_count_ - kMaxErrors);
    return out;
  }
  llvm::json::Array items;
  llvm::json::Array rules;
  for (const Diagnostic& d : shown) {
    const char* level = d.severity == Severity::kError ? "error" : "warning";
    llvm::json::Array notes;
    llvm::json::Array related;
    for (const DiagNote& note : d.notes) {
      llvm::json::Object n{{"message", Json(note.message)}};
      llvm::json::Object r{{"message", llvm::json::Object{{"text", Json(note.message)}}}};
      if (note.range.valid()) {
        n["location"] = Location(sources_, note.range);
        for (auto& [key, value] : SarifLocation(sources_, note.range)) r[key] = value;
      }
      notes.push_back(std::move(n));
      related.push_back(std::move(r));
    }
    if (format == Format::kJson) {
      llvm::json::Object item{
          {"severity", level}, {"kind", Ref(DiagKindName(d.kind))}, {"message", Json(d.message)}};
      if (d.range.valid()) item["location"] = Location(sources_, d.range);
      item["notes"] = std::move(notes);
      items.push_back(std::move(item));
    } else {
      llvm::json::Object item{{"ruleId", Ref(DiagKindName(d.kind))},
                              {"level", level},
                              {"message", llvm::json::Object{{"text", Json(d.message)}}}};
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
                   {"columnKind", "unicodeCodePoints"},
                   {"results", std::move(items)}}}}});
}

}  // namespace piper::ir
