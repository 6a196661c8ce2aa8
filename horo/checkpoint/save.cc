#include "horo/checkpoint/save.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <stdexcept>

#include "horo/base/hash.h"
#include "horo/base/run_place.h"
#include "horo/base/say.h"
#include "horo/base/version.h"
#include "horo/base/wire.h"
#include "horo/checkpoint/rows.h"
#include "horo/checkpoint/save_signs.h"
#include "ring/os/process.h"

namespace horo::checkpoint {
namespace {

constexpr std::uint32_t kMaxText = 1 << 20;

// A rank's error, as the others throw it as well.
enum class Fault : std::uint8_t { kNone, kArgument, kFailure };
struct SaveFault {
  Fault fault = Fault::kNone;
  std::string text;
};

template <class Call>
SaveFault fault_in(Call call) {
  try {
    call();
    return {};
  } catch (const std::invalid_argument& error) {
    return {Fault::kArgument, error.what()};
  } catch (const std::exception& error) {
    return {Fault::kFailure, error.what()};
  }
}

[[noreturn]] void raise_fault(const SaveFault& fault) {
  if (fault.fault == Fault::kArgument) throw std::invalid_argument(fault.text);
  throw std::runtime_error(fault.text);
}

std::chrono::milliseconds part_timeout() {
  const char* const text = std::getenv("HORO_CHECKPOINT_TIMEOUT_MS");
  return text == nullptr ? std::chrono::minutes(10) : std::chrono::milliseconds(std::strtoll(text, nullptr, 10));
}

// What a rank says before the save begins.
struct Wish {
  std::uint32_t member = 0;
  bool is_busy = false;
  SaveFault fault;
  std::uint64_t table_hash = 0;
  std::uint64_t step = 0;
  std::string name;       // of the folder
  std::string temporary;  // of rank 0
  RangesByTensor ranges;
};

ByteRow row_of(const Wish& wish) {
  ByteWriter out;
  out.u32(wish.member);
  out.u8(wish.is_busy ? 1 : 0);
  out.u8(static_cast<std::uint8_t>(wish.fault.fault));
  out.text(wish.fault.text);
  out.u64(wish.table_hash);
  out.u64(wish.step);
  out.text(wish.name);
  out.text(wish.temporary);
  out.u32(static_cast<std::uint32_t>(wish.ranges.size()));
  for (const std::vector<RowRange>& ranges : wish.ranges) {
    out.varint(ranges.size());
    for (const RowRange& range : ranges) {
      out.varint(static_cast<std::uint64_t>(range.start));
      out.varint(static_cast<std::uint64_t>(range.stop));
    }
  }
  return out.take();
}

Wish wish_in(const ByteRow& row) {
  ByteReader in(row);
  Wish wish;
  wish.member = in.u32();
  wish.is_busy = in.u8() != 0;
  wish.fault.fault = static_cast<Fault>(in.u8());
  wish.fault.text = in.text(kMaxText);
  wish.table_hash = in.u64();
  wish.step = in.u64();
  wish.name = in.text(kMaxText);
  wish.temporary = in.text(kMaxText);
  wish.ranges.resize(in.count(1));
  for (std::vector<RowRange>& ranges : wish.ranges) {
    const std::uint64_t count = in.varint();
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t start = in.varint(), stop = in.varint();
      ranges.push_back({static_cast<std::int64_t>(start), static_cast<std::int64_t>(stop)});
    }
  }
  return wish;
}

std::vector<Wish> gather_wishes(Session* session, const Wish& mine) {
  std::vector<Wish> wishes;
  for (const ByteRow& row : gather_rows(session, "begin", row_of(mine))) wishes.push_back(wish_in(row));
  return wishes;
}

void raise_first_fault(const std::vector<Wish>& wishes) {
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    const SaveFault& fault = wishes[rank].fault;
    if (fault.fault != Fault::kNone) raise_fault({fault.fault, say("rank ", rank, ": ", fault.text)});
  }
}

