#include "horo/steps/step_file.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "horo/base/forked.h"
#include "horo/base/log.h"
#include "horo/base/output_file.h"
#include "horo/base/say.h"
#include "horo/base/thread.h"

namespace horo {
namespace {

constexpr std::chrono::milliseconds kWriteEvery{250};
constexpr std::array<std::pair<std::uint32_t, std::string_view>, 5> kNotes{{
    {kEstimatedWait, "estimated_wait"},
    {kTooManyWaits, "too_many_waits"},
    {kJobsForgotten, "jobs_forgotten"},
    {kDeviceTime, "device_time"},
    {kNoDeviceTime, "no_device_time"},
}};

void append(std::string& line, std::string_view name, std::int64_t value, bool is_known = true) {
  line.append(line.back() == '{' ? "\"" : ",\"").append(name).append("\":");
  line += is_known ? std::to_string(value) : "null";
}

void append_figure(std::string& line, std::string_view name, std::int64_t value) {
  append(line, name, value, value != kNotKnown);
}

}  // namespace

std::string step_line(const StepRecord& record, int rank) {
  std::string line = "{";
  append(line, "rank", rank);
  append(line, "step", static_cast<std::int64_t>(record.number));
  line += ",\"stream\":" + std::to_string(record.stream);
  append(line, "epoch", record.epoch);
  append(line, "begin", std::chrono::nanoseconds(record.begin.time_since_epoch()).count());
  append(line, "time", std::chrono::nanoseconds(record.end - record.begin).count());
  line += ",\"bars\":{";
  for (std::size_t bar = 0; bar < kBars; ++bar) {
    append(line, kBarNames[bar], record.bars[bar].count(), (record.known >> bar & 1) != 0);
  }
  line += '}';
  append_figure(line, "hidden_transfer", record.hidden_transfer_ns);
  append_figure(line, "hidden_copies", record.hidden_copies_ns);
  append_figure(line, "gc", record.gc_ns);
  append_figure(line, "cpu", record.cpu_ns);
  append_figure(line, "run_queue", record.run_queue_ns);
  append_figure(line, "switches", record.switches);
  append_figure(line, "samples", record.samples);
  append_figure(line, "work", record.work);
  line += ",\"late\":{";
  for (std::size_t i = 0; i < StepRecord::kLateRanks && record.late_ranks[i] >= 0; ++i) {
    append(line, std::to_string(record.late_ranks[i]), record.late_skews[i].count());
  }
  line += '}';
  line += ",\"notes\":[";
  for (const auto& [flag, note] : kNotes) {
    if ((record.flags & flag) != 0) line.append(line.back() == '[' ? "\"" : ",\"").append(note).append("\"");
  }
  return line + "]}";
}

StepFile::StepFile(const std::string& path, int rank)
    : path_(path), rank_(rank), fd_(open_output_alone(path, "another process writes its steps to it")) {
  own_descriptor(fd_);
  MutexLock control(control_);
  thread_ = start_thread("horo steps", [this] { write_all(); });
}

StepFile::~StepFile() {
  close();
}

void StepFile::add(const StepRecord& record) noexcept {
  MutexLock lock(mutex_);
  if (closing_) return;
  try {
    if (records_.size() < kMostWaiting) return records_.push_back(record);
  } catch (const std::bad_alloc&) {
  }
  ++left_out_;
}

void StepFile::close() noexcept {
  MutexLock control(control_);
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    closing_ = true;
    changed_.notify_all();
  }
  thread_.join();
  if (give_up_descriptor(fd_)) ::close(fd_);
}

void StepFile::write_all() noexcept {
  std::vector<StepRecord> records;
  for (bool is_last = false; !is_last;) {
    std::uint64_t left_out = 0;
    records.clear();
    {
      const TimePoint until = Clock::now() + kWriteEvery;
      MutexLock lock(mutex_);
      while (!closing_ && Clock::now() < until) changed_.wait_until(mutex_, until);
      is_last = closing_;
      records.swap(records_);
      left_out = std::exchange(left_out_, 0);
    }
    try {
      std::string text;
      for (const StepRecord& record : records) text += step_line(record, rank_) + '\n';
      if (left_out > 0) text += say("{\"rank\":", rank_, ",\"left_out\":", left_out, "}\n");
      write(text);
    } catch (const std::bad_alloc&) {
      log_warning("no memory to write the steps of this rank: some are left out");
    }
  }
}

// A disk that is full is told once.
void StepFile::write(const std::string& text) noexcept {
  std::size_t done = 0;
  while (done < text.size() && !has_failed_) {
    const ssize_t written = ::write(fd_, text.data() + done, text.size() - done);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno != EINTR) {
      has_failed_ = true;
      log_warning(say("HORO_STEPS: cannot write ", path_, ": ", std::strerror(errno)));
    }
  }
}

}  // namespace horo
