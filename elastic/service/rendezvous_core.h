// RendezvousCore: the rendezvous without its network. It gives JobMembership what the hosts tell, stores what must
// outlive this process before any host hears of it, and queues orders for the hosts. No thread, no clock; the store is
// its only I/O. docs/protocol.md has the protocol.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "elastic/host_messages.h"
#include "elastic/job_view.h"
#include "elastic/membership.h"
#include "elastic/service/job_record.h"
#include "elastic/service/order_queue.h"
#include "elastic/service/record_log.h"
#include "elastic/service/view_changes.h"
#include "elastic/view_secrets.h"
#include "horo/base/awake_clock.h"
#include "horo/base/time.h"

namespace horo {

// The host cannot take part, for a reason that a person must remove.
struct HostRefused : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The host was evicted: its certificate is refused until the job ends.
struct HostEvicted : HostRefused {
  using HostRefused::HostRefused;
};
// The registration is not valid any more: the host registers again.
struct NotRegistered : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// This process must end: another rendezvous has written to the record, or the storage has failed.
struct StoreLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct HostHello {
  JobSpec spec;
  std::uint32_t host = 0;
  std::uint64_t incarnation = 0;  // a random number of this start of `horo run`
  HostPast past;
};

struct Registration {
  std::uint64_t number = 0;  // names it in later calls; never that of an earlier one
  std::uint64_t term = 0;
  std::chrono::milliseconds lease{};  // a host that is silent for so long loses its members
};

// A job of which no host has been heard for so long may be followed by another one.
std::chrono::milliseconds abandoned_after(const JobSpec& spec);

// All functions throw StoreLost.
class RendezvousCore {
 public:
  // on_orders: the host has orders to take, or was evicted. Reads the record and begins the next term. `store` outlives
  // this object. home: the host whose `horo run` has started this process, if any: it is never locked out, since it
  // has the authority's key anyway and must hear when the job is over.
  RendezvousCore(RecordStore& store, std::function<void(std::uint32_t host)> on_orders, TimePoint now,
                 std::optional<std::uint32_t> home = std::nullopt);

  // Throws HostRefused unless this start of `horo run` may take part; HostEvicted: it may not any more.
  void check_incarnation(std::uint32_t host, std::uint64_t incarnation) const;
  // This start of `horo run`, which may take part, is about to register: its members are evicted if it does not.
  void expect_host(std::uint32_t host, std::uint64_t incarnation, TimePoint now);
  // Replaces an earlier registration of the host. Throws HostRefused.
  Registration register_host(const HostHello& hello, TimePoint now);
  // These throw NotRegistered, or HostEvicted.
  void report(std::uint64_t registration, const std::vector<HostEvent>& events, TimePoint now);
  void beat(std::uint64_t registration, TimePoint now);
  // The oldest order that the host has not taken; nothing: there is none.
  std::optional<HostOrder> take_order(std::uint64_t registration);
  std::uint32_t host_of(std::uint64_t registration) const;

  void pass_time(TimePoint now);
  // When pass_time() is due, or earlier; nothing: not before another call. If it comes much later, this process did not
  // run for a while: then all hosts and members have the whole time again to be heard.
  std::optional<TimePoint> next_deadline() const;

  std::uint64_t term() const { return record_.term; }
  std::uint64_t registrations() const { return registrations_; }  // so far, in this term
  // The hosts that are locked out of the present job, by number, with the reason.
  const std::map<std::uint32_t, std::string>& evicted() const { return record_.evicted; }
  // Of a host that takes part.
  std::uint64_t incarnation_of(std::uint32_t host) const { return record_.incarnations.at(host); }
  // Of the present job; nothing: there is none.
  std::optional<JobView> job() const;

 private:
  struct Host {
    std::uint64_t registration = 0;  // 0: none in this term
    TimePoint lease_end{};
    bool is_silent = false;  // its lease has ended, while others were heard
    OrderQueue orders;
    std::uint64_t told = 0;  // the last change of the job's state that it has taken; 0: none
  };
  struct Expected {
    std::uint64_t incarnation = 0;
    TimePoint since{};
  };
  using Actions = std::vector<MembershipAction>;

  void begin_clocks();
  void note_time(TimePoint now);
  void listen_from(TimePoint now);
  void hear(std::uint32_t host, TimePoint now, Actions& actions);
  bool is_abandoned() const;
  void check_registration(const HostHello& hello) const;
  static void check_hello(const HostHello& hello);
  void forget_refused(std::uint32_t host, TimePoint now);
  void end_silence(std::uint32_t host, TimePoint now);
  bool is_new_job(std::uint32_t host, std::uint64_t incarnation) const;
  void begin_job(const HostHello& hello);
  void take_past(const HostHello& hello, TimePoint now);
  void await_registration(std::uint32_t host);
  std::string silence_of(std::uint32_t host) const;
  void take(const MembershipEvent& event, TimePoint now, Actions& actions);
  void look_for_silent_hosts(TimePoint now, Actions& actions);
  void carry_out(const Actions& actions, std::optional<std::uint32_t> except = std::nullopt);
  void store_changes();
  StoryTold note_line(const std::string& text);
  void note_evicted_hosts();
  void update_view(TimePoint now);
  void send(std::uint32_t host, MemberId id, std::shared_ptr<const GuardMessage> message);
  void tell_all(const HostOrder& order);
  void order(std::uint32_t host, HostOrder order);
  void end_registration(Host& host);
  void wake();
  Host& registered(std::uint64_t registration);
  void check_evicted(std::uint32_t host) const;
  bool has_members_here(std::uint32_t host) const;
  std::vector<MemberId> members_of(std::uint32_t host) const;
  MembershipConfig membership_config() const;

  RecordStore& store_;
  const std::function<void(std::uint32_t)> on_orders_;
  const std::optional<std::uint32_t> home_;
  TimePoint ran_;                                       // the last time that this object was told
  TimePoint heard_;                                     // a host, or this object began to listen
  AwakeClock awake_{Duration()}, hearing_{Duration()};  // of this process, and of its network: when hosts are heard
  std::uint64_t revision_ = 0;
  JobRecord record_;
  bool is_record_changed_ = false;             // other than by membership_
  std::uint64_t stored_membership_ = 0;        // its changes()
  std::unique_ptr<JobMembership> membership_;  // null: no job has begun
  std::vector<std::uint32_t> host_of_;         // of the members, by id
  std::map<std::uint32_t, Host> hosts_;
  std::map<std::uint32_t, Expected> expected_;         // that have never registered
  std::map<std::uint64_t, std::uint32_t> registered_;  // host by registration
  TimePoint next_lease_end_ = TimePoint::max();        // no lease of a host with members ends before
  std::uint64_t registrations_ = 0;
  std::vector<StoryTold> story_;  // of this term, and what the record had of earlier ones
  std::uint64_t lines_ = 0;
  ViewSecrets secrets_;
  OrderSizes sizes_;
  ViewChanges view_;  // as hosts are told; made anew when that is due
  bool is_view_old_ = false;
  TimePoint next_view_{};  // it is not made anew before
  std::vector<std::uint32_t> to_wake_;
};

}  // namespace horo