// Removes the folder of a save that does not begin.
class Discard {
 public:
  Discard() = default;
  ~Discard() {
    if (made_) remove_folder(made_->parent, made_->temporary_name);
  }
  Discard(const Discard&) = delete;
  Discard& operator=(const Discard&) = delete;
  void set(SaveFolder made) { made_ = std::move(made); }
  const std::optional<SaveFolder>& made() const { return made_; }
  SaveFolder release() {
    SaveFolder made = std::move(*made_);
    made_.reset();
    return made;
  }

 private:
  std::optional<SaveFolder> made_;
};

class Beginning {
 public:
  Beginning(Saver& saver, Session* session, const SaveOptions& options, const std::vector<CheckpointTensor>& tensors)
      : saver_(saver), session_(session), options_(options), tensors_(tensors) {}

  bool run() {
    Wish mine;
    mine.member = member_of(session_);
    mine.is_busy = saver_.is_writing();
    mine.step = options_.step;
    if (!mine.is_busy) prepare(mine);
    wishes_ = gather_wishes(session_, mine);
    const auto me = std::ranges::find(wishes_, mine.member, &Wish::member);
    if (std::ranges::any_of(wishes_, &Wish::is_busy)) return false;
    saver_.forget_failure();
    if (me == wishes_.end()) throw std::runtime_error("the ranks have changed in another thread");
    rank_ = static_cast<std::size_t>(me - wishes_.begin());
    check_faults();
    check_alike();
    agree();
    return true;
  }

 private:
  bool is_first() const { return session_ == nullptr || session_->topology().rank == 0; }

  void prepare(Wish& mine) {
    saver_.make_ready();
    mine.fault = fault_in([&] {
      place_ = place_of(options_.path);
      mine.name = place_.name;
      const std::string fault = fault_of(tensors_);
      if (!fault.empty()) throw std::invalid_argument(fault);
      table_ = table_of(tensors_);
      mine.table_hash = hash_bytes(table_);
      for (const CheckpointTensor& tensor : tensors_) mine.ranges.push_back(tensor.ranges);
      if (!is_first()) return saver_.unlock();
      rest_ = in_one_line(options_.rest);
      clean_up(make_parent(place_));
      made_.set(make_save_folder(place_));
      mine.temporary = made_.made()->temporary_name;
    });
  }

  // Before this save has a folder: a checkpoint of its name may get that back.
  void clean_up(const OpenFolder& parent) {
    if (options_.locks) {
      saver_.lock_parent(parent);
      remove_leftovers(parent);
      return;
    }
    try {
      if (const std::optional<FolderLock> lock = FolderLock::try_take(parent)) remove_leftovers(parent);
    } catch (const std::exception&) {  // the file of the lock is another user's: the leftovers stay
    }
  }

  void check_faults() const {
    raise_first_fault(wishes_);
    if (wishes_.front().temporary.empty()) throw std::runtime_error("the ranks have changed while a save began");
  }

  void check_alike() const {
    const Wish& first = wishes_.front();
    for (std::size_t rank = 0; rank < wishes_.size(); ++rank) {
      const Wish& other = wishes_[rank];
      if (other.step != first.step || other.name != first.name) {
        throw std::invalid_argument(say("rank 0 saves step ", first.step, " to ", first.name, ", and rank ", rank,
                                        " step ", other.step, " to ", other.name));
      }
    }
    if (std::ranges::all_of(wishes_, [&](const Wish& other) { return other.table_hash == first.table_hash; })) return;
    const std::vector<ByteRow> tables = gather_rows(session_, "tables", table_);
    for (std::size_t rank = 1; rank < tables.size(); ++rank) {
      if (tables[rank] == tables.front()) continue;
      throw std::invalid_argument(
          say("rank 0 and rank ", rank, " save different tensors: ", difference_between(tables.front(), tables[rank])));
    }
    throw std::runtime_error("the ranks have changed while a save began");
  }

