// Collectives that only move bytes: all_gather and broadcast send straight to everybody; the barrier disseminates
// (Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", 1988): after round k everybody knows that
// 2^(k+1) members have come.

#include <algorithm>
#include <cstring>

#include "ring/host_algorithms.h"

namespace horo {
namespace {

// A buffer travels in several messages, so that other channels get their turn in between, but never in very many.
constexpr std::size_t kMostPieces = 64;

class Pieces {
 public:
  Pieces(const Party& party, std::span<std::byte> bytes)
      : bytes_(bytes), count_(std::clamp<std::size_t>(pieces_for(bytes.size(), party.segment_bytes), 1, kMostPieces)) {}

  std::size_t count() const { return bytes_.empty() ? 0 : count_; }
  std::span<std::byte> operator[](std::size_t i) const {
    const Shard piece = piece_of({0, bytes_.size()}, count_, i);
    return bytes_.subspan(piece.begin, piece.size);
  }

 private:
  std::span<std::byte> bytes_;
  std::size_t count_;
};

using Ops = std::vector<Mail::Op>;

void send_all(const Mail& mail, int member, const Pieces& pieces, Ops& ops) {
  for (std::size_t i = 0; i < pieces.count(); ++i) {
    ops.push_back(mail.send(member, static_cast<std::uint32_t>(i), pieces[i]));
  }
}

void receive_all(const Mail& mail, int member, const Pieces& pieces, Ops& ops) {
  for (std::size_t i = 0; i < pieces.count(); ++i) {
    ops.push_back(mail.receive(member, static_cast<std::uint32_t>(i), pieces[i]));
  }
}

}  // namespace

void all_gather(const Party& party, const Collective& c) {
  const Mail mail(party, c);
  const std::vector<Shard> shards = shards_of(c, party.size());
  const auto block = [&](int member) {
    return bytes_of(c.out.data, shards[static_cast<std::size_t>(member)], size_of(c.dtype));
  };
  const auto mine = block(party.index);
  if (!mine.empty() && mine.data() != c.in.data) std::memmove(mine.data(), c.in.data, mine.size());
  Ops ops;
  for (int k = 1; k < party.size(); ++k) {
    const int to = (party.index + k) % party.size();
    const int from = (party.index - k + party.size()) % party.size();
    receive_all(mail, from, Pieces(party, block(from)), ops);
    send_all(mail, to, Pieces(party, mine), ops);
  }
  mail.wait(ops);
}

void broadcast(const Party& party, const Collective& c) {
  const Mail mail(party, c);
  const std::size_t bytes = c.counts[0] * size_of(c.dtype);
  Ops ops;
  if (party.index != c.root) {
    receive_all(mail, c.root, Pieces(party, {c.out.data, bytes}), ops);
    return mail.wait(ops);
  }
  for (int k = 1; k < party.size(); ++k) {
    send_all(mail, (c.root + k) % party.size(), Pieces(party, {c.in.data, bytes}), ops);
  }
  if (bytes > 0 && c.out.data != c.in.data) std::memcpy(c.out.data, c.in.data, bytes);
  mail.wait(ops);
}

void barrier(const Party& party, const Collective& c) {
  const Mail mail(party, c);
  std::uint32_t round = 0;
  for (int distance = 1; distance < party.size(); distance *= 2, ++round) {
    const int to = (party.index + distance) % party.size();
    const int from = (party.index - distance + party.size()) % party.size();
    const Ops ops{mail.receive(from, round, {}), mail.send(to, round, {})};
    mail.wait(ops);
  }
}

}  // namespace horo
