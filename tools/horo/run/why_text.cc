// Each text from a job passes printable() again: the document may come from any process of this user.
#include "tools/horo/run/why_text.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <string_view>
#include <utility>

#include "controller/texts.h"
#include "elastic/texts.h"
#include "tools/horo/run/status_text.h"

namespace horo::tools {
namespace {

constexpr std::chrono::seconds kLeastWait{1};  // shorter ones are part of any step
constexpr double kLongStep = 30;               // seconds: then it is told where the ranks are

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::max(seconds, 0.0));
  return seconds < 100 ? text : elapsed_text(seconds);
}

std::string text_of(const std::set<int>& ranks) {
  return ranks_text(std::vector<int>(ranks.begin(), ranks.end()));
}

std::string ranks_that(const std::set<int>& ranks, const char* one, const char* several) {
  return text_of(ranks) + (ranks.size() == 1 ? one : several);
}

std::string indented(const std::string& text) {
  std::string lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines += "    " + printable(text.substr(begin, end - begin)) + "\n";
    begin = end + 1;
  }
  return lines;
}

std::string tensors_text(const WaitReport::Wait& wait) {
  if (wait.is_join) return "the end of join()" + printable(wait.of_set);
  const bool is_one = wait.names.size() == 1 && wait.more == 0;
  std::string text = is_one ? "tensor " : "tensors ";
  for (std::size_t i = 0; i < wait.names.size(); ++i) text += (i > 0 ? ", '" : "'") + printable(wait.names[i]) + "'";
  if (wait.more > 0) text += " and " + std::to_string(wait.more) + " more";
  return text + printable(wait.of_set) + (wait.partly ? ", not all of which it has submitted" : "");
}

// A text in pieces.
class WhyText {
 public:
  explicit WhyText(const JobWaits& waits) : waits_(waits), name_("job " + std::to_string(waits.status.job)) {}

  std::string text() {
    if (is_starting()) return start_text();
    if (!waits_.report) return fault_text();
    return report_text(*waits_.report);
  }
  bool is_starting() const {
    const auto waits_in_init = [](const RankStart& one) { return one.waits_s.has_value(); };
    const auto is_connected = [](const RankStart& one) { return one.is_connected; };
    const auto& starts = waits_.starts;
    return !starts.empty() &&
           (std::ranges::any_of(starts, waits_in_init) || std::ranges::none_of(starts, is_connected));
  }
  bool has_stopped_one() const { return !stopped().empty(); }

 private:
  // ---- The start: ranks by the number that they have had from their start.

  std::string start_text() const {
    std::set<int> waiting, absent;
    double waited = 0;
    for (const RankStart& one : waits_.starts) {
      if (one.waits_s) {
        waiting.insert(one.id);
        waited = std::max(waited, *one.waits_s);
      } else if (!one.has_called) {
        absent.insert(one.id);
      }
    }
    std::string line = name_ + ": ";
    if (waiting.empty()) {
      line += "no rank has called horo.init() yet";
    } else {
      line += ranks_that(waiting, " waits", " wait") + " in horo.init() for ";
      if (!absent.empty()) {
        line += text_of(absent) + ", which " + (absent.size() == 1 ? "has" : "have") + " not called it";
      } else if (waits_.status.ranks < waits_.status.size) {
        line += "the ranks of the other hosts (horo why tells more there)";
      } else {
        line += waits_.starts.size() == waiting.size() ? "one another: they connect" : "the others";
      }
      line += ", for " + seconds_text(waited);
    }
    return line + "\n" + stopped_text() + start_sites() + absent_text();
  }

  std::string start_sites() const {
    std::vector<std::pair<std::string, std::set<int>>> groups;
    for (const RankStart& one : waits_.starts) {
      if (!one.waits_s || one.site.empty()) continue;
      const auto same = [&](const auto& group) { return group.first == one.site; };
      auto group = std::ranges::find_if(groups, same);
      if (group == groups.end()) group = groups.insert(group, {one.site, {}});
      group->second.insert(one.id);
    }
    std::string text;
    for (const auto& [site, ranks] : groups)
      text += "  " + ranks_that(ranks, " is", " are") + " here:\n" + indented(site);
    return text;
  }

  std::string absent_text() const {
    std::string text;
    for (const RankStart& one : waits_.starts) {
      if (one.has_called || one.process.empty()) continue;
      text += "  rank " + std::to_string(one.id) + ": process " + std::to_string(pid_of_id(one.id)) + ", " +
              printable(one.process) + "\n";
    }
    return text;
  }

  // ---- Ranks by their present number.

