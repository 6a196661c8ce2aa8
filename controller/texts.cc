#include "controller/texts.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

namespace horo {
namespace {

std::string number_text(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

// The first dimension of an all_gather may differ between ranks, so it is none of their differences.
std::string shape_text(const TensorSpec& spec) {
  std::string text;
  for (std::size_t i = 0; i < spec.shape.size(); ++i) {
    const bool free = i == 0 && spec.kind == CollectiveKind::kAllGather;
    text += (i > 0 ? ", " : "") + (free ? "*" : std::to_string(spec.shape[i]));
  }
  return "shape [" + text + "]";
}

bool always(CollectiveKind) {
  return true;
}
bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduceScatter;
}
bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast;
}

// All that ranks may disagree about, the most telling first: for which kinds it matters (as in difference()), and words
// with the value in them.
struct Property {
  bool (*matters)(CollectiveKind);
  std::string (*text)(const TensorSpec&);
};
constexpr Property kProperties[] = {
    {always, [](const TensorSpec& s) { return std::string(name_of(s.kind)); }},
    {always, [](const TensorSpec& s) { return std::string(s.once ? "unnamed" : "named"); }},
    {always, [](const TensorSpec& s) { return std::string(name_of(s.dtype)); }},
    {has_root, [](const TensorSpec& s) { return "root " + std::to_string(s.root); }},
    {reduces, [](const TensorSpec& s) { return std::string(name_of(s.op)); }},
    {reduces, [](const TensorSpec& s) { return "order " + std::string(name_of(s.order)); }},
    {reduces, [](const TensorSpec& s) { return "prescale " + number_text(s.prescale); }},
    {reduces, [](const TensorSpec& s) { return "postscale " + number_text(s.postscale); }},
    {always, shape_text},
};

// "float32 on ranks 0, 2; int32 on rank 1", or nothing where all say the same.
std::string grouped(const std::vector<Said>& said, const Property& property) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (const Said& one : said) {
    const std::string value = property.text(*one.spec);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == value; });
    if (group == groups.end()) group = groups.insert(group, {value, {}});
    group->second.insert(group->second.end(), one.ranks.begin(), one.ranks.end());
  }
  if (groups.size() < 2) return "";
  for (auto& group : groups) std::sort(group.second.begin(), group.second.end());
  std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string text;
  for (const auto& [value, ranks] : groups) text += (text.empty() ? "" : "; ") + value + " on " + ranks_text(ranks);
  return text;
}

std::string first_difference(const std::vector<Said>& said) {
  for (const Property& property : kProperties) {
    if (!property.matters(said.front().spec->kind)) continue;
    std::string text = grouped(said, property);
    if (!text.empty()) return text;
  }
  return "a value that is not equal to itself (NaN) on " + ranks_text(said.front().ranks) + " and others";
}

bool same_kind(const std::vector<Said>& said) {
  return std::all_of(said.begin(), said.end(), [&](const Said& s) { return s.spec->kind == said[0].spec->kind; });
}

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr int kMostRanges = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  std::size_t i = 0;
  for (int range = 0; range < kMostRanges && i < ranks.size(); ++range) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
    if (last > i) text += (last > i + 1 ? "-" : ", ") + std::to_string(ranks[last]);
    i = last + 1;
  }
  return i < ranks.size() ? text + " and " + std::to_string(ranks.size() - i) + " more" : text;
}

std::string mismatch_text(const std::vector<Said>& said) {
  const TensorSpec& first = *said.front().spec;
  const std::string what = same_kind(said) ? std::string(name_of(first.kind)) + " of tensor '" : "tensor '";
  const std::string text =
      what + first.name + "': ranks disagree: " + first_difference(said) + ". Nothing was changed; ";
  const bool unnamed = std::any_of(said.begin(), said.end(), [](const Said& s) { return s.spec->once; });
  if (!unnamed) return text + "make it equal on all ranks and submit it again";
  return text +
         "calls without a name are matched by their order, so look for a rank that makes one more or one less of them, "
         "or "
         "in another order; with names (name=...) they would be matched by name";
}

std::string left_text(const std::string& name, const std::vector<int>& left) {
  std::vector<int> later(left.begin() + 1, left.end());
  std::sort(later.begin(), later.end());
  const std::string and_later = later.empty() ? "" : ", nor will " + ranks_text(later) + ", which left later";
  return "tensor '" + name + "': rank " + std::to_string(left.front()) +
         " has left (horo.shutdown, or the end of the program) and will not submit it" + and_later +
         ". Every rank has to submit a tensor as often as the others: give all ranks the same number of steps";
}

}  // namespace horo
