#include "horo/state/transfer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "horo/base/fail_point.h"
#include "horo/base/hash.h"
#include "horo/base/say.h"
#include "horo/base/thread.h"
#include "horo/base/wire.h"
#include "horo/state/foreign_memory.h"
#include "horo/state/pieces.h"
#include "ring/os/process.h"

namespace horo {
namespace {

constexpr std::size_t kThreads = 2;  // of a rank that reads

using Row = std::vector<std::byte>;

// The bytes of each rank, by rank. Runs again without ranks that die meanwhile: the rows are those of the ranks that
// took part, the same on all of them.
std::vector<Row> gather(Session& session, const std::string& what, const Row& mine) {
  TensorSpec spec;
  spec.kind = CollectiveKind::kAllGather;
  spec.dtype = DType::kUint8;
  spec.name = "horo.state " + what;
  spec.once = true;
  spec.shape = {static_cast<std::int64_t>(mine.size())};
  const std::array works = {session.submit(spec, mine.data(), nullptr)};
  session.wait(works, TimePoint::max());
  const Outcome& outcome = works.front()->outcome();
  std::vector<Row> rows;
  const std::byte* at = outcome.data.get();
  for (const std::int64_t count : outcome.counts) {
    rows.emplace_back(at, at + count);
    at += count;
  }
  return rows;
}

struct Peer {
  std::uint32_t member = 0;
  std::uint64_t pid_space = 0;  // the hash of ProcessIdentity::space
  std::int64_t pid = 0;         // there; 0: in another one than this rank
  bool has_state = false;
  std::vector<std::uint64_t> addresses;  // of a donor, by buffer
  Row table;                             // of a donor
};

Row row_of(const Peer& peer) {
  ByteWriter out;
  out.u32(peer.member);
  out.u64(peer.pid_space);
  out.u64(static_cast<std::uint64_t>(peer.pid));
  out.u8(peer.has_state ? 1 : 0);
  out.u32(static_cast<std::uint32_t>(peer.addresses.size()));
  for (const std::uint64_t address : peer.addresses) out.u64(address);
  out.raw(peer.table);
  return out.take();
}

Peer peer_in(const Row& row) {
  ByteReader in(row);
  Peer peer;
  peer.member = in.u32();
  peer.pid_space = in.u64();
  peer.pid = static_cast<std::int64_t>(in.u64());
  peer.has_state = in.u8() != 0;
  const std::uint32_t count = in.count(8);
  for (std::uint32_t i = 0; i < count; ++i) peer.addresses.push_back(in.u64());
  const auto table = in.raw(in.left());
  peer.table.assign(table.begin(), table.end());
  return peer;
}

// What a rank says after a turn.
enum class Said : std::uint8_t { kNothing, kRead, kRefused, kLost };

// The transfer to one rank that joins.
class Turn {
 public:
  Turn(Session& session, std::span<const NamedBuffer> buffers, const Peer& me, const Peer& joiner,
       const std::vector<const Peer*>& donors)
      : session_(session), buffers_(buffers), me_(me), joiner_(joiner), donors_(donors), pieces_(pieces_of(buffers)) {
    hashes_.resize(pieces_.size());
  }

  // Whether the rank that joins has everything.
  bool run(bool reads_memory) {
    {
      const bool gives = is_donor();
      const std::unique_ptr<ReadableBy> readable = gives ? std::make_unique<ReadableBy>(joiner_.pid) : nullptr;
      fail_point("transfer.met");
      tell("may be read", Said::kNothing, {});
      fail_point("transfer.may_read");
      if (gives) hash_own();
      const Said said = !is_joiner() ? Said::kNothing : reads_memory ? read() : Said::kRefused;
      fail_point("transfer.read");
      tell("was read", said, gives ? own_hashes() : std::vector<std::uint64_t>());
    }
    Said said = said_.contains(joiner_.member) ? said_.at(joiner_.member) : Said::kLost;
    by_messages_ = said == Said::kRefused;
    if (by_messages_) said = by_messages();
    const bool are_here =
        std::ranges::all_of(donors_, [this](const Peer* donor) { return said_.contains(donor->member); });
    if (said != Said::kRead || !are_here) return false;
    if (is_joiner()) check();
    return true;
  }
  bool by_messages_used() const { return by_messages_; }

 private:
  bool is_joiner() const { return me_.member == joiner_.member; }
  bool is_donor() const {
    return std::ranges::any_of(donors_, [this](const Peer* donor) { return donor->member == me_.member; });
  }
  const Peer& donor_of(std::size_t piece) const {
    const bool is_of_first = buffers_[pieces_[piece].front().buffer].is_of_first;
    return *donors_[is_of_first ? 0 : piece % donors_.size()];
  }

