#include "horo/checkpoint/deal.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <set>
#include <stdexcept>

#include "horo/base/json_text.h"
#include "horo/base/say.h"
#include "horo/base/wire.h"
#include "horo/checkpoint/dtypes.h"

namespace horo::checkpoint {
namespace {

constexpr std::uint32_t kMaxTableText = 1 << 16;

std::uint64_t bytes_of_rows(const CheckpointTensor& tensor, std::int64_t rows) {
  return static_cast<std::uint64_t>(rows) * row_bytes_of(tensor.dtype, tensor.shape);
}

std::uint64_t bytes_of(const CheckpointTensor& tensor) {
  return bytes_of_rows(tensor, rows_of(tensor.shape));
}

// The whole of an empty tensor is a piece of rank 0.
bool is_dealt_by_bytes(const CheckpointTensor& tensor) {
  return tensor.alias_of < 0 && tensor.kind == TensorKind::kReplicated && bytes_of(tensor) > 0;
}
bool is_whole(const CheckpointTensor& tensor) {
  return tensor.alias_of < 0 && (tensor.kind == TensorKind::kPerRank || bytes_of(tensor) == 0);
}
bool is_of_ranks(const CheckpointTensor& tensor) {
  return tensor.alias_of < 0 && tensor.kind == TensorKind::kSharded && bytes_of(tensor) > 0;
}

void check_cover(const CheckpointTensor& tensor, std::size_t place, std::span<const RangesByTensor> ranges_by_rank) {
  struct Owned {
    RowRange range;
    std::size_t rank;
  };
  std::vector<Owned> owned;
  for (std::size_t rank = 0; rank < ranges_by_rank.size(); ++rank) {
    for (const RowRange& range : ranges_by_rank[rank].at(place)) {
      if (range.start < range.stop) owned.push_back({range, rank});
    }
  }
  std::ranges::sort(owned, {}, [](const Owned& one) { return one.range.start; });
  std::int64_t next = 0;
  for (std::size_t i = 0; i < owned.size(); next = owned[i++].range.stop) {
    if (owned[i].range.start < next) {
      throw std::invalid_argument(say("rank ", owned[i - 1].rank, " and rank ", owned[i].rank, " both have row ",
                                      owned[i].range.start, " of ", tensor.name));
    }
    if (owned[i].range.start > next) break;
  }
  if (next != rows_of(tensor.shape))
    throw std::invalid_argument(say("no rank has row ", next, " of ", tensor.name, ", which is sharded"));
}

// Without empty ranges; ranges that touch are one.
std::vector<RowRange> merged(const std::vector<RowRange>& ranges) {
  std::vector<RowRange> all;
  for (const RowRange& range : ranges) {
    if (range.start == range.stop) continue;
    if (!all.empty() && all.back().stop == range.start) {
      all.back().stop = range.stop;
    } else {
      all.push_back(range);
    }
  }
  return all;
}

// The bytes of the line of replicated tensors before the stretch of each rank, and after the last one.
std::vector<std::uint64_t> cuts_of(std::uint64_t line, const std::vector<std::uint64_t>& others) {
  const std::size_t ranks = others.size();
  const std::uint64_t total = std::accumulate(others.begin(), others.end(), line);
  std::vector<std::uint64_t> quotas;
  for (const std::uint64_t bytes : others) {
    const std::uint64_t fair = total / ranks;
    quotas.push_back(fair > bytes ? fair - bytes : 0);
  }
  const std::uint64_t sum = std::max<std::uint64_t>(std::accumulate(quotas.begin(), quotas.end(), std::uint64_t{0}), 1);
  std::vector<std::uint64_t> cuts{0};
  std::uint64_t before = 0;
  for (const std::uint64_t quota : quotas) {
    before += quota;
    cuts.push_back(static_cast<std::uint64_t>(static_cast<unsigned __int128>(line) * before / sum));
  }
  cuts.back() = line;
  return cuts;
}

class Dealer {
 public:
  Dealer(std::span<const CheckpointTensor> tensors, std::span<const RangesByTensor> ranges_by_rank)
      : tensors_(tensors), ranges_by_rank_(ranges_by_rank), pieces_(ranges_by_rank.size()) {}

