#include "tools/horo/run/why_question.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>
#include <utility>

#include "horo/base/error.h"

namespace horo::tools {
namespace {

constexpr double kLookSeconds = 0.02;
constexpr std::chrono::seconds kLongestAnswer{5};

// One descriptor for both ends: it is opened again by a rank that reads, and nothing that is written has no reader.
Descriptor make_bell() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return {};
  const Descriptor reader(ends[0]), writer(ends[1]);
  const std::string path = "/proc/self/fd/" + std::to_string(reader.get());
  return Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
}

// "python3 sleeps".
std::string process_text(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t begin = line.find('('), end = line.rfind(')');
  if (begin == std::string::npos || end == std::string::npos || end + 2 >= line.size()) return "";
  const char state = line[end + 2];
  const std::string name = line.substr(begin + 1, end - begin - 1);
  if (state == 'R') return name + " computes";
  if (state == 'D') return name + " waits for a disk or a device";
  return name + (state == 'T' || state == 't' ? " is stopped" : " sleeps");
}

// A world of one rank, and a rank that joins, tell the table nothing.
bool is_known_to_run(const JobStatus& status, const MemberStatus& member) {
  if (!status.min_ranks) return status.size == 1;
  return member.rank && member.state != "starting" && member.state != "ready" && member.state != "joining";
}

}  // namespace

WhyQuestion::WhyQuestion(struct ev_loop* loop, RunTable* table, std::function<void()> on_time)
    : table_(table), bell_(table == nullptr ? Descriptor() : make_bell()), next_look_(loop, std::move(on_time)) {
  if (bell_.is_open()) table_->set_bell(bell_.get());
}

void WhyQuestion::ask() {
  if (question_) return;
  question_ = table_ == nullptr ? 0 : table_->ask();
  until_ = Clock::now() + kLongestAnswer;
  if (bell_.is_open()) static_cast<void>(!::write(bell_.get(), "?", 1));  // full: it rings already
}

void WhyQuestion::stop() {
  next_look_.stop();
  question_.reset();
}

std::optional<JobWaits> WhyQuestion::answer(JobStatus status, const std::map<int, int>& slots) {
  if (!question_) return std::nullopt;
  JobWaits waits{std::move(status), {}, {}, ""};
  waits.starts = starts(waits.status, slots);
  waits.fault = why_not(waits, slots);
  if (waits.fault.empty()) {
    const auto bytes = table_->answer_to(*question_);
    if (!bytes && Clock::now() < until_) {
      next_look_.set(kLookSeconds);
      return std::nullopt;
    }
    try {
      if (bytes) waits.report = decode_wait_report(*bytes);
    } catch (const ProtocolError& error) {
      waits.fault = std::string("rank 0 has given no valid answer: ") + error.what();
    }
    if (!bytes) {
      waits.fault = "rank 0 has not answered within " + std::to_string(kLongestAnswer.count()) +
                    " s: it has no session of horo now, or its threads do not run";
    }
  }
  stop();
  return waits;
}

std::vector<RankStart> WhyQuestion::starts(const JobStatus& status, const std::map<int, int>& slots) const {
  std::vector<RankStart> all;
  if (table_ == nullptr) return all;
  for (const MemberStatus& member : status.members) {
    const auto slot = slots.find(member.id);
    if (slot == slots.end()) continue;
    RankStart& one = all.emplace_back();
    one.id = member.id;
    one.is_connected = table_->starts(slot->second) > 0 || is_known_to_run(status, member);
    one.has_called = one.is_connected || table_->holder(slot->second) != 0;
    if (const auto start = table_->start(slot->second)) {
      one.waits_s = std::max(0.0, std::chrono::duration<double>(Clock::now() - start->since).count());
      one.site = start->site;
    }
    if (!one.has_called) one.process = process_text(member.pid);
  }
  return all;
}

// Why rank 0 is not waited for; empty: it may answer.
std::string WhyQuestion::why_not(const JobWaits& waits, const std::map<int, int>& slots) const {
  if (!bell_.is_open()) return "the ranks cannot be asked, because this system has no memory files or pipes for it";
  const auto is_first = [](const MemberStatus& member) { return member.rank == 0; };
  const auto first = std::ranges::find_if(waits.status.members, is_first);
  if (first == waits.status.members.end()) return "it has no rank 0 now, which would have to be asked";
  if (!slots.contains(first->id)) {
    return first->pid == 0 ? "rank 0 is on another host: ask there" : "rank 0 has ended, and cannot be asked";
  }
  if (first->state == "stopped") return "rank 0 is stopped, and cannot be asked";
  const auto is_one = [&](const RankStart& one) { return one.id == first->id; };
  const auto start = std::ranges::find_if(waits.starts, is_one);
  return start == waits.starts.end() || !start->is_connected || start->waits_s ? "it starts" : "";
}

}  // namespace horo::tools
