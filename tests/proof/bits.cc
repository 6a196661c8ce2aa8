#include "tests/proof/bits.h"

#include <algorithm>
#include <iomanip>
#include <numeric>
#include <sstream>

#include "horo/base/auth.h"
#include "horo/base/shard.h"
#include "ring/schedule/schedule_parts.h"
#include "tests/proof/run_round.h"
#include "tests/proof/schedule_file.h"

namespace horo::proof {
namespace {

using Kind = CollectiveKind;

constexpr std::uint64_t kValues = 20;

// HMAC-SHA256 with an empty key, because this project has no plain SHA-256.
std::string hash_of(std::span<const std::byte> bytes) {
  std::ostringstream text;
  for (const std::byte byte : hmac_sha256({}, bytes)) {
    text << std::hex << std::setw(2) << std::setfill('0') << std::to_integer<int>(byte);
  }
  return text.str();
}

// An algorithm and a layout of hosts.
struct Variant {
  Kind kind;
  std::string algorithm;
  std::string what;
  bool canonical;
  std::vector<int> hosts;
};

std::vector<std::vector<int>> layouts(int size) {
  std::vector<std::vector<int>> layouts(3);
  for (int i = 0; i < size; ++i) {
    layouts[0].push_back(i / 2);          // pairs
    layouts[1].push_back(i / 3);          // threes, which are not subtrees of the canonical tree
    layouts[2].push_back(i % 2 * i % 3);  // hosts without order
  }
  return layouts;
}

std::vector<Variant> variants(int size, const std::string& file) {
  std::vector<Variant> variants;
  const std::vector<int> one_host(static_cast<std::size_t>(size), 0);
  for (const NamedMaker& maker : all_schedule_makers()) {
    Shape shape;
    shape.kind = maker.kind;
    shape.size = size;
    if (!reduces(maker.kind)) continue;
    const std::string what = std::string(name_of(maker.kind)) + " by " + maker.name;
    const bool canonical = maker.make(shape, 0).order == Order::kCanonical;
    if (std::string(maker.name) != "hierarchical") {
      variants.push_back({maker.kind, maker.name, what, canonical, one_host});
      continue;
    }
    for (const auto& hosts : layouts(size)) variants.push_back({maker.kind, maker.name, what, canonical, hosts});
  }
  variants.push_back({Kind::kAllReduce, "@" + file, "all_reduce by tree, from JSON", true, one_host});
  return variants;
}

Job job_of(const Variant& variant, int size, DType dtype, std::size_t elements) {
  Job job;
  job.kind = variant.kind;
  job.algorithm = variant.algorithm;
  job.op = ReduceOp::kAverage;
  job.dtype = dtype;
  job.order = variant.canonical ? Order::kCanonical : Order::kFast;
  job.counts = {elements};
  if (variant.kind == Kind::kReduceScatter) {
    job.counts.clear();
    for (int i = 0; i < size; ++i) job.counts.push_back(shard_of(elements, size, i).size);
  }
  job.root = size - 1;
  job.contributors.resize(static_cast<std::size_t>(size));
  std::iota(job.contributors.begin(), job.contributors.end(), 0);
  job.prescale = 0.3;
  job.divisor = size;
  job.flavour = Flavour::kWide;
  job.values = kValues;
  return job;
}

class BitsMaker {
 public:
  explicit BitsMaker(const BitOptions& options) : options_(options) {}

  BitTable make() {
    for (const int size : options_.sizes) {
      Shape shape;
      shape.size = size;
      const ScheduleFile file(shape, tree_all_reduce);
      for (const test::Wire wire : options_.wires) run_world(size, wire, file.path());
      judge(size);
    }
    return std::move(table_);
  }

 private:
  BitRow& row(int size, const Variant& variant) {
    for (BitRow& row : table_.rows) {
      if (row.ranks == size && row.what == variant.what) return row;
    }
    return table_.rows.emplace_back(BitRow{size, variant.what, variant.canonical, 0, {}});
  }

  void run_world(int size, test::Wire wire, const std::string& file) {
    World world(size, wire);
    for (const Variant& variant : variants(size, file)) {
      for (const std::size_t segment : options_.segments) {
        Round round{0, size, wire, segment, {}};
        Team& team = round.teams.emplace_back();
        team.ranks.resize(static_cast<std::size_t>(size));
        std::iota(team.ranks.begin(), team.ranks.end(), 0);
        team.hosts = variant.hosts;
        for (const DType dtype : options_.types) add_jobs(team, variant, dtype);
        run(world, round, row(size, variant));
      }
    }
  }

  void add_jobs(Team& team, const Variant& variant, DType dtype) const {
    const auto size = static_cast<int>(team.ranks.size());
    for (const std::size_t offset : options_.offsets) {
      for (int i = 0; i < options_.repetitions; ++i) {
        Job job = job_of(variant, size, dtype, options_.elements);
        job.misplace.assign(team.ranks.size(), offset);
        job.in_place = i % 2 == 1;
        team.jobs.push_back(job);
      }
    }
  }

  void run(World& world, const Round& round, BitRow& row) {
    // By job: the result of the collective, joined from the parts of all members where each has a part.
    std::map<const Job*, Bytes> whole;
    const auto record = [&](const Job& job, std::size_t member, std::span<std::byte> output) {
      if (job.kind == Kind::kAllReduce) row.hashes[job.dtype].insert(hash_of(output));
      if (job.kind == Kind::kAllReduce && member > 0) return;
      whole[&job].insert(whole[&job].end(), output.begin(), output.end());
    };
    for (const std::string& wrong : run_round(world, round, record)) table_.wrong.push_back(row.what + ": " + wrong);
    for (const auto& [job, bytes] : whole) {
      row.hashes[job->dtype].insert(hash_of(bytes));
      ++row.runs;
    }
  }

  void judge(int size) {
    for (const DType dtype : options_.types) {
      std::set<std::string> hashes;
      for (const BitRow& row : table_.rows) {
        if (row.ranks == size && row.canonical) hashes.insert(row.hashes.at(dtype).begin(), row.hashes.at(dtype).end());
      }
      if (hashes.size() == 1) continue;
      table_.wrong.push_back(std::to_string(hashes.size()) + " hashes of canonical sums of " +
                             std::string(name_of(dtype)) + " over " + std::to_string(size) + " ranks, expected one");
    }
  }

  const BitOptions& options_;
  BitTable table_;
};

}  // namespace

BitTable bit_table(const BitOptions& options) {
  return BitsMaker(options).make();
}

std::string print(const BitTable& table, const BitOptions& options) {
  std::ostringstream out;
  out << std::left << std::setw(7) << "ranks" << std::setw(48) << "algorithm" << std::setw(6) << "runs";
  for (const DType dtype : options.types) out << std::setw(18) << name_of(dtype);
  out << "\n";
  for (const BitRow& row : table.rows) {
    out << std::setw(7) << row.ranks << std::setw(48) << row.what + (row.canonical ? "" : " (not canonical)")
        << std::setw(6) << row.runs;
    for (const DType dtype : options.types) {
      const auto& hashes = row.hashes.at(dtype);
      const std::string many = std::to_string(hashes.size()) + " HASHES";
      out << std::setw(18) << (hashes.size() == 1 ? hashes.begin()->substr(0, 16) : many);
    }
    out << "\n";
  }
  return out.str();
}

}  // namespace horo::proof
