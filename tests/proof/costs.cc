#include "tests/proof/costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <vector>

#include "ring/schedule/schedule_check.h"
#include "ring/schedule/schedule_parts.h"

namespace horo::proof {
namespace {

constexpr std::array kSizes = {2, 4, 6, 8};
constexpr std::size_t kBytes = 8 * 9 * 5 * 7 * 64;  // of the tensor; divisible by every number of chunks

bool depends_on_hosts(const NamedMaker& maker) {
  return maker.make == hierarchical_all_reduce || maker.make == hosts_first_all_reduce;
}

// `members_of_host`: on each host.
Shape shape_for(const NamedMaker& maker, int size, int members_of_host) {
  Shape shape;
  shape.kind = maker.kind;
  shape.size = size;
  for (int i = 0; i < size && depends_on_hosts(maker); ++i) shape.hosts.push_back(i / members_of_host);
  return shape;
}

struct Figures {
  int rounds = 0;
  std::size_t sent = 0;     // bytes, by the member that sends most
  std::size_t scratch = 0;  // bytes, of the member that needs most
};

Figures figures_of(const NamedMaker& maker, int size) {
  const Shape shape = shape_for(maker, size, 2);
  std::vector<Schedule> schedules;
  for (int member = 0; member < size; ++member) schedules.push_back(maker.make(shape, member));
  // An all_to_all has a chunk for each pair; S is the input of one member.
  const auto chunks = static_cast<std::size_t>(schedules[0].chunks);
  const std::size_t parts = maker.kind == CollectiveKind::kAllToAll ? static_cast<std::size_t>(size) : chunks;
  const std::vector<std::size_t> each(chunks, kBytes / parts);
  const Cost cost = cost_of(shape, schedules, {each, each});
  const Proof proof = check_schedule(shape, schedules);
  return {proof.rounds, *std::max_element(cost.sent.begin(), cost.sent.end()),
          *std::max_element(cost.scratch.begin(), cost.scratch.end())};
}

// "1.75", "7", "0.333".
std::string in_tensors(std::size_t bytes) {
  std::ostringstream out;
  out.precision(3);
  out << static_cast<double>(bytes) / static_cast<double>(kBytes);
  return out.str();
}

std::string row(const NamedMaker& maker) {
  std::string rounds, sent, scratch;
  // Groups of three are not subtrees of the canonical tree.
  const Order order_of_threes = maker.make(shape_for(maker, kSizes.back(), 3), 0).order;
  for (const int size : kSizes) {
    const Figures figures = figures_of(maker, size);
    const char* comma = rounds.empty() ? "" : ", ";
    rounds += comma + std::to_string(figures.rounds);
    sent += comma + in_tensors(figures.sent);
    scratch += comma + in_tensors(figures.scratch);
  }
  const std::string order = reduces(maker.kind) ? std::string(name_of(order_of_threes)) : "-";
  return "| " + std::string(name_of(maker.kind)) + " | " + maker.name + " | " + order + " | " + rounds + " | " + sent +
         " | " + scratch + " |\n";
}

}  // namespace

std::string cost_table() {
  std::string table =
      "| collective | algorithm | order | rounds | the busiest rank sends | scratch |\n|---|---|---|---|---|---|\n";
  std::vector<NamedMaker> makers = all_schedule_makers();
  std::stable_sort(makers.begin(), makers.end(), [](const auto& a, const auto& b) { return a.kind < b.kind; });
  for (const NamedMaker& maker : makers) table += row(maker);
  return table;
}

}  // namespace horo::proof
