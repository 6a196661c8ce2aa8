#include "tests/ring/run_ranks.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <numeric>
#include <thread>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/base/mutex.h"
#include "ring/os/socket.h"
#include "tests/ring/mpi/fake_mpi.h"

namespace horo::test {
namespace {

constexpr std::chrono::seconds kWatchdog{60};

using State = std::atomic<const char*>;

// Ends the process if it exists for longer than kWatchdog.
class Watchdog {
 public:
  explicit Watchdog(const std::vector<std::shared_ptr<State>>& states)
      : states_(states), thread_([this] { watch(); }) {}
  ~Watchdog() {
    MutexLock lock(mutex_);
    is_ended_ = true;
    changed_.notify_all();
  }

 private:
  void watch() {
    const TimePoint until = Clock::now() + kWatchdog;
    MutexLock lock(mutex_);
    while (!is_ended_ && Clock::now() < until) changed_.wait_until(mutex_, until);
    if (is_ended_) return;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      std::fprintf(stderr, "watchdog: rank %zu hangs in: %s\n", i, states_[i]->load());
    }
    std::abort();
  }

  const std::vector<std::shared_ptr<State>> states_;
  Mutex mutex_;
  CondVar changed_;
  bool is_ended_ GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

std::vector<std::exception_ptr> run_watched(const std::vector<std::function<void()>>& functions,
                                            const std::vector<std::shared_ptr<State>>& states) {
  const Watchdog watchdog(states);
  std::vector<std::exception_ptr> errors(functions.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < functions.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          functions[i]();
        } catch (...) {
          errors[i] = std::current_exception();
        }
        states[i]->store("ended");
      });
    }
  }
  return errors;
}

std::vector<std::shared_ptr<State>> make_states(std::size_t count) {
  std::vector<std::shared_ptr<State>> states;
  for (std::size_t i = 0; i < count; ++i) states.push_back(std::make_shared<State>("running"));
  return states;
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void run_one(Rank& rank, const RankFunction& function) {
  try {
    function(rank);
  } catch (const PeerLost& lost) {
    rank.transport().abort(lost.origin(), lost.what());
    throw;
  } catch (const std::exception& error) {
    rank.transport().abort(rank.index(), error.what());
    throw;
  }
}

}  // namespace

Rank::Rank(Links links_in, const Config& config_in, std::shared_ptr<State> state)
    : config(config_in),
      links(std::move(links_in)),
      group(make_transport_group(links, {all_ranks(config.size), 0}, config, counters)),
      state_(std::move(state)) {}

const char* name_of(Wire wire) {
  constexpr std::array names = {"in_process", "tcp", "checked_tcp", "wide_tcp", "shm", "mpi"};
  return names.at(static_cast<std::size_t>(wire));
}

std::vector<std::exception_ptr> run_ranks(const WorldOptions& options, const RankFunction& function) {
  const auto states = make_states(static_cast<std::size_t>(options.size));
  auto in_process = options.wire == Wire::kInProcess ? connect_in_process(options.size) : std::vector<Links>();
  const std::string addr = free_address();
  const auto mpi = make_fake_mpi({.size = options.size});
  std::vector<std::function<void()>> functions;
  for (int index = 0; index < options.size; ++index) {
    functions.push_back([&, index] {
      Config config = options.config;
      config.rank = config.local_rank = index;
      config.size = config.local_size = options.size;
      config.addr = addr;
      const auto at = static_cast<std::size_t>(index);
      states[at]->store("connecting");
      config.transport = options.wire == Wire::kShm ? "shm" : "tcp";
      if (options.wire == Wire::kCheckedTcp) config.crc = "on";
      if (options.wire == Wire::kWideTcp) config.tcp_width = 3, config.crc = "on";
      if (options.wire == Wire::kMpi) config.backend = "mpi";
      play_mpi_rank(mpi, index);
      Rank rank(options.wire == Wire::kInProcess ? std::move(in_process[at])
                                                 : connect_tcp(config, 0, make_tcp_exchange(config, 0),
                                                               options.wire == Wire::kMpi ? &fake_mpi_api() : nullptr),
                config, states[at]);
      rank.at("connected");
      run_one(rank, function);
    });
  }
  return run_watched(functions, states);
}

void run_ranks_well(const WorldOptions& options, const RankFunction& function) {
  const auto errors = run_ranks(options, function);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    EXPECT_EQ(message_of(errors[i]), "") << "rank " << i << " of " << errors.size();
  }
}

std::vector<std::exception_ptr> run_threads(const std::vector<std::function<void()>>& functions) {
  return run_watched(functions, make_states(functions.size()));
}

std::string message_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

int origin_of(const std::exception_ptr& error) {
  if (!error) return -2;
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost& lost) {
    return lost.origin();
  } catch (const std::exception&) {
    return -2;
  }
}

std::exception_ptr receive_from(int peer, Transport& transport, std::span<std::byte> in) {
  try {
    const Transport::Op op = transport.post_recv(peer, {}, in);
    transport.wait({&op, 1}, soon(5'000));
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

// The last few ports stay reserved: a bound socket that does not listen keeps the system from giving the port to
// another program, and a listener with SO_REUSEADDR can still use it.
std::string free_address() {
  static Mutex mutex;
  static std::deque<Fd> reserved;
  const Address any = resolve("127.0.0.1:0", "test").front();
  Fd fd(::socket(any.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  HORO_CHECK(::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
  HORO_CHECK(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any.storage), any.length) == 0);
  const std::string text = to_text(local_address(fd.get()));
  const MutexLock lock(mutex);
  reserved.push_back(std::move(fd));
  if (reserved.size() > 4) reserved.pop_front();
  return text;
}

Config config_of(int rank, int size, const std::string& addr) {
  Config config;
  config.rank = config.local_rank = rank;
  config.size = config.local_size = size;
  config.addr = addr;
  config.transport = "tcp";
  return config;
}

}  // namespace horo::test
