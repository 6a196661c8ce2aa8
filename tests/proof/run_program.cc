#include "tests/proof/run_program.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>

#include "horo/base/mutex.h"
#include "horo/base/say.h"
#include "horo/session.h"
#include "tests/proof/calls.h"
#include "tests/proof/run_round.h"
#include "tests/proof/watchdog.h"

namespace horo::proof {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{
    120'000};  // for a work, far above horo's own limits, because the machine may be loaded
constexpr std::chrono::seconds kWatchdog{400};  // for a program

// A barrier of all ranks between phases, so that a stall in one phase does not delay the next. Independent of horo.
class PhaseBarrier {
 public:
  explicit PhaseBarrier(int size) : size_(size) {}
  void pass() {
    MutexLock lock(mutex_);
    const std::uint64_t mine = opened_;
    if (++waiting_ == size_) {
      waiting_ = 0;
      ++opened_;
      changed_.notify_all();
    }
    while (opened_ == mine && !is_broken_) changed_.wait(mutex_);
    if (is_broken_) throw std::runtime_error("another rank failed");
  }
  void abort() {
    MutexLock lock(mutex_);
    is_broken_ = true;
    changed_.notify_all();
  }

 private:
  const int size_;
  Mutex mutex_;
  CondVar changed_;
  int waiting_ GUARDED_BY(mutex_) = 0;
  std::uint64_t opened_ GUARDED_BY(mutex_) = 0;
  bool is_broken_ GUARDED_BY(mutex_) = false;
};

// What a rank is doing, for the report of the watchdog.
class RankStatus {
 public:
  void set(const std::string& what) {
    MutexLock lock(mutex_);
    what_ = what;
  }
  std::string get() const {
    MutexLock lock(mutex_);
    return what_;
  }

 private:
  mutable Mutex mutex_;
  std::string what_ GUARDED_BY(mutex_) = "starts";
};

// A submitted work that has not been checked yet.
struct Pending {
  const Item* item;
  Call call;
  std::shared_ptr<Work> work;
  TimePoint since;
};

// The calls of one rank.
class RankRun {
 public:
  RankRun(const Program& program, Session& session, PhaseBarrier& barrier, RankStatus& status)
      : program_(program),
        session_(session),
        barrier_(barrier),
        status_(status),
        random_(program.seed * 1000 + static_cast<std::uint64_t>(session.topology().rank)) {}

  ProgramResults run() {
    add_sets();
    for (const Phase& phase : program_.phases) {
      phase.crossed ? run_crossed(phase) : run_phase(phase);
      barrier_.pass();
    }
    if (program_.removes_sets) remove_sets();
    barrier_.pass();
    return std::move(results_);
  }

 private:
  int rank() const { return session_.topology().rank; }

  void add_sets() {
    numbers_ = {0};
    std::vector<std::shared_ptr<Work>> works;
    for (std::size_t set = 1; set < program_.sets.size(); ++set) works.push_back(session_.add_set(program_.sets[set]));
    for (const auto& work : works) {
      if (wait(work, "a new set")) numbers_.push_back(static_cast<std::uint32_t>(work->outcome().counts.at(0)));
    }
  }

  void remove_sets() {
    std::vector<std::shared_ptr<Work>> works;
    for (std::size_t set = 1; set < numbers_.size(); ++set) works.push_back(session_.remove_set(numbers_[set]));
    for (const auto& work : works) {
      if (wait(work, "the removal of a set")) work->outcome();
    }
  }

  int members(const Item& item) const { return static_cast<int>(program_.sets[item.set].size()); }
  // This rank's place in a set, or -1.
  int place_in(std::uint32_t set) const {
    const auto& ranks = program_.sets[set];
    const auto found = std::find(ranks.begin(), ranks.end(), rank());
    return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
  }

  void run_phase(const Phase& phase) {
    joining_ = phase.joining;
    joining_.resize(program_.sets.size());
    std::vector<std::shared_ptr<Work>> joins(program_.sets.size());
    for (std::uint32_t set = 0; set < program_.sets.size(); ++set) {
      if (has_joined(set)) joins[set] = session_.join(numbers_[set]);
    }
    std::vector<const Item*> items;
    for (const Item& item : phase.items) items.push_back(&item);
    std::shuffle(items.begin(), items.end(), random_);
    for (const Item* item : items) submit(*item);
    std::shuffle(pending_.begin(), pending_.end(), random_);
    finish();
    end_steps(phase);
    for (std::uint32_t set = 0; set < program_.sets.size(); ++set) {
      if (!joining_[set].empty() && place_in(set) >= 0) end_join(set, joins[set]);
    }
  }

