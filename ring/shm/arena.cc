#include "ring/shm/arena.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
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

// The first page. The stamp is random: two files with the same one are the same file.
struct Header {
  OwnerWord owner = 0;
  alignas(64) JobKey stamp{};
};

Header& header_of(const ShmSegment& arena) {
  return *std::launder(reinterpret_cast<Header*>(arena.memory().data()));
}

}  // namespace

std::shared_ptr<Arena> Arena::make() {
  const auto pages = static_cast<std::size_t>(std::max(1L, ::sysconf(_SC_PHYS_PAGES)));
  rlimit files{RLIM_INFINITY, RLIM_INFINITY};  // a larger file ends the process by a signal (ulimit -f)
  ::getrlimit(RLIMIT_FSIZE, &files);
  const auto bytes = std::min<std::size_t>(pages * kPage, files.rlim_cur) / kHugePageBytes * kHugePageBytes;
  if (bytes == 0) throw std::runtime_error("files may have no more than 2 MiB (ulimit -f)");
  ShmSegment segment = ShmSegment::create_empty(bytes);
  segment.populate(0, kPage);
  new (segment.memory().data()) Header{0, make_job_key()};
  return std::shared_ptr<Arena>(new Arena(std::move(segment)));
}

Allocation Arena::allocate(std::size_t bytes) {
  return take(bytes, false);
}

Allocation Arena::allocate_lasting(std::size_t bytes, IsUnused is_unused) {
  return take(bytes, true, is_unused);
}

Allocation Arena::take(std::size_t bytes, bool lasts, IsUnused is_unused) {
  const std::size_t whole = up_to(std::max<std::size_t>(bytes, 1), bytes >= kHugePageBytes ? kHugePageBytes : kPage);
  std::size_t begin = 0;
  {
    MutexLock lock(mutex_);
    free_retired(Clock::now());
    begin = find_gap(whole);
    if (begin + whole > segment_.memory().size()) return {};
    blocks_[begin] = {whole, TimePoint::max(), is_unused};
  }
  try {
    segment_.populate(begin, whole);
  } catch (const std::system_error& error) {
    log_warning(say(error.what(), "; a bucket is not in shared memory"));
    free(begin, whole);
    return {};
  }
  const auto give_back = [arena = shared_from_this(), begin, whole, lasts](std::byte*) {
    lasts ? arena->retire(begin) : arena->free(begin, whole);
  };
  return {{segment_.memory().data() + begin, give_back}, bytes};
}

void Arena::retire(std::size_t begin) noexcept {
  MutexLock lock(mutex_);
  blocks_.find(begin)->second.retired = Clock::now();
}

bool Arena::is_kept(std::size_t begin, const Block& block, TimePoint now) const {
  if (block.retired == TimePoint::max()) return true;
  const bool is_unused = block.is_unused != nullptr && block.is_unused(segment_.memory().data() + begin);
  return !is_unused && now - block.retired < kGrace;
}

void Arena::free_retired(TimePoint now) {
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    const auto& [begin, block] = *it;
    if (is_kept(begin, block, now)) {
      ++it;
      continue;
    }
    segment_.vacate(begin, block.bytes);
    it = blocks_.erase(it);
  }
}

// The offset of the first gap that is large enough. Large blocks begin on a huge page. The first page is never free.
std::size_t Arena::find_gap(std::size_t bytes) {
  const std::size_t unit = bytes >= kHugePageBytes ? kHugePageBytes : kPage;
  std::size_t begin = up_to(kPage, unit);
  for (const auto& [taken, block] : blocks_) {
    if (begin + bytes <= taken) break;
    begin = up_to(taken + block.bytes, unit);
  }
  return begin;
}

void Arena::free(std::size_t begin, std::size_t bytes) noexcept {
  {
    MutexLock lock(mutex_);
    if (epochs_ == 0 && !is_vacated_) {
      blocks_.erase(begin);
      return;
    }
  }
  segment_.vacate(begin, bytes);
  MutexLock lock(mutex_);
  blocks_.erase(begin);
}

void Arena::begin_epoch() noexcept {
  MutexLock lock(mutex_);
  ++epochs_;
}

bool Arena::end_epoch() noexcept {
  MutexLock lock(mutex_);
  return --epochs_ == 0;
}

// The first page has the owner word.
void Arena::vacate_rest() noexcept {
  MutexLock lock(mutex_);
  is_vacated_ = true;
  std::size_t begin = kPage;
  for (const auto& [taken, block] : blocks_) {
    if (begin < taken) segment_.vacate(begin, taken - begin);
    begin = taken + block.bytes;
  }
  if (begin < segment_.memory().size()) segment_.vacate(begin, segment_.memory().size() - begin);
}

std::optional<std::uint64_t> Arena::offset_of(const std::byte* data, std::size_t bytes) const {
  const auto memory = segment_.memory();
  if (data < memory.data() || data >= memory.data() + memory.size()) return std::nullopt;
  const auto offset = static_cast<std::size_t>(data - memory.data());
  if (bytes > memory.size() - offset) return std::nullopt;
  return offset;
}

OwnerWord& Arena::owner_word() const {
  return header_of(segment_).owner;
}

ShmArenas::ShmArenas(int rank, std::shared_ptr<Arena> own, Peers peers)
    : rank_(rank), own_(std::move(own)), peers_(std::move(peers)) {
  own_->begin_epoch();
}

int ShmArenas::first_dead() const noexcept {
  const auto dead =
      std::ranges::find_if(peers_, [](const auto& peer) { return has_died(header_of(*peer.second).owner); });
  return dead == peers_.end() ? -1 : dead->first;
}

std::byte* ShmArenas::at(int rank, std::uint64_t offset, std::size_t bytes) const {
  const ShmSegment& arena = rank == rank_ ? own_->segment() : *peers_.at(rank);
  const auto memory = arena.memory();
  if (offset > memory.size() || bytes > memory.size() - offset) {
    throw ProtocolError(say("rank ", rank, " announces ", bytes, " bytes at offset ", offset,
                            " of its shared memory, which has ", memory.size(), " bytes"));
  }
  return memory.data() + offset;
}

std::shared_ptr<const ShmSegment> ShmArenas::mapping_of(const Fd& file) const {
  JobKey stamp{};
  if (::pread(file.get(), stamp.data(), stamp.size(), offsetof(Header, stamp)) != static_cast<ssize_t>(stamp.size()))
    return nullptr;
  const auto same =
      std::ranges::find_if(peers_, [&stamp](const auto& peer) { return header_of(*peer.second).stamp == stamp; });
  return same == peers_.end() ? nullptr : same->second;
}

}  // namespace horo
