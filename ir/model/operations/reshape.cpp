// reshape(x, dims): merges or splits neighbouring dimensions; no element moves. `reshape(x, [batch, seq,
// inner = 512])`: a dimension of x keeps its size, a new one states it, and one size may be left out. A
// dimension of x that stays must stay in its place: reshape cannot reorder.
#include <fmt/format.h>

#include <charconv>

#include "ir/model/operations/alias.h"

namespace piper::ir {
namespace {

class ReshapeRule final : public AliasRule {
 public:
  ReshapeRule() : AliasRule("reshape", {{"x"}}, {{AttributeInfo::Kind::kShape, "dims", std::nullopt}}) {}

  std::optional<std::vector<TensorType>> Infer(const Graph& graph, const Operation& op,
                                               DiagnosticEngine& diag) const override {
    const TensorType& x = graph.Type(op.operands[0]);
    TensorType result{x.dtype, {}};
    int inferred = -1;
    int64_t known = 1;
    for (const std::string& entry : std::get<std::vector<std::string>>(*op.Find("dims"))) {
      std::optional<Dim> dim = ParseShapeEntry(entry);
      if (dim && dim->size == 0) {
        int own = FindDim(x, dim->name);
        if (own >= 0) {
          dim->size = x.dims[static_cast<size_t>(own)].size;
        } else if (inferred < 0) {
          inferred = static_cast<int>(result.dims.size());
        } else {
          diag.Error(op.range, DiagKind::kShapeMismatch,
                     fmt::format("reshape of {}: the sizes of both '{}' and '{}' are left out", x.ToString(),
                                 result.dims[static_cast<size_t>(inferred)].name, dim->name))
              .Hint(fmt::format("state one: {} = ..", dim->name));
          return std::nullopt;
        }
      }
      if (!dim || dim->size < 0) {
        diag.Error(op.range, DiagKind::kBadArguments, fmt::format("'{}' is no dimension", entry))
            .Hint("write name or name = size, with a positive size");
        return std::nullopt;
      }
      if (dim->size > x.elements() / known) {  // reported below; no overflow
        known = 0;
        break;
      }
      if (dim->size > 0) known *= dim->size;
      result.dims.push_back(*dim);
    }
    if (inferred >= 0 && known > 0 && x.elements() % known == 0) {
      result.dims[static_cast<size_t>(inferred)].size = x.elements() / known;
      known = x.elements();
    }
    if (known != x.elements()) {
      diag.Error(op.range, DiagKind::kShapeMismatch,
                 fmt::format("reshape of {} ({} elements) to [{}]: the elements do not match", x.ToString(),
                             x.elements(),
                             fmt::join(std::get<std::vector<std::string>>(*op.Find("dims")), ", ")))
          .Hint("leave out one size and it follows from the rest");
      return std::nullopt;
    }
    for (size_t i = 0; i < result.dims.size(); ++i) {
      int own = FindDim(x, result.dims[i].name);
      if (own < 0 || x.dims[static_cast<size_t>(own)] != result.dims[i]) continue;
      if (Product(x, 0, static_cast<size_t>(own)) == Product(result, 0, i)) continue;
      diag.Error(op.range, DiagKind::kShapeMismatch,
                 fmt::format("reshape of {} to {} would move the dimension '{}'", x.ToString(),
                             result.ToString(), result.dims[i].name))
          .Hint("reshape only merges and splits neighbours; permute(x, [..]) reorders");
      return std::nullopt;
    }
    return std::vector<TensorType>{result};
  }
};

}  // namespace

std::optional<Dim> ParseShapeEntry(std::string_view entry) {
  size_t equals = entry.find('=');
  Dim dim{std::string(entry.substr(0, equals)), 0};
  if (dim.name.empty()) return std::nullopt;
  if (equals == std::string_view::npos) return dim;
  const char* end = entry.data() + entry.size();
  auto [stop, error] = std::from_chars(entry.data() + equals + 1, end, dim.size);
  if (error != std::errc() || stop != end || dim.size <= 0) return std::nullopt;
  return dim;
}

void AddReshapeRules(RuleList& rules) {
  static const ReshapeRule rule;
  rules.push_back(&rule);
}

}  // namespace piper::ir
