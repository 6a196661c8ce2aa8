#include "horo/checkpoint/save_run.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "horo/base/fail_point.h"
#include "horo/base/say.h"
#include "horo/base/time.h"
#include "horo/checkpoint/catalog.h"
#include "horo/checkpoint/safetensors.h"
#include "horo/checkpoint/save_signs.h"

namespace horo::checkpoint {
namespace {

constexpr std::uint64_t kMaxMessageBytes = 1 << 30;
constexpr std::string_view kFailed = "failed\n";  // the message of a rank begins so, or with its parts

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
  for (const DealtPart& part : plan.parts) {
    if (part.rank != plan.rank) continue;
    const bool is_first = part.file == plan.first.file;
    const OpenPart other = is_first ? OpenPart() : OpenPart{create_file(plan.save.folder, part.file), part.file};
    const auto data = staged.subspan(offsets[written.size()], part.data_bytes);
    written.push_back(write_part(plan.save.folder, is_first ? plan.first : other, header_of(entries_of(plan, part)),
                                 data, before_block));
  }
  return written;
}

std::string text_of_parts(const std::vector<SavedPart>& parts) {
  std::string text;
  for (const SavedPart& part : parts) text += text_of(part) + "\n";
  return text;
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

// A longer one could not be read.
std::string text_of_checked(const CheckpointIndex& index) {
  std::string text = text_of(index);
  if (text.size() > kMaxIndexBytes)
    throw std::runtime_error(say("the index has ", text.size(), " bytes, at most ", kMaxIndexBytes));
  return text;
}

void finish_as_first(const SavePlan& plan, std::vector<SavedPart> own, SaveControl& control) {
  const CheckpointIndex index = index_of(plan, Collected(plan, control, std::move(own)).run());
  std::vector<std::string> messages;
  for (std::size_t rank = 1; rank < plan.ranks; ++rank) messages.push_back(message_file(rank));
  control.check();
  fail_point("checkpoint.publish");
  publish(plan.save, text_of_checked(index), messages);
  if (plan.run) plan.run->add_checkpoint(plan.local_rank, plan.head.step);
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

OpenPart open_first_part(const SaveFolder& save, std::span<const DealtPart> parts, std::size_t rank) {
  const std::string& file = std::ranges::lower_bound(parts, rank, {}, &DealtPart::rank)->file;
  OpenPart first{create_file(save.folder, file), file};
  try_lock(first.fd);
  return first;
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
  for (const DealtPart& part : plan.parts) {  // makes room on a full disk
    if (part.rank == plan.rank) ::unlinkat(plan.save.folder.fd.get(), part.file.c_str(), 0);
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
      wait_for_end(plan, control);
    }
  } catch (const GivenUp& given_up) {
    tell_failure(plan, given_up.what());
    if (is_told && is_published_after_all(plan)) return;
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
