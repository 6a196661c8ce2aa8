// Both kinds of messages as bytes. The reader compares each count with the rest of the message before it allocates, and
// each number with its limit; lists of ranks or slots must ascend.
#include "controller/messages.h"

#include "controller/answer_wire.h"
#include "controller/id_set.h"
#include "controller/item_wire.h"
#include "controller/list_wire.h"
#include "controller/round_wire.h"
#include "controller/spec_wire.h"
#include "horo/base/error.h"
#include "horo/base/wire.h"

namespace horo {
namespace {

std::chrono::nanoseconds since_start(TimePoint time) {
  return time.time_since_epoch();
}

TimePoint read_time(ByteReader& in) {
  const std::uint64_t nanoseconds = in.u64();
  if (nanoseconds == 0 || nanoseconds > static_cast<std::uint64_t>(INT64_MAX)) {
    throw ProtocolError("a time that no clock has");
  }
  return TimePoint{} + std::chrono::nanoseconds(static_cast<std::int64_t>(nanoseconds));
}

void read_figures(ByteReader& in, UpMessage& message) {
  message.figures_age_us = in.varint();
  const std::uint64_t bytes = in.varint();
  if (bytes == 0 || bytes > kMaxFiguresBytes) throw ProtocolError("figures of " + std::to_string(bytes) + " bytes");
  const std::span<const std::byte> figures = in.raw(bytes);
  message.figures.assign(figures.begin(), figures.end());
}

}  // namespace

std::vector<std::byte> encode(UpMessage message) {
  ByteWriter out;
  out.u64(message.applied);
  // Without figures they cost no byte.
  out.varint(2 * message.age_us + (message.figures.empty() ? 0 : 1));
  if (!message.figures.empty()) {
    out.varint(message.figures_age_us);
    out.varint(message.figures.size());
    out.raw(message.figures);
  }
  write_ids(out, message.active);
  out.u32(static_cast<std::uint32_t>(message.requests.size()));
  for (const Request& request : message.requests) {
    out.u8(static_cast<std::uint8_t>((request.absent ? 1 : 0) + (request.lost ? 2 : 0)));
    write_spec(out, request.spec);
  }
  write_ids(out, message.present);
  write_ids(out, message.absent);
  write_ids(out, message.plans);
  out.u32(static_cast<std::uint32_t>(message.partial_plans.size()));
  for (const PartialPlan& partial : message.partial_plans) {
    out.u32(partial.plan);
    write_list(out, partial.absent_slots);
  }
  out.u32(static_cast<std::uint32_t>(message.answers.size()));
  for (const Diagnosis& answer : message.answers) {
    write_answer(out, answer);
  }
  // Lists at the end are left out if empty, so that jobs without process sets and priorities send no bytes for them.
  const bool has_rounds = !message.rounds.empty() || !message.failed_rounds.empty();
  if (!message.ended.empty() || !message.done.empty() || has_rounds) write_ids(out, message.ended);
  if (message.done.empty() && !has_rounds) return out.take();
  out.u32(static_cast<std::uint32_t>(message.done.size()));
  for (const Done& done : message.done) {
    out.u32(done.set);
    out.u32(done.tensors);
  }
  if (has_rounds) write_rounds(out, message);
  return out.take();
}

UpMessage decode_up(std::span<const std::byte> bytes, const CoordinatorConfig& config) {
  constexpr std::size_t kLeastRequestBytes = 42;
  constexpr std::size_t kLeastPartialBytes = 8;
  constexpr std::size_t kDoneBytes = 8;
  ByteReader in(bytes);
  UpMessage message;
  message.applied = in.u64();
  const std::uint64_t age = in.varint();
  message.age_us = age / 2;
  if (age % 2 != 0) read_figures(in, message);
  message.active = read_ids(in, plan_limit(config));
  const std::uint32_t requests = in.count(kLeastRequestBytes);
  message.requests.reserve(requests);
  for (std::uint32_t i = 0; i < requests; ++i) {
    const std::uint8_t flags = in.u8();
    message.requests.push_back({read_spec(in, config), (flags & 1) != 0, (flags & 2) != 0});
  }
  message.present = read_ids(in, id_limit(config));
  message.absent = read_ids(in, id_limit(config));
  message.plans = read_ids(in, plan_limit(config));
  message.partial_plans.resize(in.count(kLeastPartialBytes));
  for (PartialPlan& partial : message.partial_plans) {
    partial.plan = read_plan(in, config);
    partial.absent_slots = read_ascending<std::uint32_t>(in, id_limit(config), "slot");
  }
  message.answers.resize(in.count(kLeastAnswerBytes));
  for (Diagnosis& answer : message.answers) {
    answer = read_answer(in, config);
  }
  if (in.left() > 0) message.ended = read_ids(in, UINT32_MAX);
  if (in.left() > 0) message.done.resize(in.count(kDoneBytes));
  for (Done& done : message.done) {
    done.set = in.u32();
    done.tensors = in.u32();
  }
  if (in.left() > 0) read_rounds(in, message);
  in.expect_end();
  return message;
}

std::vector<std::byte> encode(const DownMessage& message) {
  ByteWriter out;
  out.u32(static_cast<std::uint32_t>(message.items.size()));
  for (const DownItem& item : message.items) write_item(out, item);
  if (message.sent > TimePoint{}) out.u64(static_cast<std::uint64_t>(since_start(message.sent).count()));
  return out.take();
}

DownMessage decode_down(std::span<const std::byte> bytes, const CoordinatorConfig& config) {
  ByteReader in(bytes);
  DownMessage message;
  const std::uint32_t items = in.count(kLeastItemBytes);
  for (std::uint32_t i = 0; i < items; ++i) message.items.emplace_back(read_item(in, config));
  if (in.left() > 0) message.sent = read_time(in);
  in.expect_end();
  return message;
}

}  // namespace horo
