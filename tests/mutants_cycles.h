// Cycles of a directed graph, for the brute-force model (tests/mutants_model.h): strongly connected
// components (Tarjan, Depth-first search and linear graph algorithms, 1972).
#pragma once

#include <algorithm>
#include <vector>

namespace piper::mutants {

class Cycles {
 public:
  // `edges[n]`: where the edges of node n lead.
  explicit Cycles(const std::vector<std::vector<int>>& edges)
      : edges_(edges), index_(edges.size(), -1), low_(edges.size(), 0), component_(edges.size(), -1) {
    for (size_t node = 0; node < edges.size(); ++node) {
      if (index_[node] < 0) Visit(static_cast<int>(node));
    }
  }
  // A node lies on a cycle.
  bool On(int node) const {
    return size_[component_[node]] > 1 ||
           std::find(edges_[node].begin(), edges_[node].end(), node) != edges_[node].end();
  }
  // Two nodes lie on a common cycle, or are the same.
  bool Same(int a, int b) const { return component_[a] == component_[b]; }

 private:
  void Visit(int node) {
    index_[node] = low_[node] = next_++;
    stack_.push_back(node);
    for (int to : edges_[node]) {
      if (index_[to] < 0) {
        Visit(to);
        low_[node] = std::min(low_[node], low_[to]);
      } else if (component_[to] < 0) {
        low_[node] = std::min(low_[node], index_[to]);
      }
    }
    if (low_[node] != index_[node]) return;
    size_.push_back(0);
    for (int member = -1; member != node;) {
      member = stack_.back();
      stack_.pop_back();
      component_[member] = static_cast<int>(size_.size()) - 1;
      ++size_.back();
    }
  }

  const std::vector<std::vector<int>>& edges_;
  std::vector<int> index_, low_, component_, stack_, size_;
  int next_ = 0;
};

}  // namespace piper::mutants
