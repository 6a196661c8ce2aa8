// TimelineFile: writes the records of a timeline as events.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "horo/base/timeline.h"

namespace horo {

// One thread at a time. A forked child has no copy of the descriptor (horo/base/forked.h), and no buffer to flush.
class TimelineFile {
 public:
  // Throws std::invalid_argument if the file cannot be opened, or another TimelineFile of any process has it open.
  TimelineFile(const std::string& path, int rank, int size, TimePoint now);
  ~TimelineFile();
  TimelineFile(const TimelineFile&) = delete;
  TimelineFile& operator=(const TimelineFile&) = delete;

  void write(const TimelineJob& job);
  void write(const TimelineStep& step);
  void write_mark(TimePoint at, const std::string& text);
  void write_wait(TimePoint begin, TimePoint end);
  void write_step(TimePoint end);
  void write_dropped(std::uint64_t count, TimePoint now);
  // After the first error nothing more is written, so that the file is whole up to there.
  void flush();
  // Throws std::runtime_error if not everything could be written.
  void close();

 private:
  struct Span {
    TimePoint begin, end;
  };

  void name_track(std::uint64_t track, const std::string& name, int order);
  void span(std::uint64_t track, std::string_view name, Span at, const std::string& arguments = "");
  void tensor_event(char phase, std::string_view name, TimePoint at, const std::string& arguments);
  void write_tensors(const TimelineJob& job, const TimelineJob::Tensor& last);
  void begin_event();
  void end_event(const std::string& arguments);
  void add(const std::string& event);

  const std::string path_;
  const int rank_;
  int file_;
  int error_ = 0;                  // errno of the first write that failed
  std::string text_;               // not written yet
  bool is_first_ = true;           // event
  std::set<std::uint64_t> named_;  // tracks
  TimePoint step_begin_;
  std::vector<Span> waits_;  // in the step, merged, in order
  std::uint64_t steps_ = 0, tensors_ = 0;
};

}  // namespace horo
