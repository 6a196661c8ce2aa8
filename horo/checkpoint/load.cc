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
constexpr std::uint32_t kMostTensors = 1 << 28;
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
struct Wants {
  std::uint64_t hash = 0;  // of the index
  std::string fault;
  std::string are_new;  // a byte for each tensor: 1 if its memory is new
  std::vector<std::byte> table;
};

std::vector<ByteRow> gather_wants(Session* session, const Wants& wants) {
  ByteWriter out;
  out.u32(member_of(session));
  out.u64(wants.hash);
  out.text(wants.fault);
  out.text(wants.are_new);
  out.raw(wants.table);
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
    if (!verifies_first) are_new_.assign(tensors_.size(), '\1');
    Delivery delivery(checkpoint_, tensors_);
    const std::vector<Delivery::Block> blocks = delivery.blocks(are_new_);
    if (session_ == nullptr || session_->topology().local_size == session_->topology().size) {
      deliver_alone(delivery, blocks);
    } else {
      deliver_over_hosts(delivery, blocks);
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
    for (const CheckpointTensor& tensor : tensors_) are_new_.push_back(tensor.is_new ? '\1' : '\0');
    const std::vector<ByteRow> rows = gather_wants(session_, {own_hash, own_fault(), are_new_, table_of(tensors_)});
    ranks_ = rows.size();
    raise_first_refusal(rows);
    std::uint64_t first_hash = 0;
    std::vector<std::byte> first_table;
    std::vector<std::string> are_new;  // by rank
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      ByteReader in(rows[rank]);
      if (in.u32() == member_of(session_)) rank_ = rank;
      const std::uint64_t hash = in.u64();
      in.text(kMaxErrorText);
      are_new.push_back(in.text(kMostTensors));
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
    for (const std::string& one : are_new) {
      for (std::size_t i = 0; i < are_new_.size(); ++i) {
        if (one[i] == '\0') are_new_[i] = '\0';
      }
    }
  }

  // All ranks do their part; the first error of one of them is thrown on all.
  template <class Part>
  void together(const char* what, Part part) {
    std::string failure;
    try {
      part();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    raise_first(session_, what, failure, ranks_);
  }

  // All ranks read all blocks. On one host the disk reads them once, for the page cache that the ranks share. Memory in
  // use is written when all blocks are verified: those that are not taken before, each by one rank.
  void deliver_alone(Delivery& delivery, const std::vector<Delivery::Block>& blocks) {
    const std::vector<Turn> turns = staggered(blocks);
    together("verify", [&] {
      for (const auto& [block, is_own] : turns) {
        if (block.is_new) {
          delivery.take(checkpoint_, block.place);
        } else if (is_own) {
          checkpoint_.verify(block.place);
        }
      }
    });
    if (std::ranges::all_of(blocks, &Delivery::Block::is_new)) return;
    together("read", [&] {
      for (const auto& [block, is_own] : turns) {
        if (!block.is_new) delivery.take(checkpoint_, block.place);
      }
    });
  }

  struct Turn {
    Delivery::Block block;
    bool is_own = false;  // of the share of this rank
  };

  // Each rank is the first reader of a share of the blocks, one after the other in the files. Between two of them it
  // copies one block of each other share, which its first reader has read some blocks ago, while the disk goes on. Two
  // readers of the same place would wait for each other.
  std::vector<Turn> staggered(const std::vector<Delivery::Block>& blocks) const {
    constexpr std::size_t kBlocksBehind = 4;
    std::vector<Turn> order;
    order.reserve(blocks.size());
    const std::size_t most = (blocks.size() + ranks_ - 1) / ranks_;  // of a share
    const auto take = [&](std::size_t share, std::size_t i) {
      const std::size_t at = share * blocks.size() / ranks_ + i;
      if (at < (share + 1) * blocks.size() / ranks_) order.push_back({blocks[at], share == rank_});
    };
    for (std::size_t i = 0; i < most + kBlocksBehind; ++i) {
      take(rank_, i);
      for (std::size_t k = 1; k < ranks_ && i >= kBlocksBehind; ++k) take((rank_ + k) % ranks_, i - kBlocksBehind);
    }
    return order;
  }

  // Blocks of new memory go first: memory in use is written when all blocks are verified.
  void deliver_over_hosts(const Delivery& delivery, const std::vector<Delivery::Block>& blocks) {
    const std::vector<BlockPlace> in_use = dealt(blocks, false);
    if (!in_use.empty()) {
      together("verify", [&] {
        for (std::size_t i = rank_; i < in_use.size(); i += ranks_) checkpoint_.verify(in_use[i]);
      });
    }
    for (const auto& places : {dealt(blocks, true), in_use}) {
      blocks_ = places;
      if (!blocks_.empty()) deliver_in_rounds(delivery);
    }
  }

  // Deals the blocks: block i is that of rank i % ranks_. Those of a rank lie one after the other in the files.
  std::vector<BlockPlace> dealt(const std::vector<Delivery::Block>& blocks, bool are_new) const {
    std::vector<BlockPlace> places;
    for (const Delivery::Block& block : blocks) {
      if (block.is_new == are_new) places.push_back(block.place);
    }
    std::vector<BlockPlace> dealt(places.size());
    std::size_t next = 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      for (std::size_t i = rank; i < dealt.size(); i += ranks_) dealt[i] = places[next++];
    return dealt;
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
  std::string are_new_;             // on all ranks: a byte for each tensor
  std::vector<BlockPlace> blocks_;  // of the rounds
  std::size_t rank_ = 0;
  std::size_t ranks_ = 1;
};

}  // namespace

void load(Checkpoint& checkpoint, Session* session, const std::vector<CheckpointTensor>& tensors, bool verifies_first) {
  Loading(checkpoint, session, tensors).run(verifies_first);
}

void refuse_load(Session* session, const std::string& why) {
  raise_first_refusal(gather_wants(session, {0, why, "", {}}));
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
