#include "controller/wait_report.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "controller/deadlock.h"
#include "controller/id_set.h"
#include "controller/stall_monitor.h"
#include "horo/base/error.h"
#include "horo/base/wire.h"

namespace horo {
namespace {

constexpr std::uint8_t kReportVersion = 1;
constexpr std::uint32_t kMostRanks = 1 << 20;
constexpr std::size_t kMostReportBytes = 56 << 10;
constexpr std::size_t kLeastWaitBytes = 40, kLeastSiteBytes = 6;
constexpr std::size_t kMostTextBytes = 4'096;

void write_ranks(ByteWriter& out, const std::vector<int>& ranks) {
  std::vector<std::uint32_t> ids(ranks.begin(), ranks.end());
  write_ids(out, ids);
}

std::vector<int> read_ranks(ByteReader& in) {
  const std::vector<std::uint32_t> ids = read_ids(in, kMostRanks);
  return {ids.begin(), ids.end()};
}

void write_wait(ByteWriter& out, const WaitReport::Wait& wait) {
  out.u32(static_cast<std::uint32_t>(wait.names.size()));
  for (const std::string& name : wait.names) out.text(name);
  out.u32(wait.more);
  write_ranks(out, wait.submitted);
  write_ranks(out, wait.missing);
  out.u8(static_cast<std::uint8_t>((wait.is_join ? 1 : 0) + (wait.partly ? 2 : 0)));
  out.text(wait.of_set);
  out.u64(static_cast<std::uint64_t>(std::max<std::int64_t>(wait.waited.count(), 0)));
}

std::chrono::milliseconds read_milliseconds(ByteReader& in) {
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 40;
  return std::chrono::milliseconds(std::min(in.u64(), kLongest));
}

WaitReport::Wait read_wait(ByteReader& in) {
  WaitReport::Wait wait;
  wait.names.resize(in.count(4));
  for (std::string& name : wait.names) name = in.text(kMostTextBytes);
  wait.more = in.u32();
  wait.submitted = read_ranks(in);
  wait.missing = read_ranks(in);
  const std::uint8_t flags = in.u8();
  wait.is_join = (flags & 1) != 0;
  wait.partly = (flags & 2) != 0;
  wait.of_set = in.text(kMostTextBytes);
  wait.waited = read_milliseconds(in);
  return wait;
}

std::vector<std::byte> encode_all(const WaitReport& report) {
  ByteWriter out;
  out.u8(kReportVersion);
  out.u32(static_cast<std::uint32_t>(report.waits.size()));
  for (const WaitReport::Wait& wait : report.waits) write_wait(out, wait);
  out.u32(report.more);
  out.u32(static_cast<std::uint32_t>(report.size));
  write_ranks(out, report.left);
  write_ranks(out, report.deadlocked);
  out.u32(static_cast<std::uint32_t>(report.sites.size()));
  for (const CallSites& site : report.sites) {
    write_ranks(out, site.ranks);
    out.u8(site.answered ? 1 : 0);
    out.text(site.text);
  }
  out.text(report.in_flight);
  return out.take();
}

std::chrono::milliseconds milliseconds_between(TimePoint begin, TimePoint end) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(end - begin);
}

}  // namespace

std::vector<std::byte> encode(const WaitReport& report, std::size_t most) {
  std::vector<std::byte> bytes = encode_all(report);
  for (WaitReport shorter = report; bytes.size() > most && !shorter.sites.empty(); bytes = encode_all(shorter)) {
    shorter.sites.pop_back();
  }
  return bytes;
}

WaitReport decode_wait_report(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  if (in.u8() != kReportVersion) throw ProtocolError("a report of another version");
  WaitReport report;
  report.waits.resize(in.count(kLeastWaitBytes));
  for (WaitReport::Wait& wait : report.waits) wait = read_wait(in);
  report.more = in.u32();
  report.size = static_cast<int>(std::min(in.u32(), kMostRanks));
  report.left = read_ranks(in);
  report.deadlocked = read_ranks(in);
  report.sites.resize(in.count(kLeastSiteBytes));
  for (CallSites& site : report.sites) {
    site.ranks = read_ranks(in);
    site.answered = in.u8() != 0;
    site.text = in.text(kMaxAnswerBytes);
  }
  report.in_flight = in.text(kMostTextBytes);
  in.expect_end();
  return report;
}

WaitReport StallMonitor::report(TimePoint now) const {
  using Kind = std::tuple<std::vector<int>, std::vector<int>, bool, std::string>;
  std::map<Kind, WaitReport::Wait> waits;
  for (const EntryOrPlan& what : clock_.all()) {
    StallGroup group = describe(what);
    if (group.missing.empty()) continue;  // held: the incomplete tensors of its unit are named
    WaitReport::Wait& wait = waits[{group.submitted, group.missing, group.partly, group.of_set}];
    for (std::string& name : group.names) {
      if (wait.names.size() < WaitReport::kMostNames) {
        wait.names.push_back(std::move(name));
      } else {
        ++wait.more;
      }
    }
    wait.waited = std::max(wait.waited, milliseconds_between(timer_of(what)->patience.since, now));
  }
  WaitReport report;
  for (auto& [kind, wait] : waits) {
    std::tie(wait.submitted, wait.missing, wait.partly, wait.of_set) = kind;
    report.waits.push_back(std::move(wait));
  }
  for (const auto& [set, join] : tables_.joins.all()) {
    WaitReport::Wait& wait = report.waits.emplace_back();
    wait.is_join = true;
    wait.submitted = join.ranks.ranks();
    wait.missing = tables_.members(set).without(join.ranks).ranks();
    wait.of_set = tables_.of_set(set);
    wait.waited = milliseconds_between(join.since, now);
  }
  std::ranges::stable_sort(report.waits, std::ranges::greater(), &WaitReport::Wait::waited);
  if (report.waits.size() > WaitReport::kMostWaits) {
    report.more = static_cast<std::uint32_t>(report.waits.size() - WaitReport::kMostWaits);
    report.waits.resize(WaitReport::kMostWaits);
  }
  report.size = tables_.size;
  report.left = tables_.left.ranks();
  report.deadlocked = find_deadlock(tables_, round_.answers(), TimePoint::max()).ranks();
  std::vector<int> present;
  for (int rank = 0; rank < tables_.size; ++rank) {
    if (!tables_.left.contains(rank)) present.push_back(rank);
  }
  report.sites = round_.of(present);
  report.sites.resize(std::min(report.sites.size(), WaitReport::kMostSites));
  return report;
}

std::optional<Explain> StallMonitor::take_explanation(TimePoint now) {
  if (!why_is_asked_ || !round_.over(now)) return std::nullopt;
  why_is_asked_ = false;
  const AskedWhy why = *std::exchange(why_, std::nullopt);
  WaitReport found = report(now);
  found.in_flight = why.in_flight;
  return Explain{why.question, encode(found, kMostReportBytes)};
}

}  // namespace horo
