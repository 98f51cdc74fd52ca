// What the tests of ir/model share: graphs in a few lines, deterministic numbers, central differences.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/model/body.h"
#include "ir/model/body_builder.h"
#include "ir/model/graph.h"
#include "ir/model/operations.h"
#include "ir/model/reference.h"
#include "ir/support/diagnostics.h"

namespace piper::ir {

// Numbers in (-1, 1) from a counter; no two streams alike.
class TestRandom {
 public:
  explicit TestRandom(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double Symmetric() { return static_cast<double>(Next() >> 11) * 0x1p-52 - 1.0; }

 private:
  uint64_t state_;
};

// A graph under construction that fails the test on any diagnostic.
class TestModel {
 public:
  TestModel() : diag_(sources_), builder_(&graph_, &diag_) {}

  ValueId Input(const std::string& name, std::vector<Dim> dims, DType dtype = DType::kF32) {
    return graph_.AddInput({name, {dtype, std::move(dims)}, {}});
  }
  ValueId Param(const std::string& name, std::vector<Dim> dims, bool frozen = false) {
    Parameter parameter;
    parameter.name = name;
    parameter.type = {DType::kF32, std::move(dims)};
    parameter.frozen = frozen;
    return graph_.AddParameter(std::move(parameter));
  }
  void Tag(const TagPath& path) { builder_.SetTags(graph_.InternTags(path)); }
  void Path(const std::string& path) { builder_.SetPath(path); }
  std::vector<ValueId> All(std::string_view kind, const std::vector<ValueId>& operands,
                           std::vector<Attribute> attributes = {}) {
    std::vector<ValueId> results = builder_.Add(kind, operands, std::move(attributes), {});
    EXPECT_FALSE(results.empty()) << diag_.Render(DiagnosticEngine::Format::kHuman, false);
    if (results.empty()) std::abort();
    return results;
  }
  ValueId Op(std::string_view kind, const std::vector<ValueId>& operands,
             std::vector<Attribute> attributes = {}) {
    return All(kind, operands, std::move(attributes))[0];
  }
  void Loss(ValueId value, const std::string& name = "loss") { graph_.losses.push_back({value, name, {}}); }
  Graph& graph() { return graph_; }

 private:
  SourceManager sources_;
  DiagnosticEngine diag_;
  Graph graph_;
  GraphBuilder builder_;
};

// Parameter values in f64, `scale` times (-1, 1), or in (0.5, 1.5) where `positive`.
inline std::vector<HostTensor> RandomParameters(const Graph& graph, uint64_t seed, double scale = 1,
                                                bool positive = false) {
  std::vector<HostTensor> parameters;
  for (size_t p = 0; p < graph.parameters.size(); ++p) {
    TestRandom random(seed * 1000 + p);
    HostTensor tensor = HostTensor::Zeros(DType::kF64, graph.parameters[p].type.elements());
    for (double& x : tensor.f64) x = positive ? 1 + 0.5 * random.Symmetric() : scale * random.Symmetric();
    parameters.push_back(std::move(tensor));
  }
  return parameters;
}

// Integers in [low, high) keyed by field and global sample, reals in (-1, 1).
inline BatchProvider RandomBatch(const Graph& graph,
                                 std::map<std::string, std::pair<int64_t, int64_t>> ranges) {
  return [inputs = graph.inputs, ranges = std::move(ranges)](InputId input, int64_t first, int64_t samples,
                                                             void* out) {
    int64_t elements = inputs[input].type.elements() / inputs[input].type.dims[0].size;
    for (int64_t s = 0; s < samples; ++s) {
      TestRandom random(static_cast<uint64_t>((first + s) * 100 + input + 7));
      for (int64_t e = 0; e < elements; ++e) {
        if (inputs[input].type.dtype == DType::kI32) {
          auto [low, high] = ranges.at(inputs[input].name);
          static_cast<int32_t*>(out)[s * elements + e] = static_cast<int32_t>(
              low + static_cast<int64_t>(random.Next() % static_cast<uint64_t>(high - low)));
        } else {
          static_cast<float*>(out)[s * elements + e] = static_cast<float>(random.Symmetric());
        }
      }
    }
  };
}

inline double MaxAbs(const HostTensor& tensor) {
  double largest = 0;
  for (int64_t i = 0; i < tensor.size(); ++i) largest = std::max(largest, std::abs(tensor.at(i)));
  return largest;
}

inline double MaxDifference(const HostTensor& a, const HostTensor& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    double d = std::abs(a.at(i) - b.at(i));
    if (!(d <= largest)) largest = d;  // NaN counts
  }
  return largest;
}

// Gradients of every trainable parameter against central differences in f64, over at most `probes` elements
// of each.
inline void CheckGradients(const Graph& graph, const std::vector<HostTensor>& parameters,
                           const BatchProvider& batch, double tolerance = 2e-7, int64_t probes = 24) {
  RegionGraph regions = BuildRegions(graph);
  ReferenceOptions options;
  options.dtype = DType::kF64;
  options.seed = 5;
  options.step = 2;
  ReferenceResult result = RunReferenceStep(regions, options, parameters, batch);
  ASSERT_TRUE(std::isfinite(result.loss));
  ReferenceOptions forward = options;
  forward.want_gradients = false;
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (graph.parameters[p].frozen) {
      EXPECT_EQ(result.gradients[p].size(), 0) << graph.parameters[p].name;
      continue;
    }
    int64_t n = parameters[p].size();
    // A parameter that no loss depends on has no gradient; it counts as zero.
    if (result.gradients[p].size() == 0) result.gradients[p] = HostTensor::Zeros(DType::kF64, n);
    ASSERT_EQ(result.gradients[p].size(), n) << graph.parameters[p].name;
    double scale = std::max(MaxAbs(result.gradients[p]), 1e-2);
    for (int64_t k = 0; k < std::min(n, probes); ++k) {
      int64_t e = n <= probes ? k : (k * 7919) % n;
      constexpr double kStep = 1e-4;
      auto loss_at = [&](double delta) {
        std::vector<HostTensor> moved = parameters;
        moved[p].f64[static_cast<size_t>(e)] += delta;
        return RunReferenceStep(regions, forward, moved, batch).loss;
      };
      // Fourth order: the error is about kStep^4.
      double numeric = (8 * (loss_at(kStep) - loss_at(-kStep)) - (loss_at(2 * kStep) - loss_at(-2 * kStep))) /
                       (12 * kStep);
      EXPECT_NEAR(result.gradients[p].at(e), numeric, tolerance * scale)
          << graph.parameters[p].name << "[" << e << "]\n"
          << graph.ToText();
    }
  }
}

}  // namespace piper::ir
