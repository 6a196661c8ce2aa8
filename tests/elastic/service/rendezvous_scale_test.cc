// A rendezvous with many hosts: the real service and its record, simulated agents, channels inside of this process.
// HORO_SCALE_HOSTS=1000 makes it the largest job that the service admits; it prints what that takes, and wants a quiet
// machine.
#include "elastic/service/rendezvous_service.h"

// After rpc.h, whose headers come first.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "elastic/service/rendezvous_client.h"
#include "tests/elastic/service/record_folder.h"

namespace horo {
namespace {

using namespace std::chrono_literals;
namespace rpc = rendezvous::v1;

constexpr std::uint32_t kRanks = 8;  // of a host
constexpr std::uint32_t kLanes = 20;
constexpr std::size_t kCardBytes = 150;
constexpr int kDeaths = 3;
constexpr std::size_t kWhole = 64;      // hosts: with more, only host 0 reads long messages
constexpr std::size_t kLong = 1 << 10;  // bytes
constexpr std::chrono::seconds kLimit{60};

const char* given_hosts() {
  return std::getenv("HORO_SCALE_HOSTS");
}
std::uint32_t number_of_hosts() {
  return given_hosts() != nullptr ? static_cast<std::uint32_t>(std::atoi(given_hosts())) : 50;
}

std::string as_text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

double seconds_since(TimePoint begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double resident_mib() {
  std::ifstream in("/proc/self/statm");
  double all = 0, resident = 0;
  in >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// What the simulated hosts have done so far.
class Tally {
 public:
  void add(std::uint64_t bytes = 0) {
    MutexLock lock(mutex_);
    ++count_;
    bytes_ += bytes;
    changed_.notify_all();
  }
  bool await(std::uint64_t count) {
    MutexLock lock(mutex_);
    const TimePoint until = Clock::now() + kLimit;
    while (count_ < count && Clock::now() < until) changed_.wait_until(mutex_, until);
    return count_ >= count;
  }
  std::uint64_t count() {
    MutexLock lock(mutex_);
    return count_;
  }
  std::uint64_t bytes() {
    MutexLock lock(mutex_);
    return bytes_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::uint64_t count_ GUARDED_BY(mutex_) = 0, bytes_ GUARDED_BY(mutex_) = 0;
};

struct Tallies {
  Tally registered, running, asked, viewed, messages, failures;
};

// An agent and its guard: answers a Freeze at once with what was made before.
class SimulatedHost final : public grpc::ClientReadReactor<rpc::Orders> {
 public:
  SimulatedHost(std::shared_ptr<grpc::Channel> channel, std::uint32_t host, const JobSpec& spec, Tallies& tallies)
      : channel_(std::move(channel)),
        stub_(rpc::Rendezvous::NewStub(channel_)),
        name_(host_name_of(host, 1'000 + host)),
        tallies_(tallies),
        members_(spec.members()),
        reads_all_(spec.ranks_by_host.size() <= kWhole || host == 0),
        job_(first_job_view(reads_all_ ? members_ : 0)) {
    register_.set_host(host);
    register_.set_incarnation(1'000 + host);
    register_.set_spec(as_text(encode(spec)));
    HostPast past;
    for (MemberId id = host * kRanks; id < (host + 1) * kRanks; ++id) {
      past.members.push_back({id, 0, {}});
      ids_.push_back(id);
    }
    register_.set_past(as_text(encode(GuardSays(past))));
  }

  void join() {
    name_call(joining_.context);
    stub_->async()->Register(&joining_.context, &joining_.reply, &joining_);
    joining_.StartWriteLast(&register_, {});
    joining_.StartCall();
  }
  void run(std::uint32_t epoch) {
    rpc::ReportRequest request;
    for (const MemberId id : ids_) add(request, MemberSent{id, Installed{epoch}});
    report(request, tallies_.running);
  }
  void kill_first() {
    rpc::ReportRequest request;
    add(request, MemberEnded{ids_.front(), false, "signal 9 (SIGKILL)"});
    ids_.erase(ids_.begin());
    report(request, ended_);
  }
  void prepare(std::uint32_t epoch) {
    frozen_ = {};
    std::mt19937 random(epoch * 10'000 + ids_.front());
    for (const MemberId id : ids_) {
      Frozen frozen{epoch, {}, std::nullopt, "rank 8 ended: its connection is closed"};
      for (std::uint32_t lane = 0; lane < kLanes; ++lane) frozen.progress[lane] = 100'000 * epoch + random() % 3;
      frozen.applied = 1'000;
      frozen.card.resize(kCardBytes);
      for (std::byte& byte : frozen.card) byte = static_cast<std::byte>(random());
      add(frozen_, MemberSent{id, std::move(frozen)});
    }
  }
  void leave() { watching_.TryCancel(); }
  bool has_ended() { return done_.await(1); }

  void OnReadDone(bool is_read) override {
    if (!is_read) return;
    tallies_.messages.add(orders_.ByteSizeLong());
    for (const std::string& order : orders_.orders()) take(order);
    StartRead(&orders_);
  }
  void OnDone(const grpc::Status&) override { done_.add(); }

 private:
  struct Joining final : grpc::ClientWriteReactor<rpc::RegisterRequest> {
    explicit Joining(SimulatedHost& joins) : host(joins) {}
    void OnDone(const grpc::Status& status) override { host.on_joined(status); }
    SimulatedHost& host;
    grpc::ClientContext context;
    rpc::RegisterReply reply;
  };
  void on_joined(const grpc::Status& status) {
    if (!status.ok()) return tallies_.failures.add();
    registration_ = joining_.reply.registration();
    watch_.set_registration(registration_);
    name_call(watching_);
    stub_->async()->Watch(&watching_, &watch_, this);
    StartRead(&orders_);
    StartCall();
    tallies_.registered.add();
  }
  void name_call(grpc::ClientContext& context) const { context.AddMetadata("name", name_); }
  void add(rpc::ReportRequest& request, const HostEvent& event) const {
    request.add_events(as_text(encode(GuardSays(event))));
  }
  void report(rpc::ReportRequest& request, Tally& tally) {
    request.set_registration(registration_);
    call(&Calls::Report, request, [&tally](const rpc::ReportReply&) { tally.add(); });
  }
  using Calls = rpc::Rendezvous::StubInterface::async_interface;
  template <class Request, class Reply, class Done>
  void call(void (Calls::*method)(grpc::ClientContext*, const Request*, Reply*, std::function<void(grpc::Status)>),
            const Request& request, const Done& done) {
    struct Call {
      grpc::ClientContext context;
      Reply reply;
    };
    const auto made = std::make_shared<Call>();
    name_call(made->context);
    Calls& calls = *stub_->async();
    (calls.*method)(&made->context, &request, &made->reply, [this, made, done](const grpc::Status& status) {
      if (!status.ok()) tallies_.failures.add();
      if (status.ok()) done(made->reply);
    });
  }
  void take(const std::string& order) {
    if (!reads_all_ && order.size() > kLong) {
      if (order.size() > members_ * kCardBytes) viewed(order.size());
      return;
    }
    const AgentSays says = decode_agent_says(std::as_bytes(std::span(order)));
    const auto* changed = std::get_if<JobChanged>(&std::get<HostOrder>(says));
    if (changed != nullptr && reads_all_) apply(*changed->change, job_);
    const auto* sent = std::get_if<SendToMembers>(&std::get<HostOrder>(says));
    if (sent == nullptr) return;
    if (std::holds_alternative<View>(*sent->message)) {
      EXPECT_EQ(sent->ids, ids_);
      viewed(order.size());
    }
    if (std::holds_alternative<Freeze>(*sent->message)) report(frozen_, tallies_.asked);
  }
  void viewed(std::size_t bytes) { tallies_.viewed.add(bytes); }

  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<rpc::Rendezvous::Stub> stub_;
  const std::string name_;
  Tallies& tallies_;
  const std::size_t members_;
  const bool reads_all_;  // else a long message is told by its length
  JobView job_;
  std::vector<MemberId> ids_;
  grpc::ClientContext watching_;
  rpc::RegisterRequest register_;
  Joining joining_{*this};
  std::uint64_t registration_ = 0;
  rpc::WatchRequest watch_;
  rpc::ReportRequest frozen_;
  rpc::Orders orders_;
  Tally ended_, done_;
};

std::optional<std::string> name_in(const grpc::CallbackServerContext& context) {
  const auto name = context.client_metadata().find("name");
  if (name == context.client_metadata().end()) return std::nullopt;
  return std::string(name->second.data(), name->second.size());
}

class RendezvousScale : public RecordFolder {
 protected:
  RendezvousScale() {
    spec_.ranks_by_host.assign(hosts(), kRanks);
    spec_.silence_limit = 120s;
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(-1);
    builder.SetMaxSendMessageSize(-1);
    server_ = builder.BuildAndStart();
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    for (std::uint32_t host = 0; host < hosts(); ++host) {
      hosts_.push_back(std::make_unique<SimulatedHost>(server_->InProcessChannel(arguments), host, spec_, tallies_));
    }
  }
  ~RendezvousScale() override {
    for (const auto& host : hosts_) host->leave();
    for (const auto& host : hosts_) EXPECT_TRUE(host->has_ended());
    server_->Shutdown();
  }
  static std::uint32_t hosts() {
    static const std::uint32_t number = number_of_hosts();
    return number;
  }

  // Until the last host has the View of the next epoch, in seconds.
  double lose_rank(std::uint32_t epoch) {
    for (const auto& host : hosts_) host->prepare(epoch);
    const std::uint64_t expected = tallies_.viewed.count() + hosts();
    const TimePoint begin = Clock::now();
    hosts_[1 + epoch]->kill_first();
    EXPECT_TRUE(tallies_.viewed.await(expected));
    return seconds_since(begin);
  }
  void run_all(std::uint32_t epoch) {
    const std::uint64_t expected = tallies_.running.count() + hosts();
    for (const auto& host : hosts_) host->run(epoch);
    EXPECT_TRUE(tallies_.running.await(expected));
  }

  JobSpec spec_;
  Tallies tallies_;
  const std::unique_ptr<RecordStore> store_ = open_record_log(folder_);
  const JobAuthority authority_ = JobAuthority::make(make_job_key(), "scale");
  RendezvousService service_{*store_, authority_, {name_in, [] { ADD_FAILURE() << "the service has failed"; }}};
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::unique_ptr<SimulatedHost>> hosts_;
};

TEST_F(RendezvousScale, RegistersAllHostsAndPublishesAView) {
  const double memory = resident_mib();
  double processor = processor_seconds();
  const auto tell = [&](const char* what, double seconds) {
    std::printf("%s: %.3f s, %.3f s of processors, %.0f MiB more than at the start, %llu messages to hosts so far\n",
                what, seconds, processor_seconds() - processor, resident_mib() - memory,
                static_cast<unsigned long long>(tallies_.messages.count()));
    processor = processor_seconds();
  };
  TimePoint begin = Clock::now();
  for (const auto& host : hosts_) host->join();
  ASSERT_TRUE(tallies_.registered.await(hosts()));
  const double registering = seconds_since(begin);
  tell("all hosts are registered", registering);
  EXPECT_LE(registering, 10);
  begin = Clock::now();
  run_all(0);
  tell("all ranks run", seconds_since(begin));
  for (std::uint32_t epoch = 0; epoch < kDeaths; ++epoch) {
    const std::uint64_t bytes = tallies_.viewed.bytes(), all_bytes = tallies_.messages.bytes();
    const double publishing = lose_rank(epoch);
    tell("from a death to the last host's View", publishing);
    std::printf("  a View has %.0f KiB; %.1f MiB to all hosts\n",
                static_cast<double>(tallies_.viewed.bytes() - bytes) / hosts() / 1'024,
                static_cast<double>(tallies_.messages.bytes() - all_bytes) / (1 << 20));
    EXPECT_LE(publishing, given_hosts() != nullptr ? 1 : 10);
    begin = Clock::now();
    run_all(epoch + 1);
    tell("all ranks run again", seconds_since(begin));
  }
  EXPECT_EQ(tallies_.failures.count(), 0U);
}

}  // namespace
}  // namespace horo
