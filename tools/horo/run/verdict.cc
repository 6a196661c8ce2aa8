// Processes that end within the same millisecond are reaped in any order, so the order is weak evidence. The errors
// of the survivors about a lost rank are stronger, and then the kind of the end.
#include "tools/horo/run/verdict.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

namespace horo::tools {
namespace {

constexpr std::size_t kMaxOthers = 16;  // lines about other ranks

bool has_failed(const RankEnd& end) {
  return code_of(end.status) != 0 && !end.was_terminated && !end.was_survived && !end.was_joining;
}

const std::string& told_loss(const RankEnd& end) {
  return end.errors.loss().empty() ? end.output.loss() : end.errors.loss();
}

std::optional<int> loss_of(const RankEnd& end) {
  return has_failed(end) ? rank_lost(told_loss(end), end.rank) : std::nullopt;
}

const RankEnd* find_rank(const std::vector<RankEnd>& ends, int rank) {
  const auto at = std::find_if(ends.begin(), ends.end(), [rank](const RankEnd& end) { return end.rank == rank; });
  return at == ends.end() ? nullptr : &*at;
}

std::optional<int> most_blamed(const std::vector<RankEnd>& ends) {
  std::map<int, int> votes;
  for (const RankEnd& end : ends) {
    if (const auto lost = loss_of(end)) ++votes[*lost];
  }
  std::erase_if(votes, [&](const auto& vote) {
    const RankEnd* blamed = find_rank(ends, vote.first);
    return blamed != nullptr && loss_of(*blamed);
  });
  if (votes.empty()) return std::nullopt;
  return std::max_element(votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

// Lower is more likely the cause.
int rank_of_cause(const RankEnd& end, bool is_elastic) {
  return !told_loss(end).empty() ? 2 : WIFSIGNALED(end.status) && !is_elastic ? 0 : 1;
}

const RankEnd* first_failed(const std::vector<RankEnd>& ends, bool is_elastic) {
  const auto order = [is_elastic](const RankEnd& end) { return std::pair(rank_of_cause(end, is_elastic), end.place); };
  const RankEnd* first = nullptr;
  for (const RankEnd& end : ends) {
    if (has_failed(end) && (first == nullptr || order(end) < order(*first))) first = &end;
  }
  return first;
}

std::string end_text(const RankEnd& end) {
  const std::string& own = end.errors.exception();
  const std::string status = status_text(end.status);
  if (end.was_terminated) return "did not end by itself; " + status + " after SIGTERM";
  const std::string text = own.empty() || end.status == 0 ? status : own + " (" + status + ")";
  if (end.was_joining) return text + "; it had not joined the job";
  return end.was_survived ? text + "; the job went on without it" : text;
}

std::string lines_text(const OutputTail& words) {
  std::string text;
  for (const std::string& line : words.lines()) text += "    | " + line + "\n";
  return text;
}

std::string tail_text(const RankEnd& end) {
  if (!end.errors.lines().empty()) return "  its last lines on stderr:\n" + lines_text(end.errors);
  if (!end.output.lines().empty()) return "  its last lines:\n" + lines_text(end.output);
  return "  it printed nothing\n";
}

// One line for all ranks that ended in the same way.
std::string others_text(const std::vector<RankEnd>& ends, int first) {
  std::vector<std::pair<std::string, std::string>> lines;  // status, ranks
  for (const RankEnd& end : ends) {
    if (end.rank == first) continue;
    const std::string how = end_text(end);
    const auto at = std::find_if(lines.begin(), lines.end(), [&](const auto& line) { return line.first == how; });
    if (at == lines.end()) {
      lines.emplace_back(how, "rank " + std::to_string(end.rank));
    } else {
      at->second.replace(0, at->second.find(' '), "ranks");
      at->second += ", " + std::to_string(end.rank);
    }
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(lines.size(), kMaxOthers); ++i) {
    text += "    " + lines[i].second + ": " + lines[i].first + "\n";
  }
  if (lines.size() > kMaxOthers) text += "    and " + std::to_string(lines.size() - kMaxOthers) + " more\n";
  return text.empty() ? "" : "  the others:\n" + text;
}

std::string blamed_text(const RankEnd& end, const std::string& host) {
  const std::string name = "rank " + std::to_string(end.rank) + " on host " + host;
  if (end.was_terminated) return name + " was lost first: it " + end_text(end);
  if (end.status == 0 && end.was_no_rank)
    return name + " ended without horo.init(), in which other ranks waited for it";
  if (end.status == 0) return name + " ended first: " + end_text(end) + ", while other ranks still needed it";
  return name + " failed first: " + end_text(end);
}

}  // namespace

ExitVerdict exit_verdict(const std::vector<RankEnd>& ends, const std::string& title, const std::string& host,
                         bool is_elastic) {
  const RankEnd* failed = first_failed(ends, is_elastic);
  if (failed == nullptr) return {};
  const int blamed_rank = is_elastic ? failed->rank : most_blamed(ends).value_or(failed->rank);
  const RankEnd* blamed = find_rank(ends, blamed_rank);
  if (blamed == nullptr) {
    return {code_of(failed->status),
            title + ": rank " + std::to_string(blamed_rank) +
                ", which runs on another host, was lost first: its own launcher reports the reason\n" +
                others_text(ends, blamed_rank),
            true};
  }
  if (has_failed(*blamed)) failed = blamed;
  return {code_of(failed->status),
          title + ": " + blamed_text(*blamed, host) + "\n" + tail_text(*blamed) + others_text(ends, blamed_rank),
          false};
}

std::string status_text(int status) {
  if (WIFEXITED(status)) return "exit code " + std::to_string(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const char* name = ::sigabbrev_np(signal);
  const std::string core = WCOREDUMP(status) ? ", core dumped" : "";
  return "signal " + std::to_string(signal) + (name == nullptr ? "" : std::string(" (SIG") + name + ")") + core;
}

int code_of(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace horo::tools
