// The rendezvous of the job decides. The agent of this host passes on what happens here, and brings the orders. This
// object keeps all that a new agent or rendezvous must know of this host's members, and passes no order on twice.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <sstream>
#include <system_error>
#include <utility>

#include "elastic/texts.h"
#include "horo/base/auth.h"
#include "horo/base/error.h"
#include "tools/horo/run/decision.h"
#include "tools/horo/run/packet_socket.h"
#include "tools/horo/run/service_process.h"

namespace horo::tools {
namespace {

constexpr double kWaitTextSeconds = 3;      // so long the ranks of other hosts may end later without a word
constexpr double kLastWordSeconds = 3;      // at the end: for the rendezvous to say how the job ended
constexpr std::size_t kMostQueued = 8'192;  // messages for an agent that does not read
constexpr std::chrono::milliseconds kLastReport{1'000};
constexpr std::chrono::milliseconds kLastOrders{1'000};
constexpr const char* kSelf = "/proc/self/exe";

std::uint64_t random_number() {
  std::uint64_t number = 0;
  for (const std::byte one : make_nonce()) number = number << 8 | static_cast<std::uint64_t>(one);
  return number | 1;
}

std::vector<std::string> plain_environment(int key_fd) {
  std::vector<std::string> environment{"HORO_KEY_FD=" + std::to_string(key_fd)};
  for (const char* name : {"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "HORO_LOG_LEVEL", "ASAN_OPTIONS"}) {
    if (const char* value = ::getenv(name)) environment.push_back(std::string(name) + "=" + value);
  }
  return environment;
}

// What is still true of a member of this host.
struct Known {
  std::uint32_t viewed = 0;            // the epoch of the last View that it was given
  std::optional<std::uint32_t> asked;  // the epoch of the last Freeze that it was given
  std::optional<Installed> installed;
  std::optional<Frozen> frozen;
  std::optional<Leave> left;
  bool is_stopped = false, is_drained = false;
  std::optional<MemberEnded> ended;

  void note(const MemberEnded& event) { ended = event; }
  void note(const MemberStopped&) { is_stopped = true; }
  void note(const MemberContinued&) { is_stopped = false; }
  void note(const MemberDrained&) { is_drained = true; }
  void note(const MemberSent& event) {
    if (const auto* message = std::get_if<Installed>(&event.message)) {
      installed = *message;
      frozen.reset();
    }
    if (const auto* message = std::get_if<Frozen>(&event.message)) frozen = *message;
    if (const auto* message = std::get_if<Leave>(&event.message)) left = *message;
  }

  MemberPast past(MemberId id) const {
    MemberPast past{id, viewed, {}};
    if (installed) past.events.emplace_back(MemberSent{id, *installed});
    if (frozen) past.events.emplace_back(MemberSent{id, *frozen});
    if (left) past.events.emplace_back(MemberSent{id, *left});
    if (is_stopped) past.events.emplace_back(MemberStopped{id});
    if (is_drained) past.events.emplace_back(MemberDrained{id});
    if (ended) past.events.emplace_back(*ended);
    return past;
  }
};

// Files in memory for a rendezvous that lives as long as the job: they hold the key of the job's authority, which no
// process leaves behind however it ends.
class MemoryFiles {
 public:
  MemoryFiles() {
    for (Descriptor& file : files_) {
      file = Descriptor(::memfd_create("horo-rendezvous", MFD_CLOEXEC));
      for (const char* folder : {"/dev/shm", "/tmp"}) {  // a sandbox may refuse memory files
        if (!file.is_open()) file = Descriptor(::open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
      }
      if (!file.is_open()) throw std::system_error(errno, std::generic_category(), "memfd_create, and a file in /tmp");
    }
  }
  std::vector<int> fds() const { return {files_[0].get(), files_[1].get(), files_[2].get()}; }
  std::string text() const {
    return std::to_string(files_[0].get()) + "," + std::to_string(files_[1].get()) + "," +
           std::to_string(files_[2].get());
  }

 private:
  std::array<Descriptor, 3> files_;
};

class RemoteDecision final : public Decision {
 public:
  RemoteDecision(struct ev_loop* loop, const Launch& launch, const ServiceOptions& services, Later later)
      : loop_(loop),
        launch_(launch),
        services_(services),
        later_(std::move(later)),
        spec_(spec_of(launch)),
        incarnation_(random_number()),
        job_(first_job_view(spec_.members())),
        last_word_(loop,
                   [this] {
                     is_given_up_ = true;
                     if (needs_end_) say("no contact with the rendezvous: the end of the job is not known here");
                     flush();
                   }),
        park_(loop,
              [this] {
                end_job("no contact with the rendezvous at " + launch_.rendezvous + " within " +
                        duration_text(spec_.park_timeout) +
                        " (--park-timeout), for which ranks of this host wait: start the job again");
                flush();
              }),
        unheard_(loop,
                 [this] {
                   say("no host that has ranks left is heard any more: this one serves them no longer");
                   is_given_up_ = true;
                   flush();
                 }),
        waiting_(loop, [this] {
          say(rendezvous_ ? "the ranks of this host have ended; it serves the others"
                          : "the ranks of this host have ended; those of the other hosts decide the exit code");
          flush();
        }) {
    const double patience_s = std::chrono::duration<double>(agent_patience(spec_)).count();
    const MemberId first = spec_.first_member(launch.host);
    for (MemberId id = first; id < first + static_cast<MemberId>(launch.ranks()); ++id) known_[id];
    const auto tell = [this](const std::string& text) {
      say(text);
      flush();
    };
    if (launch.embeds_rendezvous) {
      memory_ = std::make_unique<MemoryFiles>();
      rendezvous_ = std::make_unique<ServiceProcess>(
          loop, ServiceProcess::Service{
                    "rendezvous", [this] { return rendezvous(); }, {}, tell, services.output, patience_s});
    }
    agent_ = std::make_unique<ServiceProcess>(
        loop, ServiceProcess::Service{"agent", [this] { return agent(); }, [this] { end_.close(); }, tell,
                                      services.output, patience_s, true});
  }

  // The agent ends when its socket is closed, after it has reported what it was told: so the job is over for the
  // rendezvous, too, if it was interrupted here.
  ~RemoteDecision() override {
    is_called_ = true;  // no owner takes what is said now
    socket_.reset();
    end_.close();
    if (has_contact_ && agent_) agent_->await_end(kLastReport);
    if (rendezvous_) rendezvous_->end_within(kLastOrders);  // the other hosts take the end of the job
  }

  DecisionActions take(const HostEvent& event) override {
    is_called_ = true;
    std::visit([this](const auto& one) { known_.at(one.id).note(one); }, event);
    if (socket_ && is_past_told_) socket_->send(encode(GuardSays(event)));
    update_park();
    is_called_ = false;
    return std::exchange(actions_, {});
  }

  const JobView& job() const override { return job_; }

  bool may_end(bool needs_end) override {
    const bool all_out = std::all_of(job_.members.begin(), job_.members.end(), [](const auto& m) { return m.is_out; });
    const bool waits_for_all = serves_ && (rendezvous_ || needs_end);
    const bool are_own_out = std::all_of(known_.begin(), known_.end(), [this](const auto& one) { return is_out(one); });
    if ((are_own_out && (all_out || !waits_for_all)) || is_given_up_) return true;
    const bool are_others_unheard = std::all_of(job_.members.begin(), job_.members.end(),
                                                [](const auto& m) { return m.is_out || m.state.word == "silent"; });
    if (!are_others_unheard || !waits_for_all) unheard_.stop();
    if (waits_for_all && has_contact_) {
      if (are_others_unheard && !unheard_.is_set())
        unheard_.set(std::chrono::duration<double>(spec_.park_timeout).count());
      if (!std::exchange(is_waiting_, true)) waiting_.set(kWaitTextSeconds);
    } else if (needs_end_ = needs_end && serves_; !last_word_.is_set()) {
      last_word_.set(needs_end_ ? std::chrono::duration<double>(spec_.park_timeout).count() : kLastWordSeconds);
    }
    return false;
  }

  void serve_no_longer() override { serves_ = false; }

 private:
  void say(const std::string& text) { actions_.emplace_back(Say{text}); }
  void end_job(const std::string& text) { actions_.emplace_back(EndJob{text}); }

  void flush() {
    if (!is_called_) later_(std::exchange(actions_, {}));
  }

  Program rendezvous() const {
    std::vector<int> inherited = memory_->fds();
    inherited.push_back(services_.key_fd);
    return {{kSelf, "rendezvous", "--addr", launch_.rendezvous, "--memory", memory_->text(), "--home",
             std::to_string(launch_.host)},
            plain_environment(services_.key_fd),
            std::move(inherited),
            {},
            {}};
  }

  Program agent() {
    PacketSocketPair pair = make_packet_socket_pair();
    is_past_told_ = false;
    socket_ = std::make_unique<PacketSocket>(
        loop_, std::move(pair.guards),
        [this](std::span<const std::byte> bytes) {
          std::visit([this](auto&& one) { handle(one); }, decode_agent_says(bytes));
          flush();
        },
        [this](const std::string& why) {
          say("the agent of this host has failed: " + printable(why));
          flush();
        },
        PacketSocket::Limits{kMostQueued, kMaxHostMessage});
    socket_->send(encode(spec_));
    end_ = std::move(pair.others);
    std::ostringstream incarnation;
    incarnation << incarnation_;
    return {{kSelf, "agent", "--guard-fd", std::to_string(end_.get()), "--rendezvous", launch_.rendezvous, "--host",
             std::to_string(launch_.host), "--incarnation", incarnation.str()},
            plain_environment(services_.key_fd),
            {services_.key_fd, end_.get()},
            {},
            {}};
  }

  // What is known here of the member's end is in the state of the job.
  bool is_out(const std::pair<const MemberId, Known>& one) const {
    const MemberView& member = job_.members[one.first];
    const bool has_failed = one.second.left && one.second.left->failed;
    return member.is_out && !(has_failed && member.state.word == "left");
  }

  // With contact the rendezvous parks the ranks.
  void update_park() {
    const bool is_parked = std::any_of(known_.begin(), known_.end(), [](const auto& one) {
      const auto& [id, known] = one;
      return known.frozen && known.viewed <= known.frozen->epoch && !known.left && !known.ended;
    });
    if (has_contact_ || is_locked_out_ || !is_parked) return park_.stop();
    if (park_.is_set()) return;
    say("ranks of this host are parked: they wait for the rendezvous for up to " + duration_text(spec_.park_timeout));
    park_.set(std::chrono::duration<double>(spec_.park_timeout).count());
  }

  void handle(const TellPast&) {
    HostPast past;
    for (const auto& [id, known] : known_) past.members.push_back(known.past(id));
    past.told = told_;
    is_past_told_ = true;
    for (std::vector<std::byte>& part : encode_parts(past)) socket_->send(std::move(part));
  }

  void handle(const Alive&) { agent_->answered(); }

  void handle(const Contact& contact) {
    if (is_locked_out_) return;
    if (contact.is_there && was_away_) say("contact with the rendezvous again");
    if (contact.is_there && !was_away_ && launch_.verbose) say("contact with the rendezvous");
    const bool is_needed = std::any_of(known_.begin(), known_.end(),
                                       [](const auto& one) { return !one.second.ended && !one.second.left; });
    if (!contact.is_there && is_needed) {
      was_away_ = true;
      say("no contact with the rendezvous at " + launch_.rendezvous + " (" + printable(contact.text) +
          "): the ranks go on, and are parked when one is lost");
    }
    has_contact_ = contact.is_there;
    if (has_contact_) last_word_.stop();
    update_park();
  }

  // What is known here of members that are out is true. An agent that is started again is told the same.
  void handle(const LockedOut& message) {
    if (std::exchange(is_locked_out_, true)) return;
    for (const auto& [id, known] : known_) {
      if (known.left || known.ended) continue;
      actions_.emplace_back(SendToMember{id, std::make_shared<const GuardMessage>(Evicted{message.reason})});
      MemberView& member = job_.members[id];
      if (!member.is_out) member = {{"evicted", message.reason}, true, true, false};
    }
    update_park();
    actions_.emplace_back(FailHost{printable(message.reason)});
  }

  void handle(const HostOrder& order) {
    std::visit([this](const auto& one) { carry_out(one); }, order);
  }

  void carry_out(const SendToMembers& order) {
    for (const MemberId id : order.ids) pass_on(id, order.message);
  }

  void pass_on(MemberId id, const std::shared_ptr<const GuardMessage>& message) {
    const auto found = known_.find(id);
    if (found == known_.end()) throw ProtocolError("an order for a member of another host");
    Known& known = found->second;
    if (const auto* view = std::get_if<View>(message.get())) {
      if (view->epoch <= known.viewed) return;
      known.viewed = view->epoch;
    }
    if (const auto* freeze = std::get_if<Freeze>(message.get())) {
      if (known.asked && freeze->epoch <= *known.asked) return;
      known.asked = freeze->epoch;
    }
    actions_.emplace_back(SendToMember{id, message});
  }

  void carry_out(const StoryTold& line) {
    if (line.number <= told_) return;
    told_ = line.number;
    say(line.text);
  }

  void carry_out(const EndJob& order) { end_job(order.text); }

  void carry_out(const JobChanged& order) { apply(*order.change, job_); }

  struct ev_loop* const loop_;
  const Launch& launch_;
  const ServiceOptions services_;
  const Later later_;
  const JobSpec spec_;
  const std::uint64_t incarnation_;
  JobView job_;
  DecisionActions actions_;          // since the last ones were handed over
  bool is_called_ = false;           // take() hands them over
  std::map<MemberId, Known> known_;  // members of this host
  std::uint64_t told_ = 0;           // the last line of the story
  bool has_contact_ = false, was_away_ = false;
  bool is_past_told_ = false;  // to the present agent
  bool is_locked_out_ = false;
  bool is_given_up_ = false, is_waiting_ = false;
  bool needs_end_ = false;  // the end of the job is waited for, without contact
  bool serves_ = true;      // the other hosts, if it has the rendezvous
  PatientTimer last_word_, park_, unheard_;
  Timer waiting_;
  std::unique_ptr<MemoryFiles> memory_;
  std::unique_ptr<PacketSocket> socket_;  // to the present agent
  Descriptor end_;                        // its end, until it has started
  std::unique_ptr<ServiceProcess> rendezvous_, agent_;
};

}  // namespace

std::unique_ptr<Decision> make_remote_decision(struct ev_loop* loop, const Launch& launch,
                                               const ServiceOptions& services, Decision::Later later) {
  return std::make_unique<RemoteDecision>(loop, launch, services, std::move(later));
}

}  // namespace horo::tools
