// ShmMeeting: how ranks that see each other's memory meet in it. Each has a board in its arena that the others read: it
// says how often its member has come and what it came for, and has room for what is passed on.
//
// The n-th meeting is the same one on all members. A member that comes to the n-th has seen all others come to the
// (n-1)-th, so what it wrote for the (n-2)-th has been read by everybody: what goes with a mark exists twice. After a
// meeting members tell each other how far they have got, in steps that grow from collective to collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ring/host_algorithms.h"
#include "ring/shm_arena.h"
#include "ring/transport.h"
#include "ring/waiting.h"

namespace horo {

// The thread that starts the group's collectives alone.
class ShmMeeting {
 public:
  // A member's board, in its arena; before the members meet.
  static Allocation make_board(ShmArenas& arenas);

  // `boards`: by member, where its board lies in its arena; `mine` is this member's. Throws ProtocolError for places
  // that cannot be.
  ShmMeeting(const Party& party, std::shared_ptr<ShmArenas> arenas, Allocation mine,
             const std::vector<std::int64_t>& boards, Patience patience);

  int size() const { return static_cast<int>(members_.size()); }
  int index() const { return index_; }
  std::uint64_t number() const { return number_; }  // of the last meeting that this member came to
  const ShmArenas& arenas() const { return *arenas_; }
  int rank_of(int member) const { return members_[static_cast<std::size_t>(member)]; }

  // What a member brings, beside its plan.
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
  struct Arrival {
    std::size_t bytes = 0;
    std::uint64_t place = kNowhere;  // of its buffer in its arena
  };
  // This member comes to the next meeting.
  void come(const Collective& collective, const Arrival& arrival);
  // Until all others have come to the last one, too. Throws what Transport::wait() throws: a Mismatch on all members
  // alike, after which the next meeting works.
  void await_all(const Collective& collective);
  // Where the buffer of a member lies here, which came to this meeting with a place.
  std::byte* buffer_of(int member, std::size_t bytes) const;
  // How many came with a place.
  int places() const;

  // Two kinds of progress.
  enum class Work { kStaged, kSummed };
  void reached(Work work, std::uint64_t step);
  void await_reached(const Collective& collective, Work work, std::uint64_t step);

  // Memory that goes with a meeting, and memory for steps: more of both than a core's own caches hold, since lines that
  // another core has just read take three times as long to write.
  static constexpr std::size_t kFlatBytes = 4096;
  static constexpr std::size_t kFewBytes = 24;  // at most: they lie in the mark itself
  std::byte* flat_of(int member, std::size_t bytes, std::uint64_t meeting) const;
  static constexpr std::size_t kStageBytes = 64 << 10;
  static constexpr std::uint64_t kStages = 33;
  std::byte* stage_of(int member, std::uint64_t step) const;

 private:
  struct Mark;
  struct Board;

  Board& board(int member) const { return *boards_[static_cast<std::size_t>(member)]; }
  const Mark& mark_of(int member) const;
  void tell();
  void settle();
  template <class IsThere>
  void await(const Collective& c, int member, IsThere is_there);
  template <class IsThere>
  void await_longer(const Collective& c, int member, IsThere is_there);
  template <class Ready>
  void doze(Ready ready, Board& other);
  template <class IsThere>
  void give_up_if_late(const Collective& c, int member, IsThere is_there) const;
  void check_alike(const Collective& c) const;

  Transport& transport_;
  const std::shared_ptr<ShmArenas> arenas_;
  const std::vector<int> members_;  // world ranks
  const int index_;
  const Allocation mine_;
  std::vector<Board*> boards_;
  const Patience patience_;
  std::uint64_t number_ = 0;
  std::uint64_t told_ = 0;
  bool is_settled_ = true;
};

}  // namespace horo
