// Drives a RendezvousCore by hand: hosts of a job, an in-memory store, and time.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "elastic/service/rendezvous_core.h"
#include "tests/elastic/service/memory_store.h"

namespace horo {

class CoreDriver {
 public:
  explicit CoreDriver(std::vector<std::uint32_t> ranks_by_host = {1, 1}, std::uint32_t min_members = 1) {
    spec.ranks_by_host = std::move(ranks_by_host);
    spec.min_members = min_members;
    start();
  }

  void start() {
    core.reset();
    woken.clear();
    core = std::make_unique<RendezvousCore>(
        store, [this](std::uint32_t host) { woken.push_back(host); }, now, home);
  }
  HostHello hello(std::uint32_t host, std::uint64_t incarnation = 0) const {
    HostHello hello{spec, host, incarnation == 0 ? 100U + host : incarnation, {}};
    const MemberId first = spec.first_member(host);
    for (MemberId id = first; id < first + spec.ranks_by_host[host]; ++id) hello.past.members.push_back({id, 0, {}});
    return hello;
  }
  Registration join(const HostHello& hello) {
    const Registration registration = core->register_host(hello, now);
    numbers[hello.host] = registration.number;
    return registration;
  }
  Registration join(std::uint32_t host) { return join(hello(host)); }
  void report(std::uint32_t host, const HostEvent& event) { core->report(numbers[host], {event}, now); }
  void froze(MemberId id, std::uint32_t epoch) {
    report(static_cast<std::uint32_t>(spec.host_of(id)), MemberSent{id, frozen(id, epoch)});
  }
  void installed(MemberId id, std::uint32_t epoch) {
    report(static_cast<std::uint32_t>(spec.host_of(id)), MemberSent{id, Installed{epoch}});
  }
  void left(MemberId id) { report(static_cast<std::uint32_t>(spec.host_of(id)), MemberSent{id, Leave{}}); }
  void died(MemberId id) {
    report(static_cast<std::uint32_t>(spec.host_of(id)), MemberEnded{id, false, "signal 9 (SIGKILL)"});
  }
  static Frozen frozen(MemberId id, std::uint32_t epoch) {
    return Frozen{epoch, {{0, 10 + id}}, std::nullopt, "rank " + std::to_string(id) + " saw it"};
  }
  // Time passes as the server lets it; these hosts beat.
  void pass(std::chrono::milliseconds time, const std::vector<std::uint32_t>& beating = {}) {
    const TimePoint end = now + time;
    while (now < end) {
      now = std::min(end, now + std::chrono::milliseconds(500));
      for (const std::uint32_t host : beating) core->beat(numbers[host], now);
      core->pass_time(now);
    }
  }
  std::vector<MemberView> members() const { return core->job().value().members; }
  // Takes all orders of the host.
  std::vector<HostOrder> orders(std::uint32_t host) {
    std::vector<HostOrder> taken;
    while (auto order = core->take_order(numbers[host])) taken.push_back(std::move(*order));
    return taken;
  }
  template <class Message>
  std::vector<std::pair<MemberId, Message>> sent(std::uint32_t host) {
    return sent_in<Message>(orders(host));
  }
  template <class Message>
  static std::vector<std::pair<MemberId, Message>> sent_in(const std::vector<HostOrder>& orders) {
    std::vector<std::pair<MemberId, Message>> found;
    for (const HostOrder& order : orders) {
      const auto* send = std::get_if<SendToMembers>(&order);
      const auto* message = send != nullptr ? std::get_if<Message>(send->message.get()) : nullptr;
      if (message == nullptr) continue;
      for (const MemberId id : send->ids) found.emplace_back(id, *message);
    }
    return found;
  }
  template <class Order>
  static std::vector<Order> all_of(const std::vector<HostOrder>& orders) {
    std::vector<Order> found;
    for (const HostOrder& order : orders) {
      if (const auto* one = std::get_if<Order>(&order)) found.push_back(*one);
    }
    return found;
  }

  JobSpec spec;
  std::optional<std::uint32_t> home;
  MemoryStore store;
  TimePoint now = TimePoint{} + std::chrono::hours(1);
  std::vector<std::uint32_t> woken;
  std::map<std::uint32_t, std::uint64_t> numbers;
  std::unique_ptr<RendezvousCore> core;
};

}  // namespace horo
