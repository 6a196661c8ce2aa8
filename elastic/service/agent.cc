// The main thread reads from the guard and reports to the rendezvous. While the host is registered, one thread passes
// its orders on, and one renews its lease. When one of the three fails, all begin anew with a registration, for which
// the guard tells all it knows. A fourth thread tells the guard that this process runs.
#include "elastic/service/agent.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include "elastic/service/credentials.h"
#include "elastic/service/guard_socket_end.h"
#include "elastic/service/rendezvous_client.h"
#include "horo/base/error.h"
#include "horo/base/log.h"
#include "horo/base/time.h"

namespace horo {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{20};
constexpr milliseconds kLongestPause{500};
constexpr milliseconds kAnswer{5'000};  // of the guard, which waits for nothing
constexpr milliseconds kCallsEnd{10'000};
constexpr std::size_t kMostEvents = 256;     // of one report
constexpr std::size_t kMostBytes = 1 << 20;  // before the last event of a report
constexpr int kBeatsInLease = 4;
constexpr int kPulsesInPatience = 5;

class Agent {
 public:
  explicit Agent(const AgentOptions& options) : options_(options), guard_(options.guard_fd) {
    const auto spec = guard_.receive(Clock::now() + kAnswer);
    if (!spec) throw ProtocolError("the guard sends nothing");
    spec_ = decode_job_spec(*spec);
    pulse_ = std::jthread([this] { pulse(); });
  }
  ~Agent() {
    MutexLock lock(pulse_mutex_);
    is_over_ = true;
    over_.notify_all();
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  int run() {
    milliseconds pause = kFirstPause;
    while (!guard_.is_closed()) {
      std::string why;
      try {
        serve(pause);
      } catch (const RendezvousGone& error) {
        why = error.what();
        credentials_.reset();           // a rendezvous that has lost its folder has another authority
      } catch (const NotRegistered&) {  // the rendezvous was started again, or has more orders than this host takes
      } catch (const HostEvicted& error) {
        return end(LockedOut{error.what()});
      } catch (const HostRefused& error) {
        return end(HostOrder(EndJob{std::string("the rendezvous refuses this host: ") + error.what()}));
      }
      if (guard_.is_closed()) break;
      log_debug("the agent registers again: " + (why.empty() ? "its registration has ended" : why));
      if (!why.empty()) tell_contact(false, why);
      wait(pause);
      pause = std::min(pause * 2, kLongestPause);
    }
    return 0;
  }

 private:
  // This process stays until the guard ends, which would start another one.
  int end(const AgentSays& last_word) {
    guard_.send(last_word);
    while (!guard_.is_closed()) guard_.receive(Clock::now() + std::chrono::seconds(60));
    return 1;
  }

  // Whatever the other threads wait for, this process runs.
  void pulse() {
    const milliseconds pause = agent_patience(spec_) / kPulsesInPatience;
    for (bool is_over = false; !is_over;) {
      guard_.send(Alive{});
      MutexLock lock(pulse_mutex_);
      for (const TimePoint next = Clock::now() + pause; !is_over_ && Clock::now() < next;) {
        over_.wait_until(pulse_mutex_, next);
      }
      is_over = is_over_;
    }
  }

  // Returns when the guard has closed its end. Otherwise throws.
  void serve(milliseconds& pause) {
    if (!credentials_) {
      RendezvousClient client(options_.rendezvous, enrolment_credentials(options_.token, options_.job));
      credentials_ = client.enroll(options_.host, options_.incarnation);
    }
    const std::optional<HostPast> past = ask_past();
    if (!past) return;
    RendezvousClient client(options_.rendezvous, *credentials_);
    const Registration registration = client.register_host({spec_, options_.host, options_.incarnation, *past});
    tell_contact(true, "");
    log_debug("the agent is registered in term " + std::to_string(registration.term));
    pause = kFirstPause;
    fault_ = nullptr;
    is_broken_ = false;
    ended_ = 0;
    std::jthread watching([&] {
      guarded([&] { client.watch(registration.number, [this](const HostOrder& order) { guard_.send(order); }); });
    });
    std::jthread beating([&](const std::stop_token& stop) { guarded([&] { beat(client, registration, stop); }); });
    guarded([&] { report(client, registration); });
    beating.request_stop();
    client.stop();
    await_threads();
    beating.join();
    watching.join();
    if (fault_ != nullptr) std::rethrow_exception(fault_);
  }

  // Keeps the first failure of the three threads, and ends the others.
  template <class Call>
  void guarded(const Call& call) {
    try {
      call();
    } catch (...) {
      MutexLock lock(mutex_);
      if (fault_ == nullptr) fault_ = std::current_exception();
    }
    is_broken_ = true;
    guard_.wake();
    MutexLock lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }

  // All calls end when they are cancelled or their time is over. If one does not, the guard starts this process again.
  void await_threads() {
    MutexLock lock(mutex_);
    const TimePoint until = Clock::now() + kCallsEnd;
    while (ended_ < 3 && Clock::now() < until) changed_.wait_until(mutex_, until);
    if (ended_ == 3) return;
    log_error("a call to the rendezvous does not end");
    std::_Exit(1);
  }

  void report(RendezvousClient& client, const Registration& registration) {
    while (!is_broken_ && !guard_.is_closed()) {
      std::vector<HostEvent> events;
      std::size_t bytes = 0;
      auto message = guard_.receive(Clock::now() + std::chrono::seconds(1));
      while (message) {
        bytes += message->size();
        GuardSays says = decode_guard_says(*message);
        if (auto* event = std::get_if<HostEvent>(&says)) events.push_back(std::move(*event));
        message = bytes < kMostBytes && events.size() < kMostEvents ? guard_.receive(Clock::now()) : std::nullopt;
      }
      if (!events.empty()) client.report(registration.number, events, limit_of(registration));
    }
  }

  void beat(RendezvousClient& client, const Registration& registration, const std::stop_token& stop) {
    while (!stop.stop_requested() && !is_broken_) {
      const TimePoint next = Clock::now() + registration.lease / kBeatsInLease;
      {
        MutexLock lock(mutex_);
        while (Clock::now() < next && !is_broken_) changed_.wait_until(mutex_, next);
      }
      if (!is_broken_) client.beat(registration.number, limit_of(registration));
    }
  }

  static milliseconds limit_of(const Registration& registration) {
    return std::max(registration.lease / 2, milliseconds(500));
  }

  // Events before the answer are part of it. Nothing: the guard has closed its end. A host without its past would never
  // be told again what its members need.
  std::optional<HostPast> ask_past() {
    guard_.send(TellPast{});
    HostPast past;
    while (!guard_.is_closed()) {
      const auto message = guard_.receive(Clock::now() + kAnswer);
      if (!message) continue;
      GuardSays says = decode_guard_says(*message);
      auto* part = std::get_if<HostPast>(&says);
      if (part == nullptr) continue;
      append(std::move(*part), past);
      if (past.is_last) return past;
    }
    return std::nullopt;
  }

  void wait(milliseconds pause) {
    for (const TimePoint until = Clock::now() + pause; Clock::now() < until && !guard_.is_closed();) {
      guard_.receive(until);
    }
  }

  void tell_contact(bool is_there, const std::string& why) {
    if (is_there_ == is_there) return;
    is_there_ = is_there;
    guard_.send(Contact{is_there, why});
  }

  const AgentOptions& options_;
  GuardSocketEnd guard_;
  JobSpec spec_;
  std::optional<Credentials> credentials_;
  std::optional<bool> is_there_;
  std::atomic<bool> is_broken_ = false;  // orders nothing: the failure is read after the threads have ended
  Mutex mutex_;
  CondVar changed_;
  // mutex_ guards these while the threads run.
  std::exception_ptr fault_;
  int ended_ = 0;  // threads, this one included
  Mutex pulse_mutex_;
  CondVar over_;
  bool is_over_ GUARDED_BY(pulse_mutex_) = false;
  std::jthread pulse_;
};

}  // namespace

int run_agent(const AgentOptions& options) {
  return Agent(options).run();
}

}  // namespace horo
