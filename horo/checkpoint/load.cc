#include "horo/checkpoint/load.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>

#include "horo/base/hash.h"
#include "horo/base/say.h"
#include "horo/base/wire.h"
#include "horo/checkpoint/delivery.h"
#include "horo/checkpoint/rows.h"

namespace horo::checkpoint {
namespace {

constexpr std::uint32_t kMaxErrorText = 1 << 20;
constexpr std::size_t kMostGivers = 8;    // of a round
constexpr std::size_t kTrailerBytes = 8;  // behind the block of a rank: whether it could read it

std::string fault_of_want(const Checkpoint& checkpoint, const CheckpointTensor& tensor) {
  const SavedTensor* saved = checkpoint.find(tensor.name);
  if (saved == nullptr) return say(checkpoint.path(), " has no tensor ", tensor.name);
  if (saved->dtype != tensor.dtype || saved->shape != tensor.shape) {
    return say(tensor.name, " is ", form_of(saved->dtype, saved->shape), " in ", checkpoint.path(), ", and ",
               form_of(tensor.dtype, tensor.shape), " here");
  }
  const bool has_bytes = row_bytes_of(tensor.dtype, tensor.shape) > 0 && rows_of(tensor.shape) > 0;
  const bool wants_rows = tensor.kind != TensorKind::kSharded || !tensor.ranges.empty();
  if (has_bytes && wants_rows && tensor.data == nullptr) return say("the data of ", tensor.name, " is a null pointer");
  return "";
}

// The first text that is not empty fails on all ranks.
void raise_first(Session* session, const char* what, const std::string& mine, std::size_t ranks) {
  ByteWriter out;
  out.text(mine);
  const std::vector<ByteRow> rows = gather_rows(session, what, out.take());
  if (rows.size() != ranks) throw std::runtime_error("the ranks have changed while a checkpoint was read");
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::string text = ByteReader(rows[rank]).text(kMaxErrorText);
    if (!text.empty()) throw std::runtime_error(ranks == 1 ? text : say("rank ", rank, ": ", text));
  }
}

// What a rank says before a load.
std::vector<ByteRow> gather_wants(Session* session, std::uint64_t hash, const std::string& fault,
                                  const std::vector<std::byte>& table) {
  ByteWriter out;
  out.u32(member_of(session));
  out.u64(hash);
  out.text(fault);
  out.raw(table);
  return gather_rows(session, "load", out.take());
}

void raise_first_refusal(const std::vector<ByteRow>& rows) {
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    ByteReader in(rows[rank]);
    in.u32();
    in.u64();
    const std::string fault = in.text(kMaxErrorText);
    if (!fault.empty()) throw std::invalid_argument(rows.size() == 1 ? fault : say("rank ", rank, ": ", fault));
  }
}

class Loading {
 public:
  Loading(Checkpoint& checkpoint, Session* session, const std::vector<CheckpointTensor>& tensors)
      : checkpoint_(checkpoint), session_(session), tensors_(tensors) {}

  void run(bool verifies_first) {
    agree();
    Delivery delivery(checkpoint_, tensors_);
    blocks_ = delivery.blocks();
    deal();
    if (verifies_first) verify_own();
    if (session_ == nullptr || session_->topology().local_size == session_->topology().size) {
      deliver_alone(delivery);
    } else {
      deliver_in_rounds(delivery);
    }
  }

 private:
  std::string own_fault() const {
    std::string fault = fault_of(tensors_);
    if (!fault.empty()) return fault;
    for (const CheckpointTensor& tensor : tensors_) {
      std::string lack = tensor.alias_of < 0 ? fault_of_want(checkpoint_, tensor) : "";
      if (!lack.empty()) return lack;
    }
    return "";
  }

