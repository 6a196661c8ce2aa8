// The parts of a two-level all_gather or reduce_scatter (ring/group/two_level_moves.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ring/algorithms/messages.h"
#include "ring/algorithms/shm/sums.h"
#include "ring/algorithms/shm/sync.h"
#include "ring/schedule/host_cells.h"

namespace horo {

// The messages of one collective that are in flight. A receive of a cell has its number; the two members of a message
// agree on its direction.
class CellMessages {
 public:
  using Op = Messenger::Op;

  // Both outlive it.
  CellMessages(const GroupContext& context, const Collective& c) : messenger_(context, c) {}

  Op send(int member, std::uint32_t number, std::span<const std::byte> out) {
    return open_.emplace_back(messenger_.send(member, number, out));
  }
  Op receive(int member, std::uint32_t number, std::span<std::byte> in) {
    return open_.emplace_back(messenger_.receive(member, number, in));
  }
  // Throw what Transport::wait() throws. After a Mismatch no message is in flight.
  void wait(Op op);
  void wait_for_all();
  bool are_open() const { return !open_.empty(); }

 private:
  void wait(std::span<const Op> ops);

  const Messenger messenger_;
  std::vector<Op> open_;
};

// What collectives of one shape have in common on this member.
struct BlockPlan {
  HostCells cells;
  std::vector<HostCells::Link> links;
  std::uint64_t shape = 0;  // for the SyncSignature
  std::size_t bytes = 0;    // of all blocks

  // Of reductions. The sum of a block joins the data of this host's members and the partial sums of the other hosts.
  struct Leaf {
    int position = HostCells::kNone;  // of a member of this host, or
    int host = HostCells::kNone;      // another host
  };
  std::vector<std::int64_t> contributors{};  // ids, by position on this host; kAbsent
  std::vector<TreeStep> tree{};              // over the leaves
  std::vector<Leaf> leaves{};
  std::vector<char> host_contributes{};  // by host
};

// One run of a collective. One thread.
class BlockExchange {
 public:
  struct Context {
    const GroupContext& group;
    const BlockPlan& plan;
    ShmSync* memory;  // null: this member is alone on its host
    const Collective& c;
    std::byte* out;
    CellMessages& messages;
  };
  explicit BlockExchange(const Context& context);
  virtual ~BlockExchange() = default;

  // The members of the host have arrived. Throws what Transport::wait() throws. Messages may still be in flight.
  virtual void run() = 0;
  // Posts all receives that run() has not posted.
  virtual void receive_rest() = 0;

 protected:
  static constexpr std::uint64_t kBuffersOfCell = 4;
  static constexpr std::uint64_t kCellsInBuffers = ShmSync::kSliceBuffers / kBuffersOfCell;

  const Collective& c() const { return of_.c; }
  const HostCells& cells() const { return of_.plan.cells; }
  CellMessages& messages() const { return of_.messages; }
  int me() const { return of_.group.index; }
  int neighbours() const { return of_.memory ? of_.memory->size() : 1; }
  const HostCells::Cell& cell_of(int position, std::size_t k) const { return cells().stream(position)[k]; }
  const std::vector<HostCells::Cell>& own_stream() const { return cells().stream(position_); }
  bool is_own(const HostCells::Cell& cell) const { return cell.block == me(); }

  // The slice buffers of the k-th cells.
  std::byte* buffer_of(int position, std::size_t k) const {
    return of_.memory->slice_buffer(position, (first_ + k) * kBuffersOfCell);
  }
  // Blocks until the members of the host have read what the buffers of the k-th cells held before.
  void wait_for_buffer(std::size_t k) const;
  void publish(SyncProgress progress, std::size_t k) const;
  // Blocks until no member of the host reads this member's buffers.
  void wait_until_read() const;
  // Moves messages without blocking, if there are many cells.
  void move_messages(std::size_t k) const;

  const Context of_;
  const int position_;
  std::uint64_t first_ = 0;  // step of the first cells
};

class BlockGather final : public BlockExchange {
 public:
  static constexpr HostCells::Lags kLags{0, 4};
  static constexpr std::size_t kCellBytes = kBuffersOfCell * ShmSync::kSliceBufferBytes;

  explicit BlockGather(const Context& context);
  void run() override;
  void receive_rest() override { receive_until(cells().length()); }

 private:
  void send_own();
  void receive_until(std::size_t end);
  void provide(std::size_t k);
  void collect(std::size_t k);

  std::vector<std::byte*> sources_;  // by position: outputs in arenas; null: data come through slice buffers
  std::vector<CellMessages::Op> receives_;
  std::size_t received_ = 0;  // cells whose receives are posted
};

class BlockReduction final : public BlockExchange {
 public:
  static constexpr HostCells::Lags kLags{4, 0};
  // Of cells that all other members of a host stage together.
  static constexpr std::size_t kCellsBytes = kBuffersOfCell * ShmSync::kSliceBufferBytes;

  // `scratch`: at least scratch_bytes().
  BlockReduction(const Context& context, std::span<std::byte> scratch);
  static std::size_t scratch_bytes(const BlockPlan& plan, const Collective& c);
  void run() override;
  void receive_rest() override { receive_until(cells().cells_of(me())); }

 private:
  static constexpr std::size_t kSends = 8, kReceives = 8;  // of cells in flight; more than the lag
  static_assert(kReceives > kLags.own);

  static std::size_t slot_bytes(const BlockPlan& plan, const Collective& c);
  bool contributes(int position) const { return of_.plan.contributors[static_cast<std::size_t>(position)] != kAbsent; }
  void receive_until(std::size_t end);
  void stage(std::size_t k);
  void wait_for_inputs(std::size_t k) const;
  const std::byte* input_of(int position, std::size_t k) const;
  std::size_t place_of(int source, int reader) const;
  void send_partial(std::size_t k);
  void sum_own(std::size_t k);
  std::byte* receive_slot(std::uint32_t number, std::size_t host) const;

  const std::span<std::byte> scratch_;
  const std::size_t slot_bytes_;
  const bool sends_;                 // some member of this host contributes
  std::vector<std::byte*> sources_;  // by position: inputs in arenas; null: data come through slice buffers
  ShmSums sums_;
  TreeReducer whole_;
  std::vector<TreeInput> inputs_;
  std::vector<CellMessages::Op> sent_;                   // by slot
  std::vector<std::vector<CellMessages::Op>> receives_;  // by slot
  std::size_t next_send_ = 0, received_ = 0;
};

}  // namespace horo