  std::string report_text(const WaitReport& report) const {
    std::string text;
    std::set<int> named;
    for (const WaitReport::Wait& wait : report.waits) {
      if (wait.waited < kLeastWait) continue;
      const std::set<int> waiting(wait.submitted.begin(), wait.submitted.end());
      const std::set<int> missing(wait.missing.begin(), wait.missing.end());
      text += name_ + ": " + (waiting.empty() ? "something waits" : ranks_that(waiting, " waits", " wait")) + " for " +
              text_of(missing) + ", for " + seconds_text(static_cast<double>(wait.waited.count()) / 1e3) + ": " +
              tensors_text(wait) + "\n";
      named.insert(waiting.begin(), waiting.end());
      named.insert(missing.begin(), missing.end());
    }
    const std::set<int> silent = silent_in(report);
    if (text.empty() && silent.empty()) return healthy_text(report);
    if (report.more > 0) text += "  and " + std::to_string(report.more) + " more waits, which are not shown\n";
    if (text.empty()) {
      text += name_ + ": no tensor waits to be submitted, but " + ranks_that(silent, " does", " do") + " not answer" +
              (report.in_flight.empty() ? "" : "; tensor '" + printable(report.in_flight) + "' is in flight") + "\n";
    }
    if (!report.deadlocked.empty()) {
      text += "  " + ranks_text(report.deadlocked) + " wait for one another: none of them can go on\n";
    }
    named.insert(silent.begin(), silent.end());
    return text + stopped_text() + sites_text(report, named);
  }

  // Ranks that have not answered.
  static std::set<int> silent_in(const WaitReport& report) {
    std::set<int> silent;
    for (const CallSites& site : report.sites) {
      if (!site.answered) silent.insert(site.ranks.begin(), site.ranks.end());
    }
    return silent;
  }

  std::string healthy_text(const WaitReport& report) const {
    std::string text = name_ + ": no rank waits for another for " + std::to_string(kLeastWait.count()) + " s or more";
    std::optional<StepFigures> last;
    for (const MemberStatus& member : waits_.status.members) {
      if (member.steps && (!last || member.steps->age_s < last->age_s)) last = member.steps;
    }
    if (!last) return text + "\n";
    text += "; " + std::to_string(last->steps) + " steps, the last one ended " + seconds_text(last->age_s) + " ago\n";
    if (last->age_s < kLongStep) return text;
    std::set<int> all;
    for (const CallSites& site : report.sites) all.insert(site.ranks.begin(), site.ranks.end());
    return text + sites_text(report, all);
  }

  std::string sites_text(const WaitReport& report, const std::set<int>& named) const {
    const std::set<int> stopped_ones = stopped();
    std::string text;
    for (const CallSites& site : report.sites) {
      std::set<int> ranks;
      for (const int rank : site.ranks) {
        if (named.contains(rank) && (site.answered || !stopped_ones.contains(rank))) ranks.insert(rank);
      }
      if (ranks.empty()) continue;
      if (!site.answered) {
        text += "  " + ranks_that(ranks, " has", " have") + " not answered: no Python thread can run there (a call " +
                "holds the interpreter lock), or the process is stopped\n";
      } else if (site.text.empty()) {
        text += "  " + ranks_that(ranks, " is", " are") + " no Python program: there are no call sites\n";
      } else {
        text += "  " + ranks_that(ranks, " is", " are") + " here:\n" + indented(site.text);
      }
    }
    return text;
  }

  std::string fault_text() const {
    std::string text = name_ + ": " + printable(waits_.fault) + "\n" + stopped_text();
    if (!waits_.status.min_ranks) return text;
    for (const MemberStatus& member : waits_.status.members) {
      text += "  rank " + std::to_string(member.id) + " is " + printable(member.state) +
              (member.text.empty() ? "" : ": " + printable(member.text)) + "\n";
    }
    return text;
  }

  std::string stopped_text() const {
    std::string text;
    for (const MemberStatus& member : waits_.status.members) {
      if (member.state != "stopped") continue;
      text += "  rank " + std::to_string(member.rank.value_or(member.id)) +
              " is stopped (SIGSTOP, or a debugger): " + "kill -CONT " + std::to_string(member.pid) +
              " lets it go on\n";
    }
    return text;
  }

  std::set<int> stopped() const {
    std::set<int> ranks;
    for (const MemberStatus& member : waits_.status.members) {
      if (member.state == "stopped") ranks.insert(member.rank.value_or(member.id));
    }
    return ranks;
  }

  pid_t pid_of_id(int id) const {
    const auto found = std::ranges::find(waits_.status.members, id, &MemberStatus::id);
    return found == waits_.status.members.end() ? 0 : found->pid;
  }

  const JobWaits& waits_;
  const std::string name_;
};

}  // namespace

std::string why_text(const JobWaits& waits) {
  return WhyText(waits).text();
}

bool is_explained(const JobWaits& waits) {
  const WhyText text(waits);
  return waits.report || text.is_starting() || text.has_stopped_one();
}

}  // namespace horo::tools
