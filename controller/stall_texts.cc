#include "controller/stall_texts.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "controller/texts.h"

namespace horo {
namespace {

constexpr std::size_t kMostNames = 3;
constexpr std::size_t kMostGroups = 6;
// Of a warning.
constexpr std::size_t kMostPlaces = 3;
constexpr std::size_t kMostFrames = 4;

std::string seconds_text(Duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

std::string and_more(std::size_t count) {
  return count == 0 ? "" : " and " + std::to_string(count) + " more";
}

std::string capitalized(std::string text) {
  text.front() = text.front() == 'r' ? 'R' : text.front();
  return text;
}

std::string names_text(const std::vector<std::string>& names) {
  std::string text = names.size() == 1 ? "tensor " : "tensors ";
  const std::size_t shown = std::min(names.size(), kMostNames);
  for (std::size_t i = 0; i < shown; ++i) text += (i > 0 ? ", '" : "'") + names[i] + "'";
  return text + and_more(names.size() - shown);
}

std::string pending_text(const RankWaits& waits) {
  std::string text;
  for (const PendingWait& wait : waits.shown) {
    text +=
        (text.empty() ? "" : ", ") + wait.what + wait.of_set + " (not submitted by " + ranks_text(wait.missing) + ")";
  }
  return text.empty() ? "no other tensor" : text + and_more(waits.more);
}

// " Rank 2 waits for 'b' (not submitted by ranks 0, 1). Ranks 3, 5 wait for no other tensor."
std::string waits_text(const std::vector<RankWaits>& waits) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (const RankWaits& one : waits) {
    std::string text = pending_text(one);
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == text; });
    if (group == groups.end()) {
      groups.emplace_back(std::move(text), std::vector<int>{one.rank});
    } else {
      group->second.push_back(one.rank);
    }
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(groups.size(), kMostGroups); ++i) {
    const auto& [pending, ranks] = groups[i];
    text += " " + capitalized(ranks_text(ranks)) + (ranks.size() == 1 ? " waits for " : " wait for ") + pending + ".";
  }
  return groups.size() > kMostGroups ? text + " Other ranks wait for other tensors." : text;
}

std::string indented(const std::string& text) {
  std::string lines = "\n  ";
  for (const char c : text) lines += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return lines;
}

// The first lines.
std::string in_one_line(const std::string& text) {
  std::string line;
  std::size_t lines = 1;
  for (const char c : text) {
    if (c == '\n' && ++lines > kMostFrames) break;
    line += c == '\n' ? std::string(" < ") : std::string(1, c);
  }
  return line;
}

std::string no_sites_text(const CallSites& group, std::chrono::milliseconds answer_timeout) {
  const std::string ranks = "\n" + ranks_text(group.ranks);
  if (group.answered) return ranks + ": no call sites (not a Python program)";
  return ranks + " did not answer within " + std::to_string(answer_timeout.count()) +
         " ms (HORO_ANSWER_TIMEOUT_MS): no Python thread could run there (a call that holds the GIL), or the process " +
         "is stopped";
}

std::string sites_text(const std::vector<CallSites>& groups, const std::string& did,
                       std::chrono::milliseconds answer_timeout) {
  std::string text;
  for (std::size_t i = 0; i < std::min(groups.size(), kMostGroups); ++i) {
    const CallSites& group = groups[i];
    const char* are = group.ranks.size() == 1 ? " is here:" : " are here:";
    text += group.text.empty() ? no_sites_text(group, answer_timeout)
                               : "\n" + ranks_text(group.ranks) + did + are + indented(group.text);
  }
  return groups.size() > kMostGroups ? text + "\n(the call sites of other ranks are not shown)" : text;
}

// " Rank 1 is at evaluate.py:7 score < train.py:60 main." Of the innermost frames alone; a rank that is no Python
// program is left out.
std::string places_text(const std::vector<CallSites>& groups) {
  std::string text;
  std::size_t shown = 0;
  for (const CallSites& group : groups) {
    if (group.answered && group.text.empty()) continue;
    if (shown++ == kMostPlaces) return text + " The places of other ranks are not shown.";
    const bool one = group.ranks.size() == 1;
    text += " " + capitalized(ranks_text(group.ranks));
    text += group.answered ? (one ? " is at " : " are at ") + in_one_line(group.text) : " did not answer";
    text += ".";
  }
  return text;
}