  std::vector<DealtPart> run() {
    deal_ranges();
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (is_whole(tensors_[i])) add(0, 0, i, {0, rows_of(tensors_[i].shape)}, 0);
    }
    deal_line();
    return parts();
  }

 private:
  void add(std::size_t rank, std::size_t number, std::size_t tensor, RowRange rows, std::int64_t local_row) {
    auto& parts = pieces_[rank];
    if (parts.size() <= number) parts.resize(number + 1);
    const std::int64_t count = rows.stop - rows.start;
    parts[number].push_back({tensor, rows.start, count, local_row, 0, bytes_of_rows(tensors_[tensor], count)});
  }

  void deal_ranges() {
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (!is_of_ranks(tensors_[i])) continue;
      check_cover(tensors_[i], i, ranges_by_rank_);
      for (std::size_t rank = 0; rank < ranges_by_rank_.size(); ++rank) {
        std::int64_t local_row = 0;
        std::size_t number = 0;
        for (const RowRange& range : merged(ranges_by_rank_[rank].at(i))) {
          add(rank, number++, i, range, local_row);
          local_row += range.stop - range.start;
        }
      }
    }
  }

  void deal_line() {
    std::vector<std::uint64_t> others(pieces_.size());
    for (std::size_t rank = 0; rank < pieces_.size(); ++rank) {
      for (const auto& part : pieces_[rank]) {
        for (const DealtPiece& piece : part) others[rank] += piece.bytes;
      }
    }
    std::uint64_t line = 0;
    for (const CheckpointTensor& tensor : tensors_) line += is_dealt_by_bytes(tensor) ? bytes_of(tensor) : 0;
    const std::vector<std::uint64_t> cuts = cuts_of(line, others);
    std::uint64_t at = 0;
    std::size_t rank = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (!is_dealt_by_bytes(tensors_[i])) continue;
      const std::uint64_t row_bytes = bytes_of_rows(tensors_[i], 1), end = at + bytes_of(tensors_[i]);
      for (std::int64_t row = 0; row < rows_of(tensors_[i].shape);) {
        while (rank + 1 < pieces_.size() && cuts[rank + 1] <= at + static_cast<std::uint64_t>(row) * row_bytes) ++rank;
        const std::uint64_t cut = std::min(cuts[rank + 1], end);
        const std::int64_t stop = rank + 1 == pieces_.size()
                                      ? rows_of(tensors_[i].shape)
                                      : static_cast<std::int64_t>((cut - at + row_bytes / 2) / row_bytes);
        const std::int64_t kept = std::max(stop, row);
        if (kept > row) add(rank, 0, i, {row, kept}, row);
        row = kept;
        if (row < rows_of(tensors_[i].shape)) ++rank;  // the cut lies before this row
      }
      at = end;
    }
  }

  // Larger elements first, so that each tensor is aligned to its elements.
  void place(DealtPart& part) const {
    std::ranges::stable_sort(part.pieces, std::greater{}, [this](const DealtPiece& piece) {
      return type_of_torch(tensors_[piece.tensor].dtype)->bytes;
    });
    for (DealtPiece& piece : part.pieces) {
      piece.offset = part.data_bytes;
      part.data_bytes += piece.bytes;
    }
  }

  std::vector<DealtPart> parts() {
    std::vector<DealtPart> parts;
    for (std::size_t rank = 0; rank < pieces_.size(); ++rank) {
      pieces_[rank].resize(std::max<std::size_t>(pieces_[rank].size(), 1));
      for (auto& pieces : pieces_[rank]) {
        place(parts.emplace_back(DealtPart{rank, "", std::move(pieces), 0}));
      }
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      std::array<char, 64> name{};
      std::snprintf(name.data(), name.size(), "part-%05zu-of-%05zu.safetensors", i, parts.size());
      parts[i].file = name.data();
    }
    return parts;
  }

  const std::span<const CheckpointTensor> tensors_;
  const std::span<const RangesByTensor> ranges_by_rank_;
  std::vector<std::vector<std::vector<DealtPiece>>> pieces_;  // by rank and number of its part
};