  bool has_joined(std::uint32_t set) const {
    const auto& joining = joining_[set];
    const int place = place_in(set);
    return place >= 0 && std::find(joining.begin(), joining.end(), place) != joining.end();
  }

  void end_join(std::uint32_t set, std::shared_ptr<Work> work) {
    if (!work) work = session_.join(numbers_[set]);
    if (!wait(work, "a join")) return;
    const auto last = work->outcome().counts.at(0);
    if (last < 0 || last >= static_cast<std::int64_t>(program_.sets[set].size())) {
      wrong(say("join of set ", set, " reports rank ", last, " as the last"));
    }
    ++results_.ends["join"];
  }

  void end_steps(const Phase& phase) {
    for (std::uint32_t set = 0; set < program_.sets.size(); ++set) {
      const auto is_step = [set](const Item& item) { return item.stepwise && item.set == set; };
      if (place_in(set) >= 0 && std::any_of(phase.items.begin(), phase.items.end(), is_step)) {
        session_.step_end(numbers_[set]);
      }
    }
  }

  // Runs the items one after the other; one member uses the reverse order.
  void run_crossed(const Phase& phase) {
    joining_.assign(program_.sets.size(), {});
    const int place = place_in(phase.items[0].set);
    if (place < 0) return;
    for (std::size_t i = 0; i < phase.items.size(); ++i) {
      submit(phase.items[place == 0 ? i : phase.items.size() - 1 - i]);
      crossed_ = true;
      finish();
      crossed_ = false;
    }
  }

  void submit(const Item& item) {
    const int place = place_in(item.set);
    if (item.mistake == Mistake::kOutside && rank() == item.culprit) return submit_outside(item);
    if (place < 0 || has_joined(item.set) || !takes_part(item, place)) return;
    const bool is_mine = item.mistake != Mistake::kNone && place == item.culprit;
    if (is_mine && item.mistake == Mistake::kMissing) return;
    const Item as_it_is = is_mine ? with_mistake(item, members(item)) : item;
    if (random_() % 8 == 0) std::this_thread::yield();
    submit_as(item, as_it_is, {place, members(item), numbers_[item.set], joining_[item.set]});
  }

  void submit_as(const Item& item, const Item& as_it_is, const Membership& membership) {
    const TimePoint now = Clock::now();
    if (item.unit == 0) {
      pending_.push_back({&item, make_call(as_it_is, membership, 0), nullptr, now});
      Pending& last = pending_.back();
      last.work = session_.submit(last.call.spec, last.call.submission);
      return;
    }
    Unit unit;
    unit.name = item.name;
    for (int tensor = 0; tensor < item.unit; ++tensor) {
      pending_.push_back({&item, make_call(as_it_is, membership, tensor), nullptr, now});
      unit.specs.push_back(pending_.back().call.spec);
      unit.submissions.push_back(pending_.back().call.submission);
    }
    const auto works = session_.submit(unit);
    const std::size_t first = pending_.size() - works.size();
    for (std::size_t i = 0; i < works.size(); ++i) pending_[first + i].work = works[i];
  }

  void submit_outside(const Item& item) {
    Call call = make_call(item, {0, members(item), numbers_[item.set], {}}, 0);
    call.spec.name = item.name;
    try {
      session_.submit(call.spec, call.submission);
      wrong(describe(item) + " was taken from a rank outside of the set");
    } catch (const std::invalid_argument& refused) {
      if (std::string(refused.what()).find("rank") == std::string::npos) wrong(say("names no rank: ", refused.what()));
      ++results_.ends["refused at the call"];
    }
  }

  bool wait(const std::shared_ptr<Work>& work, const std::string& what) {
    status_.set("waits for " + what);
    if (session_.wait(std::span(&work, 1), Clock::now() + kPatience)) return true;
    wrong(what + " did not end");
    throw std::runtime_error(what + " did not end");
  }

  void finish() {
    for (const Pending& pending : pending_) {
      wait(pending.work, describe(*pending.item));
      const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - pending.since);
      results_.longest = std::max(results_.longest, took);
      judge(pending);
    }
    pending_.clear();
  }

