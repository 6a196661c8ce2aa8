#include "horo/lane/part_sizes.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "horo/base/error.h"
#include "horo/tensors/spec_check.h"

namespace horo {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 59;

std::int64_t sum_of(const std::vector<std::int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

}  // namespace

PartSizes::PartSizes(const Item& item, const Collective& like, const Participants& participants)
    : item_(item),
      spec_(*item.spec),
      like_(like),
      participants_(participants),
      row_bytes_(row_elements(spec_) * size_of(spec_.dtype)) {}

std::size_t PartSizes::most_bytes() const {
  if (spec_.kind == CollectiveKind::kScatter || spec_.kind == CollectiveKind::kAllToAll) return spec_.bytes();
  const auto rows = known_rows();
  return static_cast<std::size_t>(*std::max_element(rows.begin(), rows.end())) * row_bytes_;
}

Parts PartSizes::known() const {
  return parts_of(known_rows());
}

Parts PartSizes::exchanged_with_room() const {
  const Submission& submission = item_.submission;
  const auto room = static_cast<std::int64_t>(submission.out == nullptr ? 0 : submission.out_bytes);
  const std::int64_t lent = std::numeric_limits<std::int64_t>::max();
  return exchange(submission.may_own_on_device() ? &lent : &room);
}

// Of this rank: of an all_gather and gather one number, else one for each member.
std::vector<std::int64_t> PartSizes::own_rows() const {
  if (spec_.kind == CollectiveKind::kAllToAll ||
      (spec_.kind == CollectiveKind::kScatter && like_.root == participants_.group.rank())) {
    return rows_for_each(item_.submission.splits, spec_.shape.front(), participants_.group.size());
  }
  return std::vector<std::int64_t>(spec_.kind == CollectiveKind::kScatter ? size() : 1, spec_.shape.front());
}

// All numbers of the collective: one for each member, or of an all_to_all for each member those for each member.
std::vector<std::int64_t> PartSizes::known_rows() const {
  if (spec_.kind == CollectiveKind::kAllGather || spec_.kind == CollectiveKind::kGather) {
    return spec_.splits.empty() ? std::vector<std::int64_t>(size(), spec_.shape.front()) : spec_.splits;
  }
  const auto even = rows_for_each({}, spec_.shape.front(), participants_.group.size());
  if (spec_.kind == CollectiveKind::kScatter) return even;
  std::vector<std::int64_t> rows;
  for (std::size_t from = 0; from < size(); ++from) rows.insert(rows.end(), even.begin(), even.end());
  return rows;
}

Parts PartSizes::exchange(const std::int64_t* room) const {
  std::vector<std::int64_t> mine = own_rows();
  const std::size_t width = mine.size();
  if (room != nullptr) mine.push_back(*room);
  const std::vector<std::int64_t> all = gather_numbers(mine, like_, participants_);
  std::vector<std::int64_t> rows, rooms;
  for (std::size_t member = 0; member < size(); ++member) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(member * mine.size());
    const auto end = first + static_cast<std::ptrdiff_t>(width);
    const bool counts = spec_.kind != CollectiveKind::kScatter || static_cast<int>(member) == like_.root;
    if (counts) rows.insert(rows.end(), first, end);
    if (room != nullptr) rooms.push_back(*end);
  }
  Parts parts = parts_of(rows);
  parts.have_room = room != nullptr;
  for (std::size_t member = 0; member < rooms.size(); ++member) {
    const std::size_t bytes = static_cast<std::size_t>(sum_of(received(rows, member))) * row_bytes_;
    parts.have_room = parts.have_room && static_cast<std::int64_t>(bytes) <= rooms[member];
  }
  return parts;
}

// The rows that the member gets.
std::vector<std::int64_t> PartSizes::received(const std::vector<std::int64_t>& rows, std::size_t member) const {
  switch (spec_.kind) {
    case CollectiveKind::kAllGather:
      return rows;
    case CollectiveKind::kGather:
      return static_cast<int>(member) == like_.root ? rows : std::vector<std::int64_t>();
    case CollectiveKind::kScatter:
      return {rows[member]};
    default: {
      std::vector<std::int64_t> to_member;
      for (std::size_t from = 0; from < size(); ++from) to_member.push_back(rows[from * size() + member]);
      return to_member;
    }
  }
}

Parts PartSizes::parts_of(std::vector<std::int64_t> rows) const {
  Parts parts;
  parts.counts = elements(rows);
  parts.rows = received(rows, me());
  parts.bytes = static_cast<std::size_t>(sum_of(parts.rows)) * row_bytes_;
  return parts;
}

// Elements for each number of rows.
std::vector<std::size_t> PartSizes::elements(const std::vector<std::int64_t>& rows) const {
  const auto row = static_cast<std::int64_t>(row_elements(spec_));
  std::vector<std::size_t> counts;
  std::int64_t left = kMostElements;
  for (const std::int64_t count : rows) {
    if (count < 0 || (row > 0 && count > left / row)) {
      throw ProtocolError("a rank sent an invalid size: " + like_.what + " has " + std::to_string(count) + " rows of " +
                          std::to_string(row) + " elements");
    }
    left -= count * row;
    counts.push_back(static_cast<std::size_t>(count * row));
  }
  return counts;
}

std::vector<std::int64_t> gather_numbers(const std::vector<std::int64_t>& mine, const Collective& like,
                                         const Participants& participants) {
  const auto size = static_cast<std::size_t>(participants.group.size());
  std::vector<std::int64_t> all(size * mine.size());
  Collective c = like;
  c.kind = CollectiveKind::kAllGather;
  c.dtype = DType::kInt64;
  c.op = ReduceOp::kSum;
  c.what = "the sizes of " + like.what;
  c.counts.assign(size, mine.size());
  c.in = buffer_of(mine.data(), mine.size() * sizeof(std::int64_t));
  c.out = buffer_of(all.data(), all.size() * sizeof(std::int64_t));
  participants.group.run(c);
  return all;
}

}  // namespace horo
