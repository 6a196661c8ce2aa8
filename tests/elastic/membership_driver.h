// Drives a JobMembership by hand: keeps what each member was sent, and the story.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "elastic/membership.h"

namespace horo {

class MembershipDriver {
 public:
  MembershipDriver(int members, int min_members, std::vector<std::uint32_t> hosts = {})
      : membership(config_of(members, min_members, std::move(hosts))) {}
  explicit MembershipDriver(const MembershipConfig& config) : membership(config) {}

  void died(MemberId id) { take(MemberEnded{id, false, "signal 9 (SIGKILL)"}); }
  void started(MemberId id) { take(MemberStarted{id}); }
  void ended(MemberId id) { take(MemberEnded{id, true, "exit code 0"}); }
  void stopped(MemberId id) { take(MemberStopped{id}); }
  void drained(MemberId id) { take(MemberDrained{id}); }
  void unheard(const std::vector<MemberId>& ids) { take(MembersUnheard{ids, "did not answer for 10 s"}); }
  void heard(const std::vector<MemberId>& ids) { take(MembersHeard{ids}); }
  void continued(MemberId id) { take(MemberContinued{id}); }
  void none_is_started() { take(NoneIsStarted{}); }
  void sent(MemberId id, MemberMessage message) { take(MemberSent{id, std::move(message)}); }
  void froze(MemberId id, std::uint32_t epoch, std::optional<MemberId> lost = std::nullopt) {
    Frozen frozen{epoch, {{0, 10 + id}}, lost, "rank " + std::to_string(id) + " saw it"};
    frozen.card = card_of(id, epoch);
    sent(id, std::move(frozen));
  }
  static Card card_of(MemberId id, std::uint32_t epoch) { return {std::byte(id), std::byte(epoch)}; }
  void installed(const std::vector<MemberId>& ids, std::uint32_t epoch) {
    for (const MemberId id : ids) sent(id, Installed{epoch});
  }
  void after(std::chrono::milliseconds time) {
    now += time;
    take(TimePassed{});
  }

  template <class Message>
  std::vector<Message> got(MemberId id) const {
    std::vector<Message> found;
    const auto at = inbox.find(id);
    if (at == inbox.end()) return found;
    for (const GuardMessage& message : at->second) {
      if (const auto* one = std::get_if<Message>(&message)) found.push_back(*one);
    }
    return found;
  }

  JobMembership membership;
  TimePoint now{};
  std::map<MemberId, std::vector<GuardMessage>> inbox;
  std::vector<std::string> story;
  std::vector<std::string> end;

 private:
  static MembershipConfig config_of(int members, int min_members, std::vector<std::uint32_t> hosts) {
    MembershipConfig config;
    config.members = members;
    config.min_members = min_members;
    config.hosts = std::move(hosts);
    return config;
  }

  void take(const MembershipEvent& event) {
    for (MembershipAction& action : membership.on(event, now)) {
      if (auto* send = std::get_if<SendToMember>(&action)) inbox[send->id].push_back(*send->message);
      if (auto* say = std::get_if<Say>(&action)) story.push_back(say->text);
      if (auto* over = std::get_if<EndJob>(&action)) end.push_back(over->text);
    }
  }
};

}  // namespace horo
