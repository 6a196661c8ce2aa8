#include "horo/base/timeline.h"

#include <chrono>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <utility>

#include "horo/base/log.h"
#include "horo/base/say.h"
#include "horo/base/thread.h"
#include "horo/base/timeline_file.h"

namespace horo {
namespace {

constexpr std::chrono::milliseconds kWriteEvery{250};
constexpr std::size_t kMostWeight = 1 << 18;  // about 40 MB

}  // namespace

Timeline::Timeline() = default;

Timeline::~Timeline() {
  try {
    stop();
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
}

void Timeline::start(const std::string& path, int rank, int size) {
  MutexLock control(control_);
  if (thread_.joinable()) throw std::invalid_argument("timeline: one is being written already; stop it first");
  file_ = std::make_unique<TimelineFile>(path, rank, size, Clock::now());
  file_->flush();  // what describes the rank, in case it is killed soon
  {
    MutexLock lock(mutex_);
    stopping_ = false;
  }
  thread_ = start_thread("horo timeline", [this] { write_all(); });
  is_on_ = true;
}

void Timeline::stop() {
  MutexLock control(control_);
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    is_on_ = false;
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
  thread_ = {};
  const std::unique_ptr<TimelineFile> file = std::move(file_);
  file->close();
}

void Timeline::add(TimelineJob job) noexcept {
  const std::size_t weight = 1 + job.tensors.size();
  push(std::move(job), weight);
}

void Timeline::add(TimelineStep step) noexcept {
  const std::size_t weight = 1 + step.parts.size() / 2;
  push(std::move(step), weight);
}

void Timeline::begin_epoch(TimePoint now, std::uint32_t epoch, int rank, int size) noexcept {
  if (is_on()) push(Epoch{now, epoch, rank, size}, 1);
}

void Timeline::add_wait(TimePoint begin, TimePoint end) noexcept {
  push(Wait{begin, end}, 1);
}

void Timeline::end_step(TimePoint now) noexcept {
  if (is_on()) push(Step{now}, 1);
}

void Timeline::push(Record record, std::size_t weight) noexcept {
  MutexLock lock(mutex_);
  if (!is_on()) return;  // what has begun before stop() is not of the next file
  if (weight_ + weight > kMostWeight) {
    ++dropped_;
    return;
  }
  try {
    records_.push_back(std::move(record));
    weight_ += weight;
  } catch (const std::bad_alloc&) {
    ++dropped_;
  }
}

void Timeline::write_all() noexcept {
  for (bool is_last = false; !is_last;) {
    std::vector<Record> records;
    std::uint64_t dropped = 0;
    {
      const TimePoint until = Clock::now() + kWriteEvery;
      MutexLock lock(mutex_);
      while (!stopping_ && Clock::now() < until) changed_.wait_until(mutex_, until);
      is_last = stopping_;
      records.swap(records_);
      weight_ = 0;
      dropped = std::exchange(dropped_, 0);
    }
    try {
      for (const Record& record : records) {
        if (const auto* job = std::get_if<TimelineJob>(&record)) file_->write(*job);
        if (const auto* step = std::get_if<TimelineStep>(&record)) file_->write(*step);
        if (const auto* epoch = std::get_if<Epoch>(&record)) {
          file_->write_mark(epoch->begin, say("epoch ", epoch->number, ": rank ", epoch->rank, " of ", epoch->size));
        }
        if (const auto* wait = std::get_if<Wait>(&record)) file_->write_wait(wait->begin, wait->end);
        if (const auto* step = std::get_if<Step>(&record)) file_->write_step(step->end);
      }
      if (dropped > 0) file_->write_dropped(dropped, Clock::now());
      file_->flush();
    } catch (const std::exception& error) {
      log_warning(say("timeline: some events are not written: ", error.what()));
    }
  }
}

std::string timeline_path(const std::string& path, int rank) {
  if (rank == 0) return path;
  const std::filesystem::path whole(path);
  const std::string name = whole.stem().string() + ".rank" + std::to_string(rank) + whole.extension().string();
  return (whole.parent_path() / name).string();
}

}  // namespace horo
