// PartSizes: the sizes of the parts of a collective that may have different ones on each member (all_gather, gather,
// scatter, all_to_all).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "horo/lane/job.h"

namespace horo {

struct Parts {
  std::vector<std::size_t> counts;  // Collective::counts
  std::vector<std::int64_t> rows;   // that this rank receives: Outcome::counts
  std::size_t bytes = 0;            // of these rows
  bool have_room = false;           // exchanged_with_room(): each member has memory for its rows
};

// The thread that runs the lane's tasks. The arguments of the constructor outlive the object.
class PartSizes {
 public:
  PartSizes(const Item& item, const Collective& like, const Participants& participants);

  // The number of a part's bytes that no member exceeds. With TensorSpec::counts_known.
  std::size_t most_bytes() const;
  // Without an exchange, with TensorSpec::counts_known.
  Parts known() const;
  // The members tell each other. `like` of the constructor has the plan number of this exchange. These
  // throw what Group::run throws, and ProtocolError for sizes that are out of range.
  Parts exchanged() const { return exchange(nullptr); }
  Parts exchanged_with_room() const;

 private:
  std::size_t size() const { return static_cast<std::size_t>(participants_.group.size()); }
  std::size_t me() const { return static_cast<std::size_t>(participants_.group.rank()); }

  std::vector<std::int64_t> own_rows() const;
  std::vector<std::int64_t> known_rows() const;
  Parts exchange(const std::int64_t* room) const;
  std::vector<std::int64_t> received(const std::vector<std::int64_t>& rows, std::size_t member) const;
  Parts parts_of(std::vector<std::int64_t> rows) const;
  std::vector<std::size_t> elements(const std::vector<std::int64_t>& rows) const;

  const Item& item_;
  const TensorSpec& spec_;
  const Collective& like_;
  const Participants& participants_;
  const std::size_t row_bytes_;
};

// The values of all ranks, in their order; each has as many. Throws what Group::run throws.
std::vector<std::int64_t> gather_numbers(const std::vector<std::int64_t>& mine, const Collective& like,
                                         const Participants& participants);

}  // namespace horo
