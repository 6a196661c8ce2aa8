#include "horo/steps/step_wire.h"

#include <algorithm>
#include <limits>

#include "horo/base/error.h"
#include "horo/base/wire.h"

namespace horo {
namespace {

constexpr std::uint64_t kLongest = std::uint64_t{1} << 62;

// From -1 on, which stands for what is not known.
void write_figure(ByteWriter& out, std::int64_t value) {
  out.varint(static_cast<std::uint64_t>(std::max<std::int64_t>(value, -1) + 1));
}

std::int64_t read_figure(ByteReader& in) {
  const std::uint64_t value = in.varint();
  if (value > kLongest) throw ProtocolError("a figure of a step that is too large");
  return static_cast<std::int64_t>(value) - 1;
}

template <class Number>
Number read_small(ByteReader& in) {
  const std::int64_t value = read_figure(in);
  if (value > std::numeric_limits<Number>::max()) throw ProtocolError("a figure of a step that is too large");
  return static_cast<Number>(value);
}

}  // namespace

std::vector<std::byte> encode(const StepRecord& record) {
  ByteWriter out;
  out.varint(record.number);
  write_figure(out, (record.end - record.begin).count());
  for (const std::chrono::nanoseconds bar : record.bars) write_figure(out, bar.count());
  for (const std::int64_t value : {record.hidden_transfer_ns, record.hidden_copies_ns, record.gc_ns, record.cpu_ns,
                                   record.run_queue_ns, record.samples, record.work}) {
    write_figure(out, value);
  }
  write_figure(out, record.switches);
  for (const std::uint32_t value : {record.known, record.epoch, record.flags}) out.varint(value);
  for (std::size_t i = 0; i < StepRecord::kLateRanks; ++i) {
    write_figure(out, record.late_ranks[i]);
    write_figure(out, record.late_skews[i].count());
  }
  return out.take();
}

StepRecord decode_step(std::span<const std::byte> bytes, TimePoint end) {
  ByteReader in(bytes);
  StepRecord record;
  record.number = in.varint();
  record.end = end;
  record.begin = end - std::chrono::nanoseconds(read_figure(in));
  for (std::chrono::nanoseconds& bar : record.bars) bar = std::chrono::nanoseconds(read_figure(in));
  for (std::int64_t* value : {&record.hidden_transfer_ns, &record.hidden_copies_ns, &record.gc_ns, &record.cpu_ns,
                              &record.run_queue_ns, &record.samples, &record.work}) {
    *value = read_figure(in);
  }
  record.switches = read_small<std::int32_t>(in);
  for (std::uint32_t* value : {&record.known, &record.epoch, &record.flags}) {
    *value = static_cast<std::uint32_t>(std::min<std::uint64_t>(in.varint(), UINT32_MAX));
  }
  for (std::size_t i = 0; i < StepRecord::kLateRanks; ++i) {
    record.late_ranks[i] = read_small<std::int32_t>(in);
    record.late_skews[i] = std::chrono::nanoseconds(read_figure(in));
  }
  in.expect_end();
  return record;
}

}  // namespace horo
