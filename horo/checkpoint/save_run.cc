#include "horo/checkpoint/save_run.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <stdexcept>

#include "horo/base/fail_point.h"
#include "horo/base/say.h"
#include "horo/base/time.h"
#include "horo/checkpoint/catalog.h"
#include "horo/checkpoint/safetensors.h"

namespace horo::checkpoint {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{1}, kLastPause{50};
constexpr std::chrono::seconds kLockPause{1};  // between two looks at the locks of other ranks
constexpr std::uint64_t kMaxMessageBytes = 1 << 30;
constexpr std::string_view kFailed = "failed\n";  // the message of a rank begins so, or with its parts

// Its text names the rank that has failed.
class RankFailed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::string message_file(std::size_t rank) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "rank-%05zu", rank);
  return name.data();
}

// Pauses that get longer: 1 to 50 ms.
class Pauses {
 public:
  explicit Pauses(SaveControl& control) : control_(control) {}
  void wait() {
    control_.pause(next_);
    next_ = std::min(next_ * 2, kLastPause);
  }
  void begin_anew() { next_ = kFirstPause; }

 private:
  SaveControl& control_;
  milliseconds next_ = kFirstPause;
};

std::vector<HeaderEntry> entries_of(const SavePlan& plan, const DealtPart& part) {
  std::vector<HeaderEntry> entries;
  for (const DealtPiece& piece : part.pieces) {
    const CheckpointTensor& tensor = plan.tensors[piece.tensor];
    std::vector<std::int64_t> shape = tensor.shape;
    if (!shape.empty()) shape.front() = piece.rows;
    entries.push_back({tensor.name, tensor.dtype, std::move(shape), piece.offset, piece.bytes, piece.row});
  }
  return entries;
}

// Rank 0 has failed: its text.
void throw_failure(const SaveFolder& save) {
  if (const auto text = failure_in(save)) throw RankFailed(*text);
}

std::vector<SavedPart> write_own(const SavePlan& plan, std::span<const std::byte> staged, SaveControl& control) {
  const std::vector<std::uint64_t> offsets = staged_offsets(plan);
  std::vector<SavedPart> written;
  TimePoint next_look = Clock::now() + kLockPause;
  const auto before_block = [&](std::uint64_t bytes) {
    control.bytes_done.fetch_add(bytes, std::memory_order_relaxed);
    control.check();
    if (Clock::now() < next_look) return;
    next_look = Clock::now() + kLockPause;
    throw_failure(plan.save);
  };
  std::size_t own = 0;
  for (const DealtPart& part : plan.parts) {
    if (part.rank != plan.rank) continue;
    const auto data = staged.subspan(offsets[own], part.data_bytes);
    written.push_back(
        write_part(plan.save.folder, plan.open[own++], header_of(entries_of(plan, part)), data, before_block));
  }
  return written;
}

std::string text_of_parts(const std::vector<SavedPart>& parts) {
  std::string text;
  for (const SavedPart& part : parts) text += text_of(part) + "\n";
  return text;
}

// A rank whose lock can be had has ended: no other process takes it. One that has failed on a full disk, and has no
// room to say so, removes its parts.
bool has_ended(const SavePlan& plan, std::size_t rank) {
  const auto part = std::ranges::find(plan.parts, rank, &DealtPart::rank);
  const Fd fd = open_file(plan.save.folder, part->file);
  return !fd.is_open() || try_lock(fd) == LockResult::kLocked;
}

// Rank 0: the parts of all ranks.
class Collected {
 public:
  Collected(const SavePlan& plan, SaveControl& control, std::vector<SavedPart> own)
      : plan_(plan), pauses_(control), by_rank_(plan.ranks) {
    by_rank_[0] = std::move(own);
  }

