// Each text from a job passes printable() again: the document may come from any process of this user.
#include "tools/horo/run/status_text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <string_view>
#include <utility>

#include "elastic/texts.h"
#include "tools/horo/run/lines.h"
#include "tools/horo/run/step_text.h"
#include "tools/horo/run/text_table.h"

namespace horo::tools {
namespace {

constexpr std::size_t kMostCommandBytes = 200;

std::string command_of(const JobStatus& status) {
  std::string text;
  for (const std::string& word : status.command) text += (text.empty() ? "" : " ") + printable(word);
  return text.size() <= kMostCommandBytes ? text : printable(text.substr(0, kMostCommandBytes)) + "...";
}

std::string kind_of(const JobStatus& status) {
  if (!status.min_ranks) {
    const bool is_one_host = status.ranks == status.size;
    return "static, " + std::to_string(status.size) + (status.size == 1 ? " rank" : " ranks") +
           (is_one_host ? "" : ", " + std::to_string(status.ranks) + " of them on this host");
  }
  const auto here =
      std::count_if(status.members.begin(), status.members.end(), [](const auto& one) { return one.rank.has_value(); });
  return "elastic, " + std::to_string(here) + " of " + std::to_string(std::max(status.slots, status.size)) +
         " ranks, --min-np " + std::to_string(*status.min_ranks) + ", epoch " + std::to_string(status.epoch) +
         (status.is_parked ? ", parked" : "");
}

std::string note_of(const MemberStatus& member) {
  if (!member.text.empty()) return printable(member.text);
  if (!member.figures || !member.rank) return "";
  const MemberFigures& figures = *member.figures;
  if (!figures.is_answer) {
    return (member.state == "stopped" ? "" : "no answer; ") + ("figures of " + elapsed_text(figures.age_s)) + " ago";
  }
  return figures.oldest.empty() ? "" : "oldest in flight: " + printable(figures.oldest);
}

// Ranks that run have nothing to tell beside their steps.
bool is_plain(const MemberStatus& member) {
  constexpr std::array<std::string_view, 5> kStates{"running", "left", "failed", "died", "evicted"};
  return std::ranges::find(kStates, member.state) != kStates.end();
}

std::string members_of(const JobStatus& status, bool leaves_out_plain) {
  const bool is_elastic = status.min_ranks.has_value();
  Rows rows{is_elastic
                ? std::vector<std::string>{"id", "rank", "pid", "state", "rounds", "collectives", "in flight", ""}
                : std::vector<std::string>{"rank", "pid", "state", ""}};
  for (const MemberStatus& member : status.members) {
    if (leaves_out_plain && is_plain(member)) continue;
    std::vector<std::string> row{std::to_string(member.id)};
    if (is_elastic) row.push_back(member.rank ? std::to_string(*member.rank) : "-");
    row.push_back(member.pid == 0 ? "-" : std::to_string(member.pid));  // 0: on another host
    row.push_back(printable(member.state));
    if (is_elastic) {
      const auto& figures = member.figures;
      for (const auto value : {&MemberFigures::rounds, &MemberFigures::collectives, &MemberFigures::in_flight}) {
        row.push_back(figures ? std::to_string((*figures).*value) : "-");
      }
    }
    row.push_back(note_of(member));
    rows.push_back(std::move(row));
  }
  const std::vector<bool> is_word = is_elastic ? std::vector<bool>{false, false, false, true, false, false, false, true}
                                               : std::vector<bool>{false, false, true, true};
  return rows.size() == 1 ? "" : table_of(rows, "  ", is_word) + "\n";
}

// "14:03:12.120", local time.
std::string clock_text(double time_s) {
  const auto second = static_cast<std::time_t>(std::floor(time_s));
  std::tm local{};
  ::localtime_r(&second, &local);
  std::array<char, 16> clock{};
  std::strftime(clock.data(), clock.size(), "%H:%M:%S", &local);
  std::array<char, 8> rest{};
  std::snprintf(rest.data(), rest.size(), ".%03d", static_cast<int>((time_s - std::floor(time_s)) * 1000));
  return std::string(clock.data()) + rest.data();
}

std::string story_of(const JobStatus& status, std::size_t events) {
  if (status.story.empty()) return "";
  std::string text;
  const std::size_t left_out = status.story.size() - std::min(events, status.story.size());
  if (const std::uint64_t earlier = status.dropped + left_out; earlier > 0)
    text += "  (" + std::to_string(earlier) + " earlier events)\n";
  for (std::size_t i = left_out; i < status.story.size(); ++i) {
    const StoryLine& line = status.story[i];
    text += "  " + clock_text(line.time_s) + "  " + printable(line.text) + "\n";
  }
  return text;
}

std::string checkpoint_of(const JobStatus& status) {
  return status.checkpoint ? ", checkpoint of step " + std::to_string(*status.checkpoint) : "";
}

}  // namespace

std::string elapsed_text(double seconds) {
  const auto all = static_cast<long long>(std::clamp(seconds, 0.0, 1e12));
  const auto text = [](long long large, const char* unit, long long small, const char* small_unit) {
    return std::to_string(large) + unit + std::to_string(small) + small_unit;
  };
  if (all < 60) return std::to_string(all) + " s";
  if (all < 3'600) return text(all / 60, " min ", all % 60, " s");
  if (all < 86'400) return text(all / 3'600, " h ", all / 60 % 60, " min");
  return text(all / 86'400, " d ", all / 3'600 % 24, " h");
}

std::string text_of(const JobStatus& status, const TextView& view) {
  const auto fitted = [&](const std::string& text) { return view.width > 0 ? folded(text, view.width) : text; };
  std::string text = "job " + std::to_string(status.job) + " (" + printable(status.title) + ", process " +
                     std::to_string(status.process) + "): " + command_of(status) + "\n  " + kind_of(status) +
                     ", runs for " + elapsed_text(status.age_s) + checkpoint_of(status) + "\n\n";
  text = fitted(text);
  std::string steps = steps_text(status, view);
  if (!steps.empty()) steps += "\n";
  const std::string members = members_of(status, view.is_top && !steps.empty());
  text += view.is_top ? steps + members : members + steps;
  text += fitted(story_of(status, view.events));
  if (text.ends_with("\n\n")) text.pop_back();
  return text;
}

std::string list_of(const std::vector<JobStatus>& jobs) {
  Rows rows{{"job", "time", "ranks", "command"}};
  for (const JobStatus& job : jobs) {
    rows.push_back({std::to_string(job.job), elapsed_text(job.age_s), kind_of(job), command_of(job)});
  }
  return table_of(rows, "", {false, false, true, true});
}

}  // namespace horo::tools
