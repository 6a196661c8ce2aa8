#include <span>

#include "horo/base/mutex.h"
#include "tests/proof/run_round.h"

namespace horo::proof {
namespace {

// An Exchange between threads of one process.
class LocalExchange {
 public:
  explicit LocalExchange(int size) : blobs_(static_cast<std::size_t>(size)) {}
  Exchange exchange(int rank) {
    return [this, rank](std::span<const std::byte> mine) {
      MutexLock lock(mutex_);
      blobs_[static_cast<std::size_t>(rank)].assign(mine.begin(), mine.end());
      ++written_;
      changed_.notify_all();
      while (written_ < blobs_.size()) changed_.wait(mutex_);
      return blobs_;
    };
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::size_t written_ GUARDED_BY(mutex_) = 0;
  std::vector<Bytes> blobs_ GUARDED_BY(mutex_);
};

}  // namespace

std::vector<Links> connect(int size, test::Wire wire) {
  if (wire == test::Wire::kInProcess) return connect_in_process(size);
  LocalExchange exchange(size);
  std::vector<Links> links(static_cast<std::size_t>(size));
  std::vector<std::function<void()>> functions;
  for (int rank = 0; rank < size; ++rank) {
    functions.emplace_back([&, rank] {
      Config config = test::config_of(rank, size, "");
      config.transport = wire == test::Wire::kShm ? "shm" : "tcp";
      links[static_cast<std::size_t>(rank)] = connect_tcp(config, 0, exchange.exchange(rank));
    });
  }
  for (const std::exception_ptr& error : test::run_threads(functions)) {
    if (error) std::rethrow_exception(error);
  }
  return links;
}

World::World(int size, test::Wire wire) : links_(connect(size, wire)) {}

}  // namespace horo::proof
