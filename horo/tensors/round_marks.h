// RoundMarks: the last rounds that this rank began in each round stream, and the submissions that belong to them. With
// it the tensors in flight at the end of an epoch are reported in their rounds again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "horo/tensors/submission_batch.h"

namespace horo {

// Has no lock of its own: the tensor table calls it under its mutex.
class RoundMarks {
 public:
  // Of one stream. Submissions of older rounds are reported without a round.
  static constexpr std::size_t kMostRounds = 16;

  explicit RoundMarks(std::size_t most_streams) : most_streams_(most_streams) {}

  // Submissions with a serial number greater than `serial` belong to this round.
  void begin(const RoundBegun& begun, std::uint64_t serial);
  // Sets RoundFailed::begun.
  void fail(RoundFailed& failed);
  // Item::round of what is submitted now to this stream.
  std::uint64_t current(const RoundStream& stream) const;
  void forget_set(std::uint32_t set);

  // Adds the reports of these items, by report_one(), and the events of their rounds to the batch. `items`: in flight,
  // by serial number.
  void report(const std::map<std::uint64_t, Item>& items, const std::function<void(const Item&)>& report_one,
              SubmissionBatch& batch) const;

 private:
  struct Mark {
    std::uint64_t after = 0;  // the serial number of the last submission before the round
    RoundNumber round;
    std::optional<std::string> failure;
    std::uint64_t number = 0;  // Item::round
  };
  using Marks = std::deque<Mark>;  // never empty

  using Current = std::optional<std::size_t>;  // index of the mark whose round has begun in the batch

  static Current mark_of(const Marks& marks, std::uint64_t serial);
  static void begin(const RoundStream& stream, const Mark& mark, SubmissionBatch& batch);
  static void end(const RoundStream& stream, const Mark& mark, SubmissionBatch& batch);
  void advance(const RoundStream& stream, Current& current, std::size_t target, SubmissionBatch& batch) const;

  const std::size_t most_streams_;
  std::uint64_t begun_ = 0;  // rounds, of all streams
  std::map<RoundStream, Marks> streams_;
};

}  // namespace horo