  void agree() {
    const std::uint64_t own_hash = hash_bytes(std::as_bytes(std::span(checkpoint_.index_text())));
    const std::vector<ByteRow> rows = gather_wants(session_, own_hash, own_fault(), table_of(tensors_));
    ranks_ = rows.size();
    raise_first_refusal(rows);
    std::uint64_t first_hash = 0;
    std::vector<std::byte> first_table;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      ByteReader in(rows[rank]);
      if (in.u32() == member_of(session_)) rank_ = rank;
      const std::uint64_t hash = in.u64();
      in.text(kMaxErrorText);
      const auto rest = in.raw(in.left());
      const std::vector<std::byte> table(rest.begin(), rest.end());
      if (rank == 0) {
        first_hash = hash;
        first_table = table;
      }
      if (hash != first_hash)
        throw std::runtime_error(say("rank ", rank, " reads another checkpoint than rank 0: ", checkpoint_.path()));
      if (table != first_table) {
        throw std::invalid_argument(
            say("rank 0 and rank ", rank, " load different tensors: ", difference_between(first_table, table)));
      }
    }
  }

  // Deals the blocks: block i is that of rank i % ranks_. Those of a rank lie one after the other in the files.
  void deal() {
    std::vector<BlockPlace> dealt(blocks_.size());
    std::size_t next = 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      for (std::size_t i = rank; i < dealt.size(); i += ranks_) dealt[i] = blocks_[next++];
    blocks_ = std::move(dealt);
  }

  void verify_own() {
    std::string failure;
    try {
      for (std::size_t i = rank_; i < blocks_.size(); i += ranks_) checkpoint_.verify(blocks_[i]);
    } catch (const std::exception& error) {
      failure = error.what();
    }
    raise_first(session_, "verify", failure, ranks_);
  }

  // All ranks read all blocks. On one host the disk reads them once, for the page cache that the ranks share.
  void deliver_alone(Delivery& delivery) {
    std::string failure;
    try {
      for (const BlockPlace place : staggered(delivery.blocks())) delivery.take(checkpoint_, place);
    } catch (const std::exception& error) {
      failure = error.what();
    }
    raise_first(session_, "read", failure, ranks_);
  }

  // Each rank is the first reader of a share of the blocks, one after the other in the files. Between two of them it
  // copies one block of each other share, which its first reader has read some blocks ago, while the disk goes on. Two
  // readers of the same place would wait for each other.
  std::vector<BlockPlace> staggered(const std::vector<BlockPlace>& places) const {
    constexpr std::size_t kBlocksBehind = 4;
    std::vector<BlockPlace> order;
    order.reserve(places.size());
    const std::size_t most = (places.size() + ranks_ - 1) / ranks_;  // of a share
    const auto take = [&](std::size_t share, std::size_t i) {
      const std::size_t at = share * places.size() / ranks_ + i;
      if (at < (share + 1) * places.size() / ranks_) order.push_back(places[at]);
    };
    for (std::size_t i = 0; i < most + kBlocksBehind; ++i) {
      take(rank_, i);
      for (std::size_t k = 1; k < ranks_ && i >= kBlocksBehind; ++k) take((rank_ + k) % ranks_, i - kBlocksBehind);
    }
    return order;
  }

  // In a round the next few blocks go from the ranks that have read them to all. While they travel, each rank reads its
  // next block.
  void deliver_in_rounds(const Delivery& delivery) {
    const std::size_t givers = std::min(ranks_, kMostGivers);
    std::array<std::unique_ptr<std::byte[]>, 2> own;
    for (auto& buffer : own) buffer = std::make_unique_for_overwrite<std::byte[]>(kBlockBytes + kTrailerBytes);
    const auto all = std::make_unique_for_overwrite<std::byte[]>(givers * kBlockBytes + ranks_ * kTrailerBytes);
    std::string failure;
    std::size_t current = 0;
    read_own(0, givers, own[current].get(), failure);
    for (std::size_t first = 0; first < blocks_.size(); first += givers) {
      const auto work = give(first, givers, own[current].get(), all.get());
      current = 1 - current;
      if (first + givers < blocks_.size()) read_own(first + givers, givers, own[current].get(), failure);
      session_->wait(std::span(&work, 1), TimePoint::max());
      work->outcome();
      take_round(delivery, first, givers, all.get(), failure);
    }
  }

  // The block that this rank gives in the round of these blocks; blocks_.size(): none.
  std::size_t own_block(std::size_t first, std::size_t givers, std::size_t rank) const {
    const std::size_t i = first + (rank + ranks_ - first % ranks_) % ranks_;
    return i < std::min(first + givers, blocks_.size()) ? i : blocks_.size();
  }
  std::size_t given_bytes(std::size_t first, std::size_t givers, std::size_t rank) const {
    const std::size_t i = own_block(first, givers, rank);
    return kTrailerBytes + (i < blocks_.size() ? checkpoint_.bytes_of(blocks_[i]) : 0);
  }

  void read_own(std::size_t first, std::size_t givers, std::byte* to, std::string& failure) {
    const std::size_t i = own_block(first, givers, rank_);
    std::size_t bytes = 0;
    if (i < blocks_.size()) {
      bytes = checkpoint_.bytes_of(blocks_[i]);
      try {
        if (failure.empty()) checkpoint_.read(blocks_[i], {to, bytes});
      } catch (const std::exception& error) {
        failure = error.what();
      }
    }
    std::memset(to + bytes, failure.empty() ? 0 : 1, kTrailerBytes);
  }

  std::shared_ptr<Work> give(std::size_t first, std::size_t givers, const std::byte* from, std::byte* to) {
    TensorSpec spec;
    spec.kind = CollectiveKind::kAllGather;
    spec.dtype = DType::kUint8;
    spec.name = "horo.checkpoint blocks";
    spec.once = true;
    spec.counts_known = true;
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      spec.splits.push_back(static_cast<std::int64_t>(given_bytes(first, givers, rank)));
    spec.shape = {spec.splits[rank_]};
    Submission submission;
    submission.in = from;
    submission.out = to;
    submission.out_bytes = static_cast<std::size_t>(std::accumulate(spec.splits.begin(), spec.splits.end(), 0LL));
    return session_->submit(spec, submission);
  }

  void take_round(const Delivery& delivery, std::size_t first, std::size_t givers, const std::byte* all,
                  const std::string& failure) {
    bool has_failed = false;
    const std::byte* at = all;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      at += given_bytes(first, givers, rank);
      has_failed = has_failed || at[-1] != std::byte{0};
    }
    if (has_failed) raise_first(session_, "failure", failure, ranks_);
    at = all;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const std::size_t i = own_block(first, givers, rank), bytes = given_bytes(first, givers, rank);
      if (i < blocks_.size()) delivery.deliver(blocks_[i], 0, {at, bytes - kTrailerBytes});
      at += bytes;
    }
  }

  Checkpoint& checkpoint_;
  Session* const session_;
  const std::vector<CheckpointTensor>& tensors_;
  std::vector<BlockPlace> blocks_;
  std::size_t rank_ = 0;
  std::size_t ranks_ = 1;
};

}  // namespace

void load(Checkpoint& checkpoint, Session* session, const std::vector<CheckpointTensor>& tensors, bool verifies_first) {
  Loading(checkpoint, session, tensors).run(verifies_first);
}

void refuse_load(Session* session, const std::string& why) {
  raise_first_refusal(gather_wants(session, 0, why, {}));
  throw std::invalid_argument(why);
}

void verify(Checkpoint& checkpoint, const std::function<void(std::uint64_t bytes)>& progress) {
  for (std::size_t part = 0; part < checkpoint.index().parts.size(); ++part) checkpoint.check_header(part);
  for (const BlockPlace place : checkpoint.blocks()) {
    checkpoint.verify(place);
    if (progress) progress(checkpoint.bytes_of(place));
  }
}

}  // namespace horo::checkpoint
