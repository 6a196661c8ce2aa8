// StepBoard: the steps of a rank in memory that it shares with the guard of `horo run`. The rank writes at the end of
// each step, without a wait; the guard reads when a person asks, also after the rank has ended. Sums are over all
// steps; of the last ones each is there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "horo/steps/step_record.h"

namespace horo {

// Over all steps of a process. Times in nanoseconds.
struct BoardSums {
  static constexpr std::size_t kLateRanks = 32;  // of more ranks that were late, those with the least skew are left out
  struct Late {
    std::int64_t rank = -1;  // -1: none, or not known
    std::int64_t skew = 0;   // of this rank, while it waited for `rank`
    std::int64_t steps = 0;  // in which `rank` has caused most of this rank's skew
  };

  std::int64_t rank = -1, size = 0;  // at the start of the session
  std::int64_t steps = 0;
  std::int64_t wall = 0;
  std::array<std::int64_t, kBars> bars{};
  std::int64_t timed_steps = 0;  // without those whose device times are not known
  std::int64_t known = 0;        // bits by Bar: of all timed steps, or of all where none is timed
  std::int64_t hidden_transfer = 0, hidden_copies = 0;
  std::int64_t collections = 0, run_queue = 0;                    // of the steps in which they are known
  std::int64_t sampled_steps = 0, sampled_wall = 0, samples = 0;  // of the steps whose samples are known
  std::array<Late, kLateRanks> late{};                            // most skew first

  // Adds a step of this rank.
  void add(const StepRecord& record);
};

// The memory outlives the object. One thread writes; any process reads.
class StepBoard {
 public:
  static constexpr std::size_t kLast = 128;  // steps
  static const std::size_t kBytes;

  // memory: aligned to 64 bytes, at least kBytes; zeros before the first object that writes. Sums begin with those of
  // the objects that have written before: of earlier sessions of the process.
  explicit StepBoard(std::span<std::byte> memory);

  // The times of the rank's next step are known.
  void write(int rank, int size, const StepRecord& record) noexcept;

  // The rank has ended a step. Where its times are those of a device, write() has it later.
  void end_step() noexcept;
  // Of this process, also in earlier sessions.
  std::int64_t ended() const noexcept;

  struct View {
    BoardSums sums;
    std::vector<StepRecord> last;  // ascending; a step that is being written is left out
    std::int64_t ended = 0;        // ended()
  };
  // Nothing: no step has ended, or another version of horo has written. What is read is not trusted with more than
  // figures for people: the writer may be any process of this user.
  std::optional<View> read() const;

 private:
  struct Layout;
  Layout& layout_;
  BoardSums sums_;
};

}  // namespace horo