  void tell(const char* what, Said said, const std::vector<std::uint64_t>& hashes) {
    ByteWriter mine;
    mine.u32(me_.member);
    mine.u8(static_cast<std::uint8_t>(said));
    for (const std::uint64_t hash : hashes) mine.u64(hash);
    said_.clear();
    for (const Row& row : gather(session_, what, mine.take())) {
      ByteReader in(row);
      const std::uint32_t member = in.u32();
      said_[member] = static_cast<Said>(in.u8());
      std::vector<std::uint64_t>& theirs = their_hashes_[member];
      for (theirs.clear(); in.left() >= 8;) theirs.push_back(in.u64());
    }
  }

  void hash_own() {
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
      if (donor_of(piece).member == me_.member) hashes_[piece] = hash_of(pieces_[piece], buffers_);
    }
  }
  std::vector<std::uint64_t> own_hashes() const {
    std::vector<std::uint64_t> own;
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
      if (donor_of(piece).member == me_.member) own.push_back(hashes_[piece]);
    }
    return own;
  }

  bool copy(std::size_t piece, std::size_t most = SIZE_MAX) {
    const Peer& donor = donor_of(piece);
    std::vector<ForeignPart> parts;
    for (const StatePart& part : pieces_[piece]) {
      parts.push_back({donor.addresses[part.buffer] + part.offset, buffers_[part.buffer].data + part.offset,
                       std::min(part.bytes, most)});
      if (most != SIZE_MAX) break;
    }
    fail_point("transfer.piece");
    const bool is_read = donor.pid > 0 && read_memory(donor.pid, parts);
    if (is_read && most == SIZE_MAX) hashes_[piece] = hash_of(pieces_[piece], buffers_);
    return is_read;
  }

  // A byte of each donor shows whether the kernel allows it.
  Said read() {
    std::atomic<bool> is_allowed = true;
    for (std::size_t piece = 0; piece < std::min(donors_.size(), pieces_.size()); ++piece) {
      if (!copy(piece, 1)) is_allowed = false;
    }
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
      for (std::size_t piece = next++; piece < pieces_.size() && is_allowed; piece = next++) {
        if (!copy(piece)) is_allowed = false;
      }
    };
    {
      std::vector<std::jthread> threads;
      if (is_allowed) {
        for (std::size_t i = 1; i < std::min(kThreads, pieces_.size()); ++i)
          threads.push_back(start_thread("horo transfer", work));
        work();
      }
    }
    // If a donor is gone, its rows of messages are missing.
    return is_allowed ? Said::kRead : Said::kRefused;
  }

  // Each donor contributes one of its pieces at a time. All ranks see the same rows, so that none waits for another.
  Said by_messages() {
    for (std::size_t first = 0; first < pieces_.size(); first += donors_.size()) {
      const std::size_t end = std::min(first + donors_.size(), pieces_.size());
      ByteWriter mine;
      mine.u32(me_.member);
      for (std::size_t piece = first; piece < end; ++piece) {
        if (donor_of(piece).member != me_.member) continue;
        for (const StatePart& part : pieces_[piece]) mine.raw({buffers_[part.buffer].data + part.offset, part.bytes});
      }
      std::map<std::uint32_t, Row> rows;
      for (Row& row : gather(session_, "piece", mine.take())) {
        const std::uint32_t member = ByteReader(row).u32();
        rows[member] = std::move(row);
      }
      std::map<std::uint32_t, std::span<const std::byte>> left;  // of the rows
      for (const auto& [member, row] : rows) left[member] = std::span(row).subspan(4);
      for (std::size_t piece = first; piece < end; ++piece) {
        const auto found = left.find(donor_of(piece).member);
        if (found == left.end()) return Said::kLost;
        if (is_joiner()) store(piece, found->second);
      }
    }
    return Said::kRead;
  }

  void store(std::size_t piece, std::span<const std::byte>& content) {
    for (const StatePart& part : pieces_[piece]) {
      if (content.size() < part.bytes) throw std::runtime_error("a piece of the state is too short");
      std::memcpy(buffers_[part.buffer].data + part.offset, content.data(), part.bytes);
      content = content.subspan(part.bytes);
    }
    hashes_[piece] = hash_of(pieces_[piece], buffers_);
  }

  void check() const {
    std::map<std::uint32_t, std::size_t> next;
    for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
      const Peer& donor = donor_of(piece);
      const std::vector<std::uint64_t>& theirs = their_hashes_.at(donor.member);
      const std::size_t place = next[donor.member]++;
      if (place < theirs.size() && theirs[place] == hashes_[piece]) continue;
      throw std::runtime_error(say("rank ", me_.member, ": ", buffers_[pieces_[piece].front().buffer].name,
                                   " has arrived from rank ", donor.member, " with other bytes"));
    }
  }

  Session& session_;
  const std::span<const NamedBuffer> buffers_;
  const Peer& me_;
  const Peer& joiner_;
  const std::vector<const Peer*>& donors_;
  const std::vector<StatePiece> pieces_;
  std::vector<std::uint64_t> hashes_;  // of the pieces, in this memory
  std::map<std::uint32_t, Said> said_;
  std::map<std::uint32_t, std::vector<std::uint64_t>> their_hashes_;  // of a donor's pieces, in order
  bool by_messages_ = false;
};

