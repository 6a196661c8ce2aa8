// RendezvousCore: the rendezvous without its network. It gives JobMembership what the hosts tell, stores what must
// outlive this process before any host hears of it, and queues orders for the hosts. No thread, no clock; the store is
// its only I/O. docs/protocol.md has the protocol.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "elastic/host_messages.h"
#include "elastic/membership.h"
#include "elastic/service/job_record.h"
#include "elastic/service/record_log.h"
#include "horo/base/time.h"

namespace horo {

// The host cannot take part, for a reason that a person must remove.
struct HostRefused : std::runtime_error {
  using std::runtime_error::runtime_error;
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

// All functions throw StoreLost.
class RendezvousCore {
 public:
  // on_orders: the host has orders to take. Reads the record and begins the next term. `store` outlives this object.
  RendezvousCore(RecordStore& store, std::function<void(std::uint32_t host)> on_orders, TimePoint now);

  // Throws HostRefused unless this start of `horo run` may take part.
  void check_incarnation(std::uint32_t host, std::uint64_t incarnation) const;
  // Replaces an earlier registration of the host. Throws HostRefused.
  Registration register_host(const HostHello& hello, TimePoint now);
  // These throw NotRegistered.
  void report(std::uint64_t registration, const std::vector<HostEvent>& events, TimePoint now);
  void beat(std::uint64_t registration, TimePoint now);
  // The oldest order that the host has not taken; nothing: there is none.
  std::optional<HostOrder> take_order(std::uint64_t registration);
  std::uint32_t host_of(std::uint64_t registration) const;

  void pass_time(TimePoint now);
  // When pass_time() is due; nothing: not before another call. If it comes much later, this process did not run for
  // a while: then no host loses its members for having been silent.
  std::optional<TimePoint> next_deadline() const;

  std::uint64_t term() const { return record_.term; }
  std::uint64_t registrations() const { return registrations_; }  // so far, in this term
  // Of the present job; nothing: there is none.
  std::optional<JobView> job() const;

 private:
  struct Host {
    std::uint64_t registration = 0;  // 0: none in this term
    TimePoint lease_end{};
    bool is_silent = false;  // its members are evicted
    std::deque<HostOrder> orders;
  };

  void note_time(TimePoint now);
  static void check_hello(const HostHello& hello);
  bool is_new_job(std::uint32_t host, std::uint64_t incarnation) const;
  void begin_job(const HostHello& hello);
  void take_past(const HostHello& hello, TimePoint now);
  void carry_out(std::vector<MembershipAction> actions, std::optional<std::uint32_t> except = std::nullopt);
  void store_changes();
  void tell_view();
  void tell_all(const HostOrder& order);
  void order(std::uint32_t host, HostOrder order);
  void wake();
  Host& registered(std::uint64_t registration);
  bool has_members_here(std::uint32_t host) const;
  MembershipConfig membership_config() const;

  RecordStore& store_;
  const std::function<void(std::uint32_t)> on_orders_;
  TimePoint ran_;  // the last time that this object was told
  std::uint64_t revision_ = 0;
  std::vector<std::byte> stored_;
  JobRecord record_;
  std::unique_ptr<JobMembership> membership_;  // null: no job has begun
  std::map<std::uint32_t, Host> hosts_;
  std::uint64_t registrations_ = 0;
  std::vector<StoryTold> story_;  // of this term
  std::uint64_t lines_ = 0;
  std::uint32_t secret_epoch_ = 0;
  JobKey secret_{};  // of the epoch secret_epoch_, if that is not 0; never stored
  std::vector<std::byte> told_view_;
  std::vector<std::uint32_t> to_wake_;
};

}  // namespace horo
