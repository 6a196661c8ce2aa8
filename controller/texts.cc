#include "controller/texts.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "horo/base/collective_kind.h"

namespace horo {
namespace {

std::string number_text(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

bool is_uneven(CollectiveKind kind) {
  return kind == CollectiveKind::kAllGather || kind == CollectiveKind::kAllToAll || kind == CollectiveKind::kGather ||
         kind == CollectiveKind::kScatter;
}

// Kinds whose first dimension may differ between ranks show it as *, so that it is no difference.
std::string shape_text(const TensorSpec& spec) {
  std::string text;
  for (std::size_t i = 0; i < spec.shape.size(); ++i) {
    const bool may_differ = i == 0 && is_uneven(spec.kind) && (!spec.counts_known || !spec.splits.empty());
    text += (i > 0 ? ", " : "") + (may_differ ? "*" : std::to_string(spec.shape[i]));
  }
  if (spec.kind == CollectiveKind::kAddSet) return "ranks [" + text + "]";
  return (spec.kind == CollectiveKind::kRemoveSet ? "process set [" : "shape [") + text + "]";
}

std::string splits_text(const TensorSpec& spec) {
  std::string text;
  for (const std::int64_t rows : spec.splits) text += (text.empty() ? "" : ", ") + std::to_string(rows);
  return spec.splits.empty() ? "no splits" : "splits [" + text + "]";
}

std::string name_text(const char* what, const std::string& name) {
  return name.empty() ? "no " + std::string(what) : std::string(what) + " '" + name + "'";
}

bool always(CollectiveKind) {
  return true;
}
bool moves(CollectiveKind kind) {
  return kind != CollectiveKind::kBarrier && kind != CollectiveKind::kJoin && kind != CollectiveKind::kAddSet &&
         kind != CollectiveKind::kRemoveSet && kind != CollectiveKind::kRebuild;
}

bool deals_rows(CollectiveKind kind) {
  return reduces(kind) || is_uneven(kind);
}

// The properties in which ranks can disagree, the most informative first: the kinds for which it matters (as in
// difference()), and a text with the value.
struct Property {
  bool (*matters)(CollectiveKind);
  std::string (*text)(const TensorSpec&);
};
constexpr Property kProperties[] = {
    {always, [](const TensorSpec& s) { return std::string(name_of(s.kind)); }},
    {always, [](const TensorSpec& s) { return std::string(s.once ? "unnamed" : "named"); }},
    {moves, [](const TensorSpec& s) { return std::string(name_of(s.dtype)); }},
    {moves, [](const TensorSpec& s) { return "device " + std::string(name_of(s.device)); }},
    {has_root, [](const TensorSpec& s) { return "root " + std::to_string(s.root); }},
    {moves, [](const TensorSpec& s) { return "receiver " + std::to_string(s.peer); }},
    {reduces, [](const TensorSpec& s) { return std::string(name_of(s.op)); }},
    {reduces, [](const TensorSpec& s) { return name_text("operation", s.custom_op); }},
    {reduces, [](const TensorSpec& s) { return "order " + std::string(name_of(s.order)); }},
    {reduces, [](const TensorSpec& s) { return "prescale " + number_text(s.prescale); }},
    {reduces, [](const TensorSpec& s) { return "postscale " + number_text(s.postscale); }},
    {reduces, [](const TensorSpec& s) { return name_text("codec", s.codec); }},
    {is_uneven, [](const TensorSpec& s) { return std::string(s.counts_known ? "sizes known" : "sizes exchanged"); }},
    {deals_rows, splits_text},
    {reduces, [](const TensorSpec& s) { return "round stream " + std::to_string(s.round_stream); }},
    {always, shape_text},
    {always, [](const TensorSpec& s) { return std::string(s.shrinks ? "shrinks=True" : "shrinks=False"); }},
    {always, [](const TensorSpec& s) { return name_text("name", s.set_name); }},
    {moves, [](const TensorSpec& s) { return "priority " + std::to_string(s.priority); }},
    {moves, [](const TensorSpec& s) { return name_text("unit", s.unit); }},
    {moves, [](const TensorSpec& s) { return "a unit of " + std::to_string(s.unit_size) + " tensors"; }},
};

// "float32 on ranks 0, 2; int32 on rank 1"; empty if all ranks report the same value.
std::string grouped(const std::vector<SpecReport>& reports, const Property& property) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (const SpecReport& one : reports) {
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

std::string first_difference(const std::vector<SpecReport>& reports) {
  for (const Property& property : kProperties) {
    if (!property.matters(reports.front().spec->kind)) continue;
    std::string text = grouped(reports, property);
    if (!text.empty()) return text;
  }
  return "a value that is not equal to itself (NaN) on " + ranks_text(reports.front().ranks) + " and others";
}

bool same_kind(const std::vector<SpecReport>& reports) {
  return std::all_of(reports.begin(), reports.end(),
                     [&](const SpecReport& s) { return s.spec->kind == reports[0].spec->kind; });
}

constexpr const char* kHasLeft = "has left (horo.shutdown, or the end of the program)";

// left: in the order in which the ranks left.
std::string gone_text(const std::vector<int>& left, const std::string& what) {
  std::vector<int> later(left.begin() + 1, left.end());
  std::sort(later.begin(), later.end());
  const std::string and_later = later.empty() ? "" : ", nor will " + ranks_text(later) + ", which left later";
  return "rank " + std::to_string(left.front()) + " " + kHasLeft + " and will not " + what + and_later;
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

std::string mismatch_text(const std::vector<SpecReport>& reports, const std::string& of_set) {
  const TensorSpec& first = *reports.front().spec;
  const std::string what = same_kind(reports) ? std::string(name_of(first.kind)) + " of tensor '" : "tensor '";
  const std::string text =
      what + first.name + "'" + of_set + ": ranks disagree: " + first_difference(reports) + ". Nothing was changed; ";
  const auto is_unnamed = [](const SpecReport& s) { return s.spec->once && !s.spec->by_members; };
  const bool unnamed = std::any_of(reports.begin(), reports.end(), is_unnamed);
  if (!unnamed) return text + "make it equal on all ranks and submit it again";
  return text +
         "calls without a name are matched by their order, so look for a rank that makes one more or one less of them, "
         "or in another order; with names (name=...) they would be matched by name";
}

std::string left_text(const std::string& name, const std::vector<int>& left, const std::string& of_set) {
  return "tensor '" + name + "'" + of_set + ": " + gone_text(left, "submit it") +
         ". Every rank has to submit a tensor as often as the others: give all ranks the same number of steps";
}

std::string leader_left_text(const std::string& head) {
  return head + std::string("rank 0 ") + kHasLeft +
         ", which coordinates all process sets, also those of other ranks. Keep rank 0 until "
         "their last collective: shut down on all ranks at the end";
}

std::string lost_head(const std::string& name, const std::string& of_set) {
  return "tensor '" + name + "'" + of_set + ": ";
}

std::string lost_text() {
  return "the ranks changed while it was in flight, and it cannot run again among those of now: it names ranks that "
         "are lost or have another number now, or its parts depend on the number of ranks. Submit it again";
}

std::string joined_text(const TensorSpec& spec, const std::vector<int>& joined, const std::string& of_set) {
  return std::string(name_of(spec.kind)) + " of tensor '" + spec.name + "'" + of_set + " is not possible while " +
         ranks_text(joined) + (joined.size() == 1 ? " has" : " have") +
         " joined: only all_reduce and barrier go on without them. Nothing was changed; make such calls before the "
         "first rank joins, or after the last";
}

std::string unit_head(const std::string& name, const std::string& unit, const std::string& culprit,
                      const std::string& of_set) {
  const std::string head = "tensor '" + name + "'" + of_set + " is ";
  if (culprit.empty()) return head + "of unit '" + unit + "', which failed: ";
  return head + "one unit ('" + unit + "') with tensor '" + culprit + "', which failed: ";
}

std::string joined_unit_text() {
  return "all ranks have joined, and not all of its tensors were submitted. Nothing was changed; make a unit of the "
         "same tensors "
         "on all ranks";
}

std::string lost_join_text(const std::vector<int>& left, const std::string& of_set) {
  return "join" + of_set + ": " + gone_text(left, "join") + ". Every rank has to join before it leaves";
}

std::string removed_text(const std::string& name, const std::string& of_set) {
  return "tensor '" + name + "'" + of_set +
         ": the process set was removed before all of its ranks had submitted the tensor. Wait for what is in flight "
         "in a set before you remove it";
}

std::string after_join_text(const std::string& name, const std::string& of_set) {
  return "tensor '" + name + "'" + of_set +
         ": this rank has joined, and may submit nothing until all ranks have joined. Wait for the join first";
}

}  // namespace horo
