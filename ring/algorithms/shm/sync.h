// ShmSync: how ranks that see each other's memory meet in it. Each has a board in its arena that the others read: it
// says how often its member has come and what it came for, and has room for what is passed on.
//
// The n-th meeting is the same one on all members. Who comes to it has read all that it wanted of the one before, and
// of those before that. Not all wait for all: who only gives may leave when its mark is made. So there are many marks,
// and nobody comes to a meeting before he has seen all others come to one that is less than kMarks ago: then the mark
// that he overwrites has been read by everybody, and the flat that went with it. After a meeting of all, in which
// everything before has ended, members tell each other how far they have got, in steps that grow from collective to
// collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ring/algorithms/messages.h"
#include "ring/os/waiting.h"
#include "ring/shm/arena.h"
#include "ring/transport.h"

namespace horo {

// The thread that starts the group's collectives alone.
class ShmSync {
 public:
  // A member's board, in its arena; before the members meet.
  static Allocation make_board(ShmArenas& arenas);

  // `boards`: by member, where its board lies in its arena; `mine` is this member's. Throws ProtocolError for places
  // that cannot be.
  ShmSync(const Party& party, std::shared_ptr<ShmArenas> arenas, Allocation mine,
          const std::vector<std::int64_t>& boards, WaitPatience patience);

  // For who has messages under way beside a meeting: while it waits here, it moves them.
  void move_messages() { moves_messages_ = true; }

  int size() const { return static_cast<int>(members_.size()); }
  int index() const { return index_; }
  std::uint64_t number() const { return number_; }  // of the last meeting that this member came to
  const ShmArenas& arenas() const { return *arenas_; }
  int rank_of(int member) const { return members_[static_cast<std::size_t>(member)]; }

  // What a member brings, beside its plan: a number for the kind of collective and what must be equal on all (the kind
  // is in its first byte), bytes that are equal on all, and where its buffers lie in its arena. Those with few bytes
  // bring no places.
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};
  struct Arrival {
    std::uint64_t shape = 0;
    std::size_t bytes = 0;
    std::uint64_t in = kNowhere;
    std::uint64_t out = kNowhere;
  };
  // Until the next meeting's mark and flat may be written. Waits seldom: for those who are far behind.
  void approach(const Collective& collective) {
    if (number_ + 1 >= seen_ + kMarks) await_marks(collective);
  }
  // This member, which has approached, comes to the next meeting.
  void come(const Collective& collective, const Arrival& arrival);
  static constexpr int kEveryone = -1;
  // Until that member, or all others, have come to the last one, too. Throws what Transport::wait() throws: a Mismatch,
  // if all wait for all on all members alike, after which the next meeting works.
  void await_come(const Collective& collective, int whom = kEveryone);
  // Where the buffers of a member lie here; null: it came without that place.
  std::byte* in_of(int member, std::size_t bytes) const;
  std::byte* out_of(int member, std::size_t bytes) const;

  // Parts of what all do together after a meeting of all, which are handed out by number to whoever has time: from 0 on
  // for each member's share of the work; `parts` or more: none is left. Until all have reached a later step; the next
  // meeting begins anew.
  std::uint64_t claim(int member, std::uint64_t parts);

  // memcpy() to a stage of this member's, from where `whom` takes it: past the caches if its core, or that of any, is
  // far. Who comes with much that lies nowhere looks at one other member each time, a different one in turn.
  void pass_on(std::byte* stage, const std::byte* from, std::size_t bytes, int whom) const;
  bool is_far(int whom) const { return whom == kEveryone ? far_count_ > 0 : far_[static_cast<std::size_t>(whom)] != 0; }
  // HORO_SHM_PAST_CACHES: whatever is measured from now on, unless it is "auto".
  void set_past_caches(const std::string& setting);

  // Kinds of progress.
  enum class Work { kStaged, kSummed, kTaken };
  void reached(Work work, std::uint64_t step);
  void await_reached(const Collective& collective, Work work, std::uint64_t step, int whom = kEveryone);
  // This member will get no further in this collective: who waits for it throws a Mismatch.
  void give_up();
  // Until all others have reached that step, or have given up.
  void await_end(const Collective& collective, Work work, std::uint64_t step);

  // Memory that goes with a meeting, and memory for steps: more of both than a core's own caches hold, since lines that
  // another core has just read take three times as long to write. Nobody reads his own back: it lies in the caches of
  // those who looked.
  static constexpr std::size_t kFlatBytes = 4096;
  static constexpr std::size_t kFewBytes = 24;  // at most: they lie in the mark itself
  std::byte* flat_of(int member, std::size_t bytes, std::uint64_t meeting) const;
  // For who will lay as many bytes beside its next mark, while it waits for others.
  void fetch_next_flat(std::size_t bytes);
  static constexpr std::size_t kStageBytes = 64 << 10;
  static constexpr std::uint64_t kStages = 24;
  std::byte* stage_of(int member, std::uint64_t step) const;

 private:
  // What must be equal on all that come to a meeting.
  struct Plan {
    std::uint64_t plan = 0, key_hash = 0, shape = 0, bytes = 0;
    bool operator==(const Plan&) const = default;
  };
  struct Mark;
  struct Board;
  class Sleep;
  static constexpr std::uint64_t kMarks = 64;

  Board& board(int member) const { return *boards_[static_cast<std::size_t>(member)]; }
  const Mark& mark_of(int member) const;
  const Plan& plan_of(int member) const;
  bool has_come(int member, std::uint64_t meeting) const;
  bool has_reached(int member, Work work, std::uint64_t step) const;
  bool has_given_up(int member) const;
  std::byte* at(int member, std::uint64_t place, std::size_t bytes) const;
  void await_marks(const Collective& c);
  void fetch_next_mark();
  bool is_look_due(std::size_t bytes);  // for all members alike
  void look_at_lines();
  void tell();
  template <class IsThere>
  void await_whom(const Collective& c, int whom, IsThere is_there);
  template <class IsThere>
  void await(const Collective& c, int member, IsThere is_there);
  template <class IsThere>
  void await_longer(const Collective& c, int member, IsThere is_there);
  template <class IsThere>
  bool spins(int member, IsThere is_there);
  template <class IsThere>
  bool shares_core(int core, IsThere is_there) const;
  template <class IsThere>
  void throw_if_late(const Collective& c, int member, IsThere is_there) const;
  void check_alike(const Collective& c, int one, int other) const;
  void check_all_alike(const Collective& c) const;

  Transport& transport_;
  const std::shared_ptr<ShmArenas> arenas_;
  const std::vector<int> members_;  // world ranks
  const int index_;
  const Allocation mine_;
  std::vector<Board*> boards_, others_;
  const WaitPatience patience_;
  std::uint64_t number_ = 0;
  Plan plan_;  // brought to the last meeting, and where the buffers lie
  std::uint64_t in_ = kNowhere, out_ = kNowhere;
  std::uint64_t seen_ = 0;  // a meeting that all have come to
  bool moves_messages_ = false;
  bool has_claimed_ = false;  // in the last meeting
  std::vector<char> far_;     // by member
  int far_count_ = 0;
  bool is_distance_given_ = false;
  std::uint64_t looks_ = 0, short_ = 0;  // at how far lines are; tensors of which few are looked at
  bool looks_at_lines_ = false;          // in the last meeting
};

}  // namespace horo