  void agree() {
    std::vector<RangesByTensor> ranges;
    for (const Wish& wish : wishes_) ranges.push_back(wish.ranges);
    std::vector<DealtPart> parts = deal(tensors_, ranges);
    const auto plan = std::make_shared<SavePlan>();
    ByteWriter mine;
    const SaveFault fault = fault_in([&] {
      plan->parts = std::move(parts);
      fill(*plan);
    });
    mine.text(fault.text);
    const std::vector<ByteRow> rows = gather_rows(session_, "folder", mine.take());
    if (rows.size() != wishes_.size()) throw std::runtime_error("the ranks have changed while a save began");
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      const std::string text = ByteReader(rows[rank]).text(kMaxText);
      if (!text.empty()) throw std::runtime_error(say("rank ", rank, ": ", text));
    }
    plan->save = made_.made() ? made_.release() : std::move(*seen_);
    try {  // the other ranks write from here on
      plan->shows_death = seen_locks(*plan);
      saver_.fill(plan);
    } catch (const std::exception& error) {
      tell_failure(*plan, say("rank ", rank_, ": ", error.what()));
      throw;
    }
  }

  // All that may fail on this rank alone.
  void fill(SavePlan& plan) {
    plan.rank = rank_;
    plan.ranks = wishes_.size();
    plan.tensors = tensors_;
    plan.keep = options_.keep;
    plan.head = head();
    plan.timeout = part_timeout();
    if (session_ != nullptr && rank_ == 0) plan.run = place_of_rank(session_->config()).table;
    if (plan.run) plan.local_rank = session_->config().local_rank;
    if (!made_.made()) see_folder();
    plan.first = open_first_part(made_.made() ? *made_.made() : *seen_, plan.parts, rank_);
    saver_.staging().reserve(staged_bytes(plan));
  }

  void see_folder() {
    try {
      seen_ = see_save_folder(place_, wishes_.front().temporary);
    } catch (const std::exception& error) {
      throw std::runtime_error(say(error.what(), ": on ", this_process().host,
                                   " the folder that rank 0 has made is not ",
                                   "seen. All ranks need the same folder, on a disk that their hosts share"));
    }
  }

  CheckpointIndex head() const {
    CheckpointIndex head;
    head.step = options_.step;
    head.epoch = session_ == nullptr ? 0 : session_->topology().epoch;
    for (const Wish& wish : wishes_) head.members.push_back(wish.member);
    head.seed = options_.seed;
    head.horo = kVersion;
    head.rest = rest_;
    return head;
  }

  Saver& saver_;
  Session* const session_;
  const SaveOptions& options_;
  const std::vector<CheckpointTensor>& tensors_;
  SavePlace place_;
  std::string rest_;
  std::vector<std::byte> table_;
  std::vector<Wish> wishes_;
  std::size_t rank_ = 0;
  Discard made_;                    // of rank 0
  std::optional<SaveFolder> seen_;  // of the other ranks
};

}  // namespace

void refuse_save(Session* session, const std::string& why) {
  Wish mine;
  mine.member = member_of(session);
  mine.fault = {Fault::kArgument, why};
  raise_first_fault(gather_wishes(session, mine));
  throw std::invalid_argument(why);
}

bool begin_save(Saver& saver, Session* session, const SaveOptions& options,
                const std::vector<CheckpointTensor>& tensors) {
  return Beginning(saver, session, options, tensors).run();
}

void save(Session* session, const SaveOptions& options, const std::vector<CheckpointTensor>& tensors) {
  Saver saver;
  if (!begin_save(saver, session, options, tensors)) throw std::runtime_error("another save is being written");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t row_bytes = row_bytes_of(tensors[i].dtype, tensors[i].shape);
    const std::byte* const data = tensors[i].data;
    saver.take(i, data == nullptr ? data : data + static_cast<std::uint64_t>(saver.part(i).start) * row_bytes);
  }
  saver.start();
  saver.wait_until(TimePoint::max());
}

}  // namespace horo::checkpoint
