// Sums as expressions. Equal expressions are one node of a table, so two sums are equal if their node numbers are.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "horo/base/say.h"

namespace horo {

// An expression contains each origin at most once, so the number of origins bounds its length. One thread.
class Expressions {
 public:
  int leaf(int origin) { return add({origin, -1, -1}); }
  // An origin that both contain, or -1. join() requires -1.
  int common_origin(int left, int right) const {
    const std::vector<int>&a = origins(left), &b = origins(right);
    std::vector<int> common;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
    return common.empty() ? -1 : common.front();
  }
  int join(int left, int right) { return add({-1, left, right}); }

  // The origins of an expression, ascending.
  const std::vector<int>& origins(int node) const { return origins_[static_cast<std::size_t>(node)]; }
  std::string print(int node) const {
    const auto& [origin, left, right] = nodes_[static_cast<std::size_t>(node)];
    return origin >= 0 ? say(origin) : say("(", print(left), " + ", print(right), ")");
  }

 private:
  using Node = std::tuple<int, int, int>;
  int add(const Node& node) {
    const auto [found, is_new] = number_.try_emplace(node, static_cast<int>(nodes_.size()));
    if (is_new) {
      const auto& [origin, left, right] = node;
      std::vector<int> all;
      if (origin >= 0) {
        all.push_back(origin);
      } else {
        std::merge(origins(left).begin(), origins(left).end(), origins(right).begin(), origins(right).end(),
                   std::back_inserter(all));
      }
      nodes_.push_back(node);
      origins_.push_back(std::move(all));
    }
    return found->second;
  }
  std::vector<Node> nodes_;
  std::vector<std::vector<int>> origins_;  // by node
  std::map<Node, int> number_;
};

}  // namespace horo