  std::vector<SavedPart> run() {
    last_came_ = Clock::now();
    next_look_ = last_came_ + kLockPause;
    for (std::size_t left = look(); left > 0; left = look()) {
      look_at_locks();
      if (Clock::now() - last_came_ > plan_.timeout) {
        throw RankFailed(say("rank ", first_missing(), " has not written its part within ",
                             plan_.timeout.count() / 1000, " s (HORO_CHECKPOINT_TIMEOUT_MS)"));
      }
      pauses_.wait();
    }
    std::vector<SavedPart> all;
    for (std::optional<std::vector<SavedPart>>& parts : by_rank_) std::ranges::move(*parts, std::back_inserter(all));
    return all;
  }

 private:
  std::size_t first_missing() const {
    return static_cast<std::size_t>(
        std::ranges::find_if(by_rank_, [](const auto& parts) { return !parts.has_value(); }) - by_rank_.begin());
  }

  // The number of ranks that are missing.
  std::size_t look() {
    std::size_t left = 0;
    for (std::size_t rank = 0; rank < plan_.ranks; ++rank) {
      if (by_rank_[rank]) continue;
      by_rank_[rank] = message_of(rank);
      if (!by_rank_[rank]) {
        ++left;
        continue;
      }
      last_came_ = Clock::now();
      pauses_.begin_anew();
    }
    return left;
  }

  std::optional<std::vector<SavedPart>> message_of(std::size_t rank) const {
    const std::string name = message_file(rank);
    const Fd fd = open_file(plan_.save.folder, name);
    if (!fd.is_open()) return std::nullopt;
    const std::string text = text_in_file(fd, plan_.save.folder.path_of(name), kMaxMessageBytes);
    if (text.starts_with(kFailed)) throw RankFailed(text.substr(kFailed.size()));
    std::vector<SavedPart> parts;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = text.find('\n', at);
      parts.push_back(part_in(text.substr(at, end - at)));
      at = end == std::string::npos ? text.size() : end + 1;
    }
    return parts;
  }

  void look_at_locks() {
    if (Clock::now() < next_look_) return;
    next_look_ = Clock::now() + kLockPause;
    for (std::size_t rank = 0; rank < plan_.ranks; ++rank) {
      if (by_rank_[rank] || !plan_.shows_death[rank] || !has_ended(plan_, rank)) continue;
      by_rank_[rank] = message_of(rank);  // it may have come before the end
      if (!by_rank_[rank])
        throw RankFailed(say("rank ", rank, " has ended, or cannot write, before its part was complete"));
    }
  }

  const SavePlan& plan_;
  Pauses pauses_;
  std::vector<std::optional<std::vector<SavedPart>>> by_rank_;
  TimePoint last_came_, next_look_;
};

CheckpointIndex index_of(const SavePlan& plan, std::vector<SavedPart> parts) {
  CheckpointIndex index = plan.head;
  for (const CheckpointTensor& tensor : plan.tensors) {
    const std::string alias = tensor.alias_of < 0 ? "" : plan.tensors[static_cast<std::size_t>(tensor.alias_of)].name;
    index.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.kind, alias, {}});
  }
  for (std::size_t i = 0; i < plan.parts.size(); ++i) {
    for (const DealtPiece& piece : plan.parts[i].pieces) {
      index.tensors[piece.tensor].pieces.push_back(
          {static_cast<std::uint32_t>(i), piece.offset, piece.bytes, piece.row, piece.rows});
    }
  }
  index.parts = std::move(parts);
  check_index(index);
  return index;
}

void finish_as_first(const SavePlan& plan, std::vector<SavedPart> own, SaveControl& control) {
  const CheckpointIndex index = index_of(plan, Collected(plan, control, std::move(own)).run());
  std::vector<std::string> messages;
  for (std::size_t rank = 1; rank < plan.ranks; ++rank) messages.push_back(message_file(rank));
  control.check();
  fail_point("checkpoint.publish");
  publish(plan.save, text_of(index), messages);
  if (plan.run) plan.run->add_checkpoint(plan.local_rank, plan.head.step);
}