std::string fault_of_ranges(const CheckpointTensor& tensor) {
  std::int64_t last = 0;
  for (const RowRange& range : tensor.ranges) {
    if (range.start < last || range.stop < range.start || range.stop > rows_of(tensor.shape)) {
      return say(tensor.name, " has the rows from ", range.start, " to ", range.stop,
                 ": ranges are ascending and end by its ", rows_of(tensor.shape), " rows");
    }
    last = range.stop;
  }
  if (tensor.shape.empty() && tensor.kind == TensorKind::kSharded)
    return say(tensor.name, " has no dimension, so it cannot be sharded");
  return "";
}

std::string fault_of_one(std::span<const CheckpointTensor> tensors, std::size_t place) {
  const CheckpointTensor& tensor = tensors[place];
  std::string fault = fault_of_form(tensor.name, tensor.dtype, tensor.shape);
  if (fault.empty() && tensor.kind == TensorKind::kSharded) fault = fault_of_ranges(tensor);
  if (!fault.empty() || tensor.alias_of < 0) return fault;
  if (static_cast<std::size_t>(tensor.alias_of) >= place)
    return say(tensor.name, " is an alias of tensor ", tensor.alias_of, ", which is not before it");
  const CheckpointTensor& base = tensors[static_cast<std::size_t>(tensor.alias_of)];
  if (base.alias_of >= 0) return say(tensor.name, " is an alias of ", base.name, ", which is an alias itself");
  if (base.dtype != tensor.dtype || base.shape != tensor.shape) {
    return say(tensor.name, " is an alias of ", base.name, ", but is ", form_of(tensor.dtype, tensor.shape),
               " and not ", form_of(base.dtype, base.shape));
  }
  return "";
}

std::string form_of_tensor(const CheckpointTensor& tensor) {
  return say(name_of(tensor.kind), " ", form_of(tensor.dtype, tensor.shape),
             tensor.alias_of < 0 ? "" : say(", alias of tensor ", tensor.alias_of));
}

}  // namespace

std::vector<DealtPart> deal(std::span<const CheckpointTensor> tensors, std::span<const RangesByTensor> ranges_by_rank) {
  return Dealer(tensors, ranges_by_rank).run();
}

std::string fault_of(std::span<const CheckpointTensor> tensors) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::string fault = fault_of_one(tensors, i);
    if (!fault.empty()) return fault;
    if (!names.insert(tensors[i].name).second) return say("two tensors are named ", tensors[i].name);
  }
  return "";
}

std::vector<std::byte> table_of(std::span<const CheckpointTensor> tensors) {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(tensors.size()));
  for (const CheckpointTensor& tensor : tensors) {
    out.text(tensor.name);
    out.text(form_of_tensor(tensor));
  }
  return out.take();
}

std::string difference_between(std::span<const std::byte> one, std::span<const std::byte> other) {
  ByteReader first(one), second(other);
  const std::uint32_t counts[] = {first.count(8), second.count(8)};
  for (std::uint32_t i = 0; i < std::max(counts[0], counts[1]); ++i) {
    const auto read = [](ByteReader& in) {
      return std::pair<std::string, std::string>{in.text(kMaxTableText), in.text(kMaxTableText)};
    };
    const auto mine = i < counts[0] ? read(first) : std::pair<std::string, std::string>();
    const auto theirs = i < counts[1] ? read(second) : std::pair<std::string, std::string>();
    if (mine.first != theirs.first) {
      const auto name = [](const std::string& text) { return text.empty() ? std::string("missing") : text; };
      return say("tensor ", i, " is ", name(mine.first), " on the one and ", name(theirs.first), " on the other");
    }
    if (mine.second != theirs.second) {
      return say(mine.first, " is ", mine.second, " on the one and ", theirs.second, " on the other");
    }
  }
  return "";
}

}  // namespace horo::checkpoint