  void judge(const Pending& pending) {
    const Item& item = *pending.item;
    const bool must_fail = item.mistake != Mistake::kNone && item.mistake != Mistake::kOutside;
    try {
      const Outcome& outcome = pending.work->outcome();
      if (must_fail) return wrong(describe(item) + " ended well");
      judge_values(pending, outcome);
      ++results_.ends[crossed_ ? "crossed, right" : "right"];
    } catch (const std::exception& failure) {
      if (!must_fail && !crossed_) return wrong(describe(item) + " failed: " + failure.what());
      judge_text(item, failure.what());
      ++results_.ends[crossed_ ? "crossed, failed" : name_of(item.mistake)];
    }
  }

  void judge_values(const Pending& pending, const Outcome& outcome) {
    const Call& call = pending.call;
    std::vector<float> got = call.out;
    if (call.is_varying) {
      got.resize(outcome.bytes / sizeof(float));
      if (!got.empty()) std::memcpy(got.data(), outcome.data.get(), outcome.bytes);
    }
    if (got != call.expected) wrong(describe(*pending.item) + " has wrong values");
    if (call.is_absent != outcome.absent && pending.item->kind == CollectiveKind::kAllReduce) {
      wrong(describe(*pending.item) +
            (outcome.absent ? " reports no contributor" : " does not report that it had no contributor"));
    }
  }

  // Error messages name the tensor and the ranks.
  void judge_text(const Item& item, const std::string& text) {
    const bool names = text.find("'" + item.name) != std::string::npos;
    const bool ranks = text.find("rank") != std::string::npos;
    if (!names || !ranks) wrong(describe(item) + " failed without tensor or rank: " + text);
    const bool is_limit = text.find("HORO_STALL_LIMIT_MS") != std::string::npos;
    if (item.mistake == Mistake::kMissing && !is_limit) wrong(describe(item) + " failed before its limit: " + text);
    if (item.mistake == Mistake::kJoined && text.find("joined") == std::string::npos) {
      wrong(describe(item) + " does not name the joined ranks: " + text);
    }
  }

  void wrong(const std::string& what) {
    results_.wrong.push_back(say("seed ", program_.seed, ", rank ", rank(), ": ", what));
  }

  const Program& program_;
  Session& session_;
  PhaseBarrier& barrier_;
  RankStatus& status_;
  std::mt19937_64 random_;
  ProgramResults results_;
  std::vector<std::uint32_t> numbers_;     // of the program's sets in the session
  std::vector<std::vector<int>> joining_;  // in this phase, by set
  std::vector<Pending> pending_;
  bool crossed_ = false;
};

// The program, and the state of each rank.
std::string report(const Program& program, const std::deque<RankStatus>& status) {
  std::string text = describe(program);
  for (std::size_t rank = 0; rank < status.size(); ++rank) text += say("  rank ", rank, " ", status[rank].get(), "\n");
  return text;
}

// Runs one rank from its first call to its last.
ProgramResults run_rank(const Program& program, Links links, const Config& config, PhaseBarrier& barrier,
                        RankStatus& status) {
  ProgramResults mine;
  try {
    Session session(config, std::move(links));
    mine = RankRun(program, session, barrier, status).run();
    status.set("leaves");
  } catch (const std::exception& error) {
    barrier.abort();
    mine.wrong.push_back(say("seed ", program.seed, ", rank ", config.rank, ": ", error.what(), "; it ", status.get()));
  }
  status.set("has ended");
  return mine;
}

}  // namespace

ProgramResults run_program(const Program& program, milliseconds stall_limit) {
  PhaseBarrier barrier(program.size);
  std::vector<Links> links = connect(program.size, program.over_tcp ? test::Wire::kTcp : test::Wire::kInProcess);
  std::deque<RankStatus> status(links.size());
  std::vector<ProgramResults> parts(links.size());
  const Watchdog watchdog(kWatchdog, [&] { return report(program, status); });
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < links.size(); ++rank) {
      threads.emplace_back([&, rank] {
        Config config;
        config.rank = config.local_rank = static_cast<int>(rank);
        config.size = config.local_size = program.size;
        config.stall_limit = program.stalls() ? stall_limit : kPatience;
        config.stall_warning = milliseconds(0);
        config.bucket_bytes = program.seed % 3 == 0 ? 0 : 1 << program.seed % 12;
        config.segment_bytes = program.seed % 2 == 0 ? 256 << 10 : 1024;
        parts[rank] = run_rank(program, std::move(links[rank]), config, barrier, status[rank]);
      });
    }
  }
  ProgramResults all;
  for (const ProgramResults& part : parts) all.add(part);
  return all;
}

}  // namespace horo::proof
