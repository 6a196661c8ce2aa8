// Timeline: what this rank did when, in a file for trace viewers (ui.perfetto.dev, chrome://tracing): events of
// Chrome's trace format, one per line, with times of the monotonic clock in microseconds. docs/timeline.md describes
// them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "horo/base/counters.h"
#include "horo/base/mutex.h"
#include "horo/base/time.h"
#include "horo/base/types.h"

namespace horo {

// The parts of a collective in a lane, in this order.
enum class Phase : std::uint8_t { kPack, kTransfer, kUnpack, kDeliver };
inline constexpr std::size_t kPhases = 4;

// A collective that a lane has run.
struct TimelineJob {
  struct Tensor {
    std::string name;
    TimePoint submitted;
  };
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::uint32_t lane = 0;    // the number of its process set, or kTimelineMessages
  std::uint64_t number = 0;  // of its release in this epoch: the same on all ranks
  std::uint32_t epoch = 0;
  std::uint64_t bytes = 0;
  std::string_view algorithm;  // on devices, of a text that outlives the timeline; empty: on the host
  Traffic traffic;             // of that algorithm
  TimePoint released, begun;
  std::array<TimePoint, kPhases> ends{};  // by phase; as the one before: there was no such phase
  std::vector<Tensor> tensors;
};

// A step of the training thread. Its parts follow one another without a gap.
struct TimelineStep {
  struct Bar {
    std::string_view name;  // of a text that outlives the timeline
    bool waits = false;     // for horo
    TimePoint begin, end;
  };
  TimePoint begin, end;
  std::vector<Bar> parts;
};

// The lane of messages between two ranks, in TimelineJob::lane.
inline constexpr std::uint32_t kTimelineMessages = UINT32_MAX;

class TimelineFile;

// Any thread. Off, every function costs one relaxed load. On, events wait in memory for a thread that writes them;
// above a bound they are dropped, and the file says how many.
class Timeline {
 public:
  Timeline();
  ~Timeline();  // stop()
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Begins a new file. Throws std::invalid_argument if one is being written or the file cannot be opened.
  void start(const std::string& path, int rank, int size);
  // Writes what is left and closes the file; nothing if there is none. Blocks until it is written. Throws
  // std::runtime_error if the disk was full.
  void stop();
  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }

  void add(TimelineJob job) noexcept;
  void add(TimelineStep step) noexcept;
  // This rank runs in another epoch of the world.
  void begin_epoch(TimePoint now, std::uint32_t epoch, int rank, int size) noexcept;

  // ---- Without the accounting of steps.

  // A caller has waited for works.
  void add_wait(TimePoint begin, TimePoint end) noexcept;
  // A caller has ended a step of the world.
  void end_step(TimePoint now) noexcept;

 private:
  struct Wait {
    TimePoint begin, end;
  };
  struct Step {
    TimePoint end;
  };
  struct Epoch {
    TimePoint begin;
    std::uint32_t number = 0;
    int rank = 0, size = 0;
  };
  using Record = std::variant<TimelineJob, TimelineStep, Wait, Step, Epoch>;

  void push(Record record, std::size_t weight) noexcept;
  void write_all() noexcept;

  std::atomic<bool> is_on_{false};
  Mutex mutex_;
  CondVar changed_;
  std::vector<Record> records_ GUARDED_BY(mutex_);
  std::size_t weight_ GUARDED_BY(mutex_) = 0;  // of the records: one each, and one for each tensor
  std::uint64_t dropped_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
  Mutex control_;                       // held by start() and stop(), which any thread may call
  std::unique_ptr<TimelineFile> file_;  // of the thread while it runs, else of the holder of control_
  std::jthread thread_ GUARDED_BY(control_);
};

// The file of a rank: the path itself on rank 0; on rank 3 trace.rank3.json for trace.json.
std::string timeline_path(const std::string& path, int rank);

}  // namespace horo
