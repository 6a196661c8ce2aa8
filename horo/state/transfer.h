// The transfer of a state: the ranks that have joined a job get the bytes of named buffers from the memory of all ranks
// that have them.
//
// The buffers are cut into pieces, which are dealt to the donors in turn. On one host a rank that joins reads the
// pieces from the donors' memory, where the kernel lets it (process_vm_readv), which a byte of each donor shows; else
// the donors give them to gathers. Both ends hash each piece. Ranks that join at the same time read one after the
// other, because a process can allow one other to read its memory (PR_SET_PTRACER), and it takes that back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "horo/session.h"

namespace horo {

// Memory of the host. Name and form are equal on all ranks; the form says what the bytes are: "float32[16, 3]".
struct NamedBuffer {
  std::string name;
  std::string form;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool is_of_first = false;  // ranks may have different values: all of it comes from the first donor
};

struct Transferred {
  bool is_complete = false;  // this rank has the state. Not so: a donor was lost meanwhile, begin another transfer
  std::size_t bytes = 0;     // that this rank has got, as what follows: 0 at a donor
  std::vector<std::uint32_t> donors;  // MemberIds: the numbers that horo run prints
  double seconds = 0;
  bool by_messages = false;  // the kernel did not let it read
};
// "256 MiB from ranks 0, 1, 2 in 41 ms", for Session::synced.
std::string text_of(const Transferred& moved);

// Collective of the world: all ranks call it between two rounds, so that the memory of the donors does not change, with
// the same buffers in the same order. Nothing is written before names and forms are compared. Blocks. Throws
// std::invalid_argument on a rank that joins alone, if its buffers differ, with the first difference: the others go on
// when its process has ended. Throws std::runtime_error if bytes have arrived with another hash, PeerLost or ShutDown.
// reads_memory: false on any rank that joins: the donors give it the bytes by messages.
Transferred transfer_state(Session& session, std::span<const NamedBuffer> buffers, bool has_state,
                           bool reads_memory = true);

}  // namespace horo
