// HostCells: how the members of several hosts divide the exchange of blocks. Each member has a block: its input of an
// all_gather, or its result of a reduce_scatter. A block is cut into cells. On every other host one member, the cell's
// partner, has to do with the cell: it receives it for its host, or sends its host's partial sum of it. So each cell
// crosses once to every other host. Where hosts differ in their number of members, the cells of a block take turns
// among several partners.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "horo/base/shard.h"
#include "ring/schedule/rails.h"

namespace horo {

// Members are indices in the group; positions are places among the members of a host.
class HostCells {
 public:
  static constexpr int kNone = -1;
  struct Cell {
    int block = kNone;         // of this member; kNone: a gap in a stream
    std::uint32_t number = 0;  // in the block
    Shard range;               // in bytes, of all blocks one behind the other
  };

  // The cells come in turns: of each block the first ones, the second ones ... One of these is later by that many turns
  // than the other: a member's own cells, or the cells whose partner it is.
  struct Lags {
    std::size_t own = 0;
    std::size_t others = 0;
  };
  // `begins`: by block, in bytes; and the end of the last one. `host`: whose streams are made.
  HostCells(HostsOfGroup hosts, int host, std::vector<std::size_t> begins, std::size_t cell_bytes, Lags lags);

  // The cells with which a member of the host has to do, in the order in which it handles them. The streams of a host
  // have equal lengths. The first cells come before the second ones in all streams, so members that handle the cells
  // with the same index together do not wait for each other in a circle.
  const std::vector<Cell>& stream(int position) const { return streams_[static_cast<std::size_t>(position)]; }
  std::size_t length() const { return streams_.front().size(); }
  std::size_t most_bytes() const { return most_bytes_; }  // of a cell

  const HostsOfGroup& hosts() const { return hosts_; }
  int host() const { return host_; }
  int host_of(int member) const { return host_of_[static_cast<std::size_t>(member)]; }
  int position_of(int member) const { return position_of_[static_cast<std::size_t>(member)]; }
  Shard block(int member) const {
    const auto at = static_cast<std::size_t>(member);
    return {begins_[at], begins_[at + 1] - begins_[at]};
  }
  std::uint32_t cells_of(int member) const;
  Cell cell(int member, std::uint32_t number) const;
  // On another host than the block's.
  int partner(int block, int host, std::uint32_t number) const;

  // A pair of members whose cells may cross: `partner` may be the partner of cells of `block`, of which the first one
  // has the number `first`.
  struct Link {
    int block = 0;
    int partner = 0;
    std::uint32_t first = 0;
    bool is_empty = false;  // the block has no such cell
  };
  // The links of a member in both roles. It has links in both roles with a member of every other host, and the pairs
  // and their first numbers do not depend on the lengths of the blocks.
  std::vector<Link> links_of(int member) const;

 private:
  struct Run {
    std::size_t first = 0;
    std::size_t count = 1;
  };
  Run partners_of(int block, int host) const;  // positions
  void add_links(int block, int host, int only, std::vector<Link>& links) const;
  void add_turn(std::size_t turn, Lags lags);

  const HostsOfGroup hosts_;
  const int host_;
  const std::vector<std::size_t> begins_;
  const std::size_t cell_bytes_;
  std::vector<int> host_of_, position_of_;  // by member
  std::vector<std::vector<Cell>> streams_;  // by position
  std::size_t most_bytes_ = 0;
};

}  // namespace horo
