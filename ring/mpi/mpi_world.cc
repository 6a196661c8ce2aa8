#include "ring/mpi/mpi_world.h"

#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <new>
#include <stdexcept>

#include "horo/base/check.h"
#include "horo/base/error.h"
#include "horo/base/log.h"
#include "horo/base/mutex.h"
#include "horo/base/say.h"

namespace horo {
namespace {

constexpr int kNapMs = 1;
constexpr std::size_t kMpiPage = 4096;

std::string text_of_error(const MpiApi& api, int error) {
  std::array<char, 512> text{};
  api.error_text(error, text.data(), text.size());
  return text.data();
}

std::string name_of_level(MpiThreads threads) {
  constexpr std::array names = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED",
                                "MPI_THREAD_MULTIPLE"};
  return names.at(static_cast<std::size_t>(threads));
}

void check_place(const MpiPlace& place, const Config& config) {
  if (place.was_ended) {
    throw std::invalid_argument(
        "HORO_BACKEND=mpi: MPI_Finalize was called in this process, and MPI cannot start again");
  }
  if (place.rank != config.rank || place.size != config.size) {
    throw std::invalid_argument(say("HORO_BACKEND=mpi: MPI reports rank ", place.rank, " of ", place.size,
                                    ", and horo is configured as rank ", config.rank, " of ", config.size,
                                    ": expected ranks that Open MPI's own mpirun started, and no HORO_RANK"));
  }
  if (place.threads < MpiThreads::kSerialized) {
    throw std::invalid_argument(say(
        "HORO_BACKEND=mpi: this program started MPI with ", name_of_level(place.threads),
        ", and horo calls it from threads of its own: expected MPI_THREAD_MULTIPLE, or MPI_THREAD_SERIALIZED where no "
        "other thread calls MPI between horo's init and shutdown"));
  }
}

void log_level(const MpiApi& api, const MpiPlace& place) {
  log_info(say("messages go through ", std::string(api.library()).substr(0, 48), ", ", name_of_level(place.threads)));
  if (place.threads == MpiThreads::kMultiple) return;
  log_warning(say("MPI has ", name_of_level(place.threads),
                  " alone: no other thread may call it between horo's init and shutdown"));
}

// A list that stays reachable, so that leak checkers do not report the memory.
struct KeptMemory {
  Mutex mutex;
  std::vector<MpiMemory> list GUARDED_BY(mutex);
  std::size_t reserved GUARDED_BY(mutex) = 0;
};

KeptMemory& kept_memory() {
  static auto* const one = new KeptMemory;
  return *one;
}

// Reserves a place in the list before memory is given to MPI, so that keep_for_ever() cannot fail.
void reserve_place() {
  KeptMemory& kept = kept_memory();
  const MutexLock lock(kept.mutex);
  if (kept.reserved + 1 > kept.list.capacity()) kept.list.reserve(2 * kept.reserved + 1);
  ++kept.reserved;
}

void keep_for_ever(MpiMemory memory) noexcept {
  KeptMemory& kept = kept_memory();
  const MutexLock lock(kept.mutex);
  kept.list.push_back(std::move(memory));
}

MpiMemory make_block() {
  constexpr std::align_val_t kAlignment{MpiWorld::kMostMemoryBytes};
  auto* const data = static_cast<std::byte*>(::operator new(MpiWorld::kMostMemoryBytes, kAlignment));
  ::madvise(data, MpiWorld::kMostMemoryBytes, MADV_HUGEPAGE);
  return {data, [](std::byte* memory) { ::operator delete(memory, kAlignment); }};
}

// Watches the sockets to the other ranks while MPI starts; a socket becomes readable when its rank ends. That rank may
// have finished starting MPI before, and MPI may be about to report the same here, so the loss is reported after
// kLingering.
class PeerEnds {
 public:
  PeerEnds(std::span<const MpiPeer> peers, int rank) : peers_(peers), rank_(rank) {
    for (const MpiPeer& peer : peers) polls_.push_back({peer.socket, POLLIN, 0});
  }

  // Sleeps for kNapMs at most. Throws PeerLost if a rank ended kLingering ago.
  void nap() {
    ::poll(gone_ == nullptr ? polls_.data() : nullptr, gone_ == nullptr ? polls_.size() : 0, kNapMs);
    for (std::size_t i = 0; i < polls_.size() && gone_ == nullptr; ++i) {
      if (polls_[i].revents == 0) continue;
      gone_ = &peers_[i];
      until_ = Clock::now() + kLingering;
    }
    if (gone_ == nullptr || Clock::now() < until_) return;
    const std::string why =
        say("rank ", gone_->rank, " is lost: it ended while MPI was starting (seen by rank ", rank_, ")");
    throw PeerLost(gone_->rank, why, Evidence::kBroken);
  }

 private:
  static constexpr std::chrono::milliseconds kLingering{200};

  const std::span<const MpiPeer> peers_;
  const int rank_;
  std::vector<pollfd> polls_;
  const MpiPeer* gone_ = nullptr;
  TimePoint until_;
};

}  // namespace

MpiWorld::~MpiWorld() {
  if (!is_kept_) api_.free(&comm_);
}

std::string MpiWorld::text_of(int error) const {
  return text_of_error(api_, error);
}

MpiMemory MpiWorld::take_memory(std::size_t bytes) {
  const std::size_t whole = (bytes + kMpiPage - 1) / kMpiPage * kMpiPage;
  HORO_CHECK(whole <= kMostMemoryBytes);
  reserve_place();
  const MutexLock lock(mutex_);
  if (taken_ + whole > kMostMemoryBytes) {
    block_ = make_block();
    taken_ = 0;
  }
  taken_ += whole;
  return {block_, block_.get() + taken_ - whole};
}

void MpiWorld::keep(MpiMemory memory) noexcept {
  is_kept_ = true;
  keep_for_ever(std::move(memory));
}

std::shared_ptr<MpiWorld> open_mpi_world(const MpiApi& api, const Config& config, std::span<const MpiPeer> peers,
                                         TimePoint until) {
  const auto check = [&](int error, const char* call) {
    if (error != 0) throw std::runtime_error(say("rank ", config.rank, ": ", call, ": ", text_of_error(api, error)));
  };
  MpiPlace place;
  check(api.start(&place), "MPI_Init_thread");
  check_place(place, config);
  if (config.rank == 0) log_level(api, place);
  // MPI writes the communicator when it is made, possibly after this function has thrown, so it is not on the stack.
  reserve_place();
  MpiMemory memory(new std::byte[sizeof(MpiComm)]);
  auto* const comm = new (memory.get()) MpiComm(nullptr);
  MpiRequest request = nullptr;
  check(api.duplicate(comm, &request), "MPI_Comm_idup");
  PeerEnds ends(peers, config.rank);
  try {
    while (request != nullptr) {
      bool done = false;
      int bytes = 0;
      check(api.test(&request, &done, &bytes), "MPI_Comm_idup");
      if (done) break;
      ends.nap();
      if (Clock::now() < until) continue;
      throw PeerLost(-1,
                     say("rank ", config.rank, ": not all ranks started MPI within ", config.start_timeout.count(),
                         " ms (HORO_START_TIMEOUT_MS)"),
                     Evidence::kLate);
    }
  } catch (const std::exception& error) {
    api.give_up(error.what());
    keep_for_ever(std::move(memory));
    throw;
  }
  return std::make_shared<MpiWorld>(api, *comm);
}

}  // namespace horo
