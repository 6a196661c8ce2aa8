#include "tests/proof/perform.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
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
#include "tests/proof/play.h"

namespace horo::proof {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{120'000};  // for a work, beside the limits of horo's own: a loaded machine is no fault
constexpr milliseconds kWatchdog{400'000};  // for a program

// Where all ranks meet between phases, so that a phase's stall delays nobody's next one. Not a part of horo.
class Gate {
 public:
  explicit Gate(int size) : size_(size) {}
  void pass() {
    MutexLock lock(mutex_);
    const std::uint64_t mine = opened_;
    if (++waiting_ == size_) {
      waiting_ = 0;
      ++opened_;
      changed_.notify_all();
    }
    while (opened_ == mine && !is_broken_) changed_.wait(mutex_);
    if (is_broken_) throw std::runtime_error("another rank gave up");
  }
  void break_off() {
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

// What a rank does, for whoever wonders why it does not end.
class Doing {
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

// Submitted, and not judged yet.
struct Pending {
  const Item* item;
  Call call;
  std::shared_ptr<Work> work;
  TimePoint since;
};

class Actor {
 public:
  Actor(const Program& program, Session& session, Gate& gate, Doing& doing)
      : program_(program),
        session_(session),
        gate_(gate),
        doing_(doing),
        random_(program.seed * 1000 + static_cast<std::uint64_t>(session.topology().rank)) {}

  Performance run() {
    add_sets();
    for (const Phase& phase : program_.phases) {
      phase.crossed ? cross(phase) : play(phase);
      gate_.pass();
    }
    if (program_.removes_sets) remove_sets();
    gate_.pass();
    return std::move(performance_);
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

  void play(const Phase& phase) {
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
      wrong(say("join of set ", set, " says that ", last, " was the last"));
    }
    ++performance_.ends["join"];
  }

  void end_steps(const Phase& phase) {
    for (std::uint32_t set = 0; set < program_.sets.size(); ++set) {
      const auto is_step = [set](const Item& item) { return item.stepwise && item.set == set; };
      if (place_in(set) >= 0 && std::any_of(phase.items.begin(), phase.items.end(), is_step)) {
        session_.step_end(numbers_[set]);
      }
    }
  }

  // One after the other, one member in the other order.
  void cross(const Phase& phase) {
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

  void submit_as(const Item& item, const Item& as_it_is, const Seating& seating) {
    const TimePoint now = Clock::now();
    if (item.unit == 0) {
      pending_.push_back({&item, make_call(as_it_is, seating, 0), nullptr, now});
      Pending& last = pending_.back();
      last.work = session_.submit(last.call.spec, last.call.submission);
      return;
    }
    Unit unit;
    unit.name = item.name;
    for (int tensor = 0; tensor < item.unit; ++tensor) {
      pending_.push_back({&item, make_call(as_it_is, seating, tensor), nullptr, now});
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
      ++performance_.ends["refused at the call"];
    }
  }

  bool wait(const std::shared_ptr<Work>& work, const std::string& what) {
    doing_.set("waits for " + what);
    if (session_.wait(std::span(&work, 1), Clock::now() + kPatience)) return true;
    wrong(what + " did not end");
    throw std::runtime_error(what + " did not end");
  }

  void finish() {
    for (const Pending& pending : pending_) {
      wait(pending.work, describe(*pending.item));
      const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - pending.since);
      performance_.longest = std::max(performance_.longest, took);
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
      ++performance_.ends[crossed_ ? "crossed, right" : "right"];
    } catch (const std::exception& failure) {
      if (!must_fail && !crossed_) return wrong(describe(item) + " failed: " + failure.what());
      judge_text(item, failure.what());
      ++performance_.ends[crossed_ ? "crossed, failed" : name_of(item.mistake)];
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
            (outcome.absent ? " says that nobody had it" : " does not say that nobody had it"));
    }
  }

  // Messages name tensor and ranks.
  void judge_text(const Item& item, const std::string& text) {
    const bool names = text.find("'" + item.name) != std::string::npos;
    const bool ranks = text.find("rank") != std::string::npos;
    if (!names || !ranks) wrong(describe(item) + " failed without tensor or rank: " + text);
    const bool is_limit = text.find("HORO_STALL_LIMIT_MS") != std::string::npos;
    if (item.mistake == Mistake::kMissing && !is_limit) wrong(describe(item) + " failed before its limit: " + text);
    if (item.mistake == Mistake::kJoined && text.find("joined") == std::string::npos) {
      wrong(describe(item) + " does not say who joined: " + text);
    }
  }

  void wrong(const std::string& what) {
    performance_.wrong.push_back(say("seed ", program_.seed, ", rank ", rank(), ": ", what));
  }

  const Program& program_;
  Session& session_;
  Gate& gate_;
  Doing& doing_;
  std::mt19937_64 random_;
  Performance performance_;
  std::vector<std::uint32_t> numbers_;     // of the program's sets
  std::vector<std::vector<int>> joining_;  // in this phase, by set
  std::vector<Pending> pending_;
  bool crossed_ = false;
};

// Ends the process if a program lives too long.
class Watchdog {
 public:
  Watchdog(const Program& program, const std::deque<Doing>& doing)
      : program_(program), doing_(doing), thread_([this] { watch(); }) {}
  ~Watchdog() {
    MutexLock lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }

 private:
  void watch() {
    const TimePoint until = Clock::now() + kWatchdog;
    MutexLock lock(mutex_);
    while (!is_over_ && Clock::now() < until) changed_.wait_until(mutex_, until);
    if (is_over_) return;
    std::string text = "proof: a program hangs: " + describe(program_);
    for (std::size_t rank = 0; rank < doing_.size(); ++rank)
      text += say("  rank ", rank, " ", doing_[rank].get(), "\n");
    std::fputs(text.c_str(), stderr);
    std::abort();
  }

  const Program& program_;
  const std::deque<Doing>& doing_;
  Mutex mutex_;
  CondVar changed_;
  bool is_over_ GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

// One rank from its first call to its last.
Performance act(const Program& program, Links links, const Config& config, Gate& gate, Doing& doing) {
  Performance mine;
  try {
    Session session(config, std::move(links));
    Actor actor(program, session, gate, doing);
    mine = actor.run();
    doing.set("leaves");
  } catch (const std::exception& error) {
    gate.break_off();
    mine.wrong.push_back(say("seed ", program.seed, ", rank ", config.rank, ": ", error.what(), "; it ", doing.get()));
  }
  doing.set("has ended");
  return mine;
}

}  // namespace

Performance perform(const Program& program, milliseconds stall_limit) {
  Gate gate(program.size);
  std::vector<Links> links = connect(program.size, program.over_tcp ? test::Wire::kTcp : test::Wire::kInProcess);
  std::deque<Doing> doing(links.size());
  std::vector<Performance> parts(links.size());
  const Watchdog watchdog(program, doing);
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
        parts[rank] = act(program, std::move(links[rank]), config, gate, doing[rank]);
      });
    }
  }
  Performance all;
  for (const Performance& part : parts) all.add(part);
  return all;
}

}  // namespace horo::proof