// Another rank than rank 0: the parts are written, and rank 0 is to publish them.
void wait_for_first(const SavePlan& plan, SaveControl& control) {
  Pauses pauses(control);
  TimePoint next_look = Clock::now() + kLockPause;
  for (;;) {
    const SaveEnd end = end_of(plan.save);
    if (end == SaveEnd::kPublished) return;
    if (end == SaveEnd::kGone) throw std::runtime_error("rank 0 has given the checkpoint up");
    throw_failure(plan.save);
    if (Clock::now() >= next_look) {
      next_look = Clock::now() + kLockPause;
      if (plan.shows_death[0] && has_ended(plan, 0) && !failure_in(plan.save)) {
        if (end_of(plan.save) == SaveEnd::kPublishing) return;
        if (end_of(plan.save) == SaveEnd::kOpen)
          throw std::runtime_error("rank 0 has ended before the checkpoint was complete");
      }
    }
    pauses.wait();
  }
}

}  // namespace

std::vector<std::uint64_t> staged_offsets(const SavePlan& plan) {
  std::vector<std::uint64_t> offsets;
  std::uint64_t next = 0;
  for (const DealtPart& part : plan.parts) {
    if (part.rank != plan.rank) continue;
    offsets.push_back(next);
    next += (part.data_bytes + kStagedAlignment - 1) / kStagedAlignment * kStagedAlignment;
  }
  return offsets;
}

std::uint64_t staged_bytes(const SavePlan& plan) {
  std::uint64_t bytes = 0;
  for (const DealtPart& part : plan.parts) {
    if (part.rank == plan.rank) bytes += (part.data_bytes + kStagedAlignment - 1) / kStagedAlignment * kStagedAlignment;
  }
  return bytes;
}

std::vector<OpenPart> open_parts(const SaveFolder& save, std::span<const DealtPart> parts, std::size_t rank) {
  std::vector<OpenPart> open;
  for (const DealtPart& part : parts) {
    if (part.rank != rank) continue;
    open.push_back({create_file(save.folder, part.file), part.file});
    try_lock(open.back().fd);
  }
  return open;
}

std::vector<bool> seen_locks(const SaveFolder& save, std::span<const DealtPart> parts, std::size_t ranks) {
  std::vector<bool> seen(ranks);
  for (const DealtPart& part : parts) {
    const Fd fd = open_file(save.folder, part.file);
    seen[part.rank] = fd.is_open() && try_lock(fd) == LockResult::kBusy;
  }
  return seen;
}

void tell_failure(const SavePlan& plan, const std::string& reason) noexcept {
  if (plan.rank == 0) return leave_failure(plan.save, reason);
  const auto tell = [&] {
    try {
      put_text(plan.save.folder, message_file(plan.rank), std::string(kFailed) + reason, false);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  };
  if (tell()) return;
  for (const OpenPart& part : plan.open) {  // makes room on a full disk
    ::unlinkat(plan.save.folder.fd.get(), part.file.c_str(), 0);
  }
  tell();
}

void run_save(SavePlan& plan, std::span<const std::byte> staged, SaveControl& control) {
  bool is_told = false;
  try {
    std::vector<SavedPart> own = write_own(plan, staged, control);
    fail_point("checkpoint.written");
    if (plan.rank == 0) {
      finish_as_first(plan, std::move(own), control);
    } else {
      put_text(plan.save.folder, message_file(plan.rank), text_of_parts(own), false);
      is_told = true;
      wait_for_first(plan, control);
    }
  } catch (const GivenUp& given_up) {
    tell_failure(plan, given_up.what());
    throw;
  } catch (const RankFailed& failed) {
    if (!is_told) tell_failure(plan, failed.what());
    throw;
  } catch (const std::exception& error) {
    if (is_told) throw;
    if (plan.rank > 0) throw_failure(plan.save);  // it has removed what this rank has written
    const std::string text = say("rank ", plan.rank, ": ", error.what());
    tell_failure(plan, text);
    throw std::runtime_error(text);
  }
  if (plan.rank == 0 && plan.keep > 0) keep_newest(plan.save.parent, plan.save.final_name, plan.keep);
}

}  // namespace horo::checkpoint