Peer this_rank(Session& session, std::span<const NamedBuffer> buffers, bool has_state) {
  Peer peer;
  const Topology topology = session.topology();
  peer.member = session.members().at(static_cast<std::size_t>(topology.rank));
  const ProcessIdentity process = this_process();
  peer.pid_space = hash_bytes(std::as_bytes(std::span(process.space)));
  peer.pid = process.pid;
  peer.has_state = has_state;
  if (!has_state) return peer;
  for (const NamedBuffer& buffer : buffers) peer.addresses.push_back(reinterpret_cast<std::uintptr_t>(buffer.data));
  peer.table = table_of(buffers);
  return peer;
}

}  // namespace

std::string text_of(const Transferred& moved) {
  std::array<char, 64> size{};
  double number = static_cast<double>(moved.bytes);
  const char* unit = "bytes";
  for (const char* larger : {"KiB", "MiB", "GiB"}) {
    if (number < 1024) break;
    number /= 1024;
    unit = larger;
  }
  std::snprintf(size.data(), size.size(), "%.4g %s", number, unit);
  std::string ranks;
  for (const std::uint32_t rank : moved.donors) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  return say(size.data(), " from rank", moved.donors.size() == 1 ? " " : "s ", ranks, " in ",
             static_cast<int>(moved.seconds * 1000 + 0.5), " ms", moved.by_messages ? " by messages" : "");
}

static Transferred transfer_among(Session& session, std::span<const NamedBuffer> buffers, bool has_state,
                                  bool reads_memory) {
  const TimePoint begin = Clock::now();
  const Peer mine = this_rank(session, buffers, has_state);
  std::vector<Peer> peers;
  for (const Row& row : gather(session, "peers", row_of(mine))) peers.push_back(peer_in(row));
  for (Peer& peer : peers) {  // its number may be that of any process here
    if (peer.pid_space != mine.pid_space) peer.pid = 0;
  }
  const auto me = std::ranges::find(peers, mine.member, &Peer::member);
  if (me == peers.end()) throw std::runtime_error("transfer_state: the ranks have changed in another thread");
  const auto first = std::ranges::find(peers, true, &Peer::has_state);
  if (first == peers.end()) return {has_state, 0, {}, 0, false};
  std::vector<const Peer*> donors;
  for (const Peer& peer : peers) {
    if (!peer.has_state) continue;
    if (peer.table != first->table) {
      throw std::runtime_error(say("rank ", first->member, " and rank ", peer.member, ", which have the state, have ",
                                   "other buffers: give all ranks the same script, settings and data"));
    }
    donors.push_back(&peer);
  }
  if (!has_state) {
    const std::string difference = difference_of(buffers, first->table);
    if (!difference.empty()) {
      throw std::invalid_argument(say("rank ", mine.member, ": the state of this rank differs from that of the ranks ",
                                      "that it joins: ", difference, ". Give all ranks the same script, settings and ",
                                      "data"));
    }
  }
  Transferred moved{has_state, 0, {}, 0, false};
  for (const Peer& joiner : peers) {
    if (joiner.has_state) continue;
    Turn turn(session, buffers, *me, joiner, donors);
    const bool is_complete = turn.run(reads_memory);
    if (joiner.member != mine.member) continue;
    moved.is_complete = is_complete;
    moved.by_messages = turn.by_messages_used();
    for (const Peer* donor : donors) moved.donors.push_back(donor->member);
    for (const NamedBuffer& buffer : buffers) moved.bytes += buffer.bytes;
    moved.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  return moved;
}

// The others wait for a rank that joins, so it leaves if it fails alone.
Transferred transfer_state(Session& session, std::span<const NamedBuffer> buffers, bool has_state, bool reads_memory) {
  try {
    return transfer_among(session, buffers, has_state, reads_memory);
  } catch (const PeerLost&) {
    throw;
  } catch (const ShutDown&) {
    throw;
  } catch (const std::exception& error) {
    if (!has_state && session.config().min_np > 0) session.abort(error.what());
    throw;
  }
}

}  // namespace horo
