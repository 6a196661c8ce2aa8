#include "ring/shm/arena.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>

#include "horo/base/error.h"
#include "horo/base/log.h"
#include "horo/base/say.h"

namespace horo {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t up_to(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

OwnerWord& word_of(const ShmSegment& arena) {
  return *std::launder(reinterpret_cast<OwnerWord*>(arena.memory().data()));
}

}  // namespace

ShmSegment make_arena() {
  const auto pages = static_cast<std::size_t>(std::max(1L, ::sysconf(_SC_PHYS_PAGES)));
  rlimit files{RLIM_INFINITY, RLIM_INFINITY};  // a larger file ends the process by a signal (ulimit -f)
  ::getrlimit(RLIMIT_FSIZE, &files);
  const auto bytes = std::min<std::size_t>(pages * kPage, files.rlim_cur) / kHugePageBytes * kHugePageBytes;
  if (bytes == 0) throw std::runtime_error("files may have no more than 2 MiB (ulimit -f)");
  ShmSegment arena = ShmSegment::create_empty(bytes);
  arena.populate(0, kPage);
  return arena;
}

ShmArenas::ShmArenas(int rank, ShmSegment own, std::map<int, ShmSegment> peers)
    : rank_(rank), own_(std::move(own)), peers_(std::move(peers)) {}

Allocation ShmArenas::allocate(std::size_t bytes) {
  return take(bytes, false);
}

Allocation ShmArenas::allocate_lasting(std::size_t bytes) {
  return take(bytes, true);
}

Allocation ShmArenas::take(std::size_t bytes, bool lasts) {
  const std::size_t whole = up_to(std::max<std::size_t>(bytes, 1), bytes >= kHugePageBytes ? kHugePageBytes : kPage);
  std::size_t begin = 0;
  {
    MutexLock lock(mutex_);
    free_retired(Clock::now());
    begin = find_gap(whole);
    if (begin + whole > own_.memory().size()) return {};
    blocks_[begin].bytes = whole;
  }
  try {
    own_.populate(begin, whole);
  } catch (const std::system_error& error) {
    log_warning(say("rank ", rank_, ": ", error.what(), "; a bucket is not in shared memory"));
    free(begin, whole);
    return {};
  }
  const auto give_back = [arenas = shared_from_this(), begin, whole, lasts](std::byte*) {
    lasts ? arenas->retire(begin) : arenas->free(begin, whole);
  };
  return {{own_.memory().data() + begin, give_back}, bytes};
}

void ShmArenas::retire(std::size_t begin) noexcept {
  MutexLock lock(mutex_);
  blocks_.find(begin)->second.retired = Clock::now();
}

void ShmArenas::free_retired(TimePoint now) {
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    const auto& [begin, block] = *it;
    if (block.retired == TimePoint::max() || now - block.retired < kGrace) {
      ++it;
      continue;
    }
    own_.vacate(begin, block.bytes);
    it = blocks_.erase(it);
  }
}

// The offset of the first gap that is large enough. Large blocks begin on a huge page. The first page is never free.
std::size_t ShmArenas::find_gap(std::size_t bytes) {
  const std::size_t unit = bytes >= kHugePageBytes ? kHugePageBytes : kPage;
  std::size_t begin = up_to(kPage, unit);
  for (const auto& [taken, block] : blocks_) {
    if (begin + bytes <= taken) break;
    begin = up_to(taken + block.bytes, unit);
  }
  return begin;
}

void ShmArenas::free(std::size_t begin, std::size_t bytes) noexcept {
  {
    MutexLock lock(mutex_);
    if (has_ended_) {
      blocks_.erase(begin);
      return;
    }
  }
  own_.vacate(begin, bytes);
  MutexLock lock(mutex_);
  blocks_.erase(begin);
}

void ShmArenas::end() noexcept {
  MutexLock lock(mutex_);
  has_ended_ = true;
}

// The first page has the owner word.
void ShmArenas::vacate_rest() noexcept {
  MutexLock lock(mutex_);
  has_ended_ = false;
  std::size_t begin = kPage;
  for (const auto& [taken, block] : blocks_) {
    if (begin < taken) own_.vacate(begin, taken - begin);
    begin = taken + block.bytes;
  }
  if (begin < own_.memory().size()) own_.vacate(begin, own_.memory().size() - begin);
}

std::optional<std::uint64_t> ShmArenas::offset_of(const std::byte* data, std::size_t bytes) const {
  const auto memory = own_.memory();
  if (data < memory.data() || data >= memory.data() + memory.size()) return std::nullopt;
  const auto offset = static_cast<std::size_t>(data - memory.data());
  if (bytes > memory.size() - offset) return std::nullopt;
  return offset;
}

OwnerWord& ShmArenas::owner_word() const {
  return word_of(own_);
}

int ShmArenas::first_dead() const noexcept {
  const auto dead = std::ranges::find_if(peers_, [](const auto& peer) { return has_died(word_of(peer.second)); });
  return dead == peers_.end() ? -1 : dead->first;
}

std::byte* ShmArenas::at(int rank, std::uint64_t offset, std::size_t bytes) const {
  const ShmSegment& arena = rank == rank_ ? own_ : peers_.at(rank);
  const auto memory = arena.memory();
  if (offset > memory.size() || bytes > memory.size() - offset) {
    throw ProtocolError(say("rank ", rank, " announces ", bytes, " bytes at offset ", offset,
                            " of its shared memory, which has ", memory.size(), " bytes"));
  }
  return memory.data() + offset;
}

}  // namespace horo