bool no_python(const std::vector<CallSites>& groups) {
  return std::all_of(groups.begin(), groups.end(), [](const auto& g) { return g.answered && g.text.empty(); });
}

}  // namespace

std::string warning_text(const std::vector<StallGroup>& groups, const std::vector<RankWaits>& waits,
                         const std::vector<CallSites>& sites, const CoordinatorConfig& config) {
  std::string text;
  for (std::size_t i = 0; i < std::min(groups.size(), kMostGroups); ++i) {
    const StallGroup& s = groups[i];
    text += (i > 0 ? "; " : "") + names_text(s.names) + s.of_set + ": submitted by " + ranks_text(s.submitted) +
            ", but not " + (s.partly ? "all of them by " : "by ") + ranks_text(s.missing) + " for " +
            seconds_text(s.waited);
  }
  std::size_t more = 0;
  for (std::size_t i = kMostGroups; i < groups.size(); ++i) more += groups[i].names.size();
  if (more > 0) text += "; " + std::to_string(more) + " more tensors wait for other ranks";
  text += "." + waits_text(waits) + places_text(sites);
  if (const auto limit = config.stall_limit.count(); limit > 0) {
    return text + " This is an error after " + std::to_string(limit) + " ms (HORO_STALL_LIMIT_MS)";
  }
  text += " A slow rank is no error";
  if (const auto limit = config.deadlock_limit.count(); limit > 0) {
    text += "; ranks that wait for one another are, after " + std::to_string(limit) + " ms (HORO_DEADLOCK_MS)";
  }
  return text;
}

// In an elastic job the name of a removal has the number of its set.
std::string stall_head(const TensorSpec& spec, const std::string& of_set) {
  const bool has_number_of_set = spec.kind == CollectiveKind::kRemoveSet && spec.name.find('#') == std::string::npos;
  const bool unnamed = spec.once && !spec.by_members && !has_number_of_set;
  const char* order = unnamed ? " (a call without a name; such calls are matched by their order)" : "";
  return describe(spec) + " of tensor '" + spec.name + "'" + of_set + order;
}

std::string stall_text(const StallGroup& group, const std::vector<RankWaits>& waits, std::chrono::milliseconds limit) {
  const std::string missing = ranks_text(group.missing);
  return ": submitted by " + ranks_text(group.submitted) + ", but not by " + missing + " within " +
         std::to_string(limit.count()) + " ms (HORO_STALL_LIMIT_MS)." + waits_text(waits) +
         " Nothing was changed; submit it on all ranks, or raise the limit if " + missing +
         (group.missing.size() == 1 ? " is" : " are") + " only slow";
}

std::string deadlock_text(const StallGroup& group, const std::vector<RankWaits>& waits,
                          const std::vector<int>& deadlocked, std::chrono::milliseconds limit) {
  return ": submitted by " + ranks_text(group.submitted) + ", but not by " + ranks_text(group.missing) +
         ". This is a deadlock: " + ranks_text(deadlocked) + " wait for one another, and all of their callers have " +
         "waited for " + std::to_string(limit.count()) + " ms (HORO_DEADLOCK_MS)." + waits_text(waits) +
         " Nothing was changed; make the same calls in the same order on all ranks";
}

std::string unit_text(std::chrono::milliseconds limit) {
  return "not all of its tensors were submitted within " + std::to_string(limit.count()) +
         " ms (HORO_STALL_LIMIT_MS). Nothing was changed; make a unit of the same tensors on all ranks";
}

std::string call_sites_text(const std::vector<CallSites>& waiting, const std::vector<CallSites>& missing,
                            std::chrono::milliseconds answer_timeout) {
  if (no_python(waiting) && no_python(missing)) return "";
  return sites_text(waiting, ", which submitted it,", answer_timeout) +
         sites_text(missing, ", which did not,", answer_timeout);
}

}  // namespace horo
