// The devices of the fake of CUDA: late streams, events, and guarded memory (fake_cuda.h).
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/ring/cuda/fake_cuda.h"

namespace {

using horo::CudaApi, horo::CudaEvent, horo::CudaStream;

inline constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kInvalidDevice = 101;
inline constexpr int kInvalidContext = 201, kIllegalAddress = 700;

inline int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

struct Event {
  std::uint64_t recorded = 0, passed = 0;  // numbers of records
  bool is_timed = false;
  std::chrono::steady_clock::time_point passed_at = {};
};

// Work, a record of an event, or a wait for one.
struct Operation {
  std::function<void()> work = {};
  std::shared_ptr<Event> record = {};
  std::shared_ptr<Event> wait = {};
  std::uint64_t number = 0;  // of the record
  bool is_long = false;      // the work has a thread of its own
};

inline bool is_without(const char* part) {
  const char* text = std::getenv("HORO_FAKE_CUDA_WITHOUT");
  return text != nullptr && std::string(text) == part;
}

struct Stream {
  bool is_capturing = false;
  bool is_horos = false;
  std::deque<Operation> operations = {};
  bool is_running = false;
  std::jthread apart = {};  // of the last long work
};

struct Region {
  std::size_t bytes = 0;
  std::byte* alias = nullptr;  // the same memory, for the streams
};

class FakeCuda {
 public:
  static FakeCuda& get() {
    static FakeCuda* const fake = new FakeCuda;  // its thread runs until the process ends
    static const AtExit at_exit;
    return *fake;
  }

  int devices() const { return devices_; }

  CudaStream make_stream(bool is_capturing, bool is_horos) {
    const std::lock_guard lock(mutex_);
    const auto stream = std::make_shared<Stream>(Stream{is_capturing, is_horos});
    streams_[stream.get()] = stream;
    return stream.get();
  }

  int destroy_stream(CudaStream handle) {
    std::unique_lock lock(mutex_);
    const std::shared_ptr<Stream> stream = find(handle);
    changed_.wait(lock, [&] { return stream->operations.empty() && !stream->is_running; });
    streams_.erase(handle);
    return 0;
  }

  bool is_capturing(CudaStream handle) {
    const std::lock_guard lock(mutex_);
    return find(handle)->is_capturing;
  }

  CudaEvent make_event(bool is_timed = false) {
    const std::lock_guard lock(mutex_);
    const auto event = std::make_shared<Event>(Event{.is_timed = is_timed});
    events_[event.get()] = event;
    return event.get();
  }

  int destroy_event(CudaEvent handle) {
    const std::lock_guard lock(mutex_);
    return events_.erase(handle) == 1 ? 0 : kInvalidValue;
  }

  int record(CudaEvent handle, CudaStream stream) {
    const std::lock_guard lock(mutex_);
    const auto event = events_.find(handle);
    if (event == events_.end()) return kInvalidValue;
    put(stream, {{}, event->second, {}, ++event->second->recorded});
    return 0;
  }

  // What is put on the stream from now on is never run.
  void block(CudaStream stream) {
    const std::lock_guard lock(mutex_);
    put(stream, {{}, {}, std::make_shared<Event>(), 1});
  }

  int has_passed(CudaEvent handle, bool* has_passed) {
    const std::lock_guard lock(mutex_);
    const auto event = events_.find(handle);
    if (event == events_.end()) return kInvalidValue;
    *has_passed = event->second->passed >= event->second->recorded || is_without("event_query");
    return 0;
  }

  int elapsed(CudaEvent from, CudaEvent to, float* ms, bool* are_complete) {
    const std::lock_guard lock(mutex_);
    const auto one = events_.find(from), other = events_.find(to);
    if (one == events_.end() || other == events_.end()) return kInvalidValue;
    const Event &begin = *one->second, &end = *other->second;
    if (!begin.is_timed || !end.is_timed || begin.recorded == 0 || end.recorded == 0) return kInvalidValue;
    *are_complete = begin.passed >= begin.recorded && end.passed >= end.recorded;
    if (*are_complete) *ms = std::chrono::duration<float, std::milli>(end.passed_at - begin.passed_at).count();
    return 0;
  }

  int wait_on_host(CudaEvent handle) {
    std::unique_lock lock(mutex_);
    ++host_waits_;
    const auto found = events_.find(handle);
    if (found == events_.end()) return kInvalidValue;
    if (is_without("event_wait")) return 0;
    const std::shared_ptr<Event> event = found->second;
    changed_.wait(lock, [&, number = event->recorded] { return event->passed >= number; });
    return 0;
  }

  // The stream waits for the last record of the event.
  int wait_on_stream(CudaStream stream, CudaEvent handle) {
    const std::lock_guard lock(mutex_);
    const auto event = events_.find(handle);
    if (event == events_.end()) return kInvalidValue;
    if (is_without(find(stream)->is_horos ? "stream_wait" : "callers' stream_wait")) return 0;
    put(stream, {{}, {}, event->second, event->second->recorded});
    return 0;
  }

  void run_on(CudaStream stream, std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    put(stream, {std::move(work), {}, {}, 0});
  }

  // Work that may take for ever, beside that of other streams.
  void run_long_on(CudaStream stream, std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    put(stream, {std::move(work), {}, {}, 0, true});
  }

  void finish(CudaStream handle) {
    std::unique_lock lock(mutex_);
    const std::shared_ptr<Stream> stream = find(handle);
    changed_.wait(lock, [&] { return stream->operations.empty() && !stream->is_running; });
  }

  void* allocate(std::size_t bytes) {
    const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t room = (bytes + page - 1) / page * page + page;
    const int file = ::memfd_create("fake cuda", MFD_CLOEXEC);
    if (file < 0 || ::ftruncate(file, static_cast<off_t>(room)) != 0) return nullptr;
    void* const guarded = ::mmap(nullptr, room, PROT_NONE, MAP_SHARED, file, 0);
    void* const alias = ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    const std::lock_guard lock(mutex_);
    regions_[static_cast<std::byte*>(guarded)] = {room, static_cast<std::byte*>(alias)};
    return guarded;
  }

  // Waits for nothing. The addresses are not given out again, so that late use is seen.
  void free(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(static_cast<std::byte*>(memory));
    if (found == regions_.end() || found->second.alias == nullptr) return;
    ::mmap(found->first, found->second.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
           0);
    ::munmap(std::exchange(found->second.alias, nullptr), found->second.bytes);
  }

  // Where a stream reads or writes this address.
  std::byte* alias_of(const void* address) {
    const std::lock_guard lock(mutex_);
    auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
    auto found = regions_.upper_bound(at);
    if (found == regions_.begin()) return at;
    --found;
    const auto offset = static_cast<std::size_t>(at - found->first);
    if (offset >= found->second.bytes) return at;
    if (found->second.alias == nullptr) {
      std::fprintf(stderr, "fake CUDA: a stream uses memory that was freed before\n");
      std::abort();
    }
    return found->second.alias + offset;
  }

  int error_in(const std::string& function, int device) {
    const char* fail = std::getenv("HORO_FAKE_CUDA_FAIL");
    const std::lock_guard lock(mutex_);
    const std::string here = function + "@" + std::to_string(device);
    const int call = ++calls_[function];
    if (fail == nullptr) {
      failing_.clear();
      return 0;
    }
    if (failing_ != fail) calls_here_ = 0;
    failing_ = fail;
    if (failing_.starts_with(here + ":")) ++calls_here_;
    if (failing_ != function && failing_ != function + ":" + std::to_string(call) && failing_ != here &&
        failing_ != here + ":" + std::to_string(calls_here_)) {
      return 0;
    }
    return function == "allocate_blocking" || function == "pin" ? kOutOfMemory : kIllegalAddress;
  }

  void reseed(std::uint64_t seed) {
    const std::lock_guard lock(mutex_);
    random_.seed(seed);
  }

  FakeCudaCounts counts() {
    const std::lock_guard lock(mutex_);
    return {static_cast<std::int64_t>(streams_.size()),
            static_cast<std::int64_t>(events_.size()),
            pinned,
            pins,
            without_device,
            allocated,
            launches,
            host_waits_};
  }

  std::atomic<std::int64_t> pinned = 0, pins = 0, without_device = 0, allocated = 0,
                            launches = 0;  // these order nothing

 private:
  // Joins the threads whose long work has ended. Work that never ends is left. A forked child has none of the threads,
  // of which one may have had the lock.
  struct AtExit {
    const pid_t process = ::getpid();

    ~AtExit() {
      if (process != ::getpid()) return;
      FakeCuda& fake = get();
      const std::lock_guard lock(fake.mutex_);
      for (const auto& [handle, stream] : fake.streams_) {
        if (!stream->is_running && stream->apart.joinable()) stream->apart.join();
      }
    }
  };

  FakeCuda()
      : devices_(number_from("HORO_FAKE_CUDA_DEVICES", 8)),
        random_(static_cast<std::uint64_t>(number_from("HORO_FAKE_CUDA_SEED", 1))),
        thread_([this] { loop(); }) {}

  std::shared_ptr<Stream> find(CudaStream handle) {
    std::shared_ptr<Stream>& stream = streams_[handle];  // the default stream is made here
    if (!stream) stream = std::make_shared<Stream>();
    return stream;
  }

  void put(CudaStream stream, Operation operation) {
    find(stream)->operations.push_back(std::move(operation));
    changed_.notify_all();
  }

  std::vector<std::shared_ptr<Stream>> ready() {
    std::vector<std::shared_ptr<Stream>> all;
    for (const auto& [handle, stream] : streams_) {
      if (stream->operations.empty() || stream->is_running) continue;
      const Operation& next = stream->operations.front();
      if (!next.wait || next.wait->passed >= next.number) all.push_back(stream);
    }
    return all;
  }

  [[noreturn]] void loop() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !ready().empty(); });
      // Late: the host goes on meanwhile, and other streams may get operations.
      const auto late = std::chrono::microseconds(random_() % 4 == 0 ? random_() % 300 : 0);
      changed_.wait_for(lock, late, [] { return false; });
      const auto all = ready();
      if (all.empty()) continue;
      const std::shared_ptr<Stream>& stream = all[random_() % all.size()];
      const Operation operation = std::move(stream->operations.front());
      stream->operations.pop_front();
      if (operation.is_long) {
        run_apart(stream, operation.work);
      } else if (operation.work) {
        stream->is_running = true;
        lock.unlock();
        operation.work();
        lock.lock();
        stream->is_running = false;
      }
      if (operation.record) {
        operation.record->passed = std::max(operation.record->passed, operation.number);
        operation.record->passed_at = std::chrono::steady_clock::now();
      }
      changed_.notify_all();
    }
  }

  void run_apart(const std::shared_ptr<Stream>& stream, const std::function<void()>& work) {
    stream->is_running = true;
    stream->apart = std::jthread([this, running = stream.get(), work] {
      work();
      const std::lock_guard lock(mutex_);
      running->is_running = false;
      changed_.notify_all();
    });
  }

  const int devices_;
  std::int64_t host_waits_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::map<void*, std::shared_ptr<Stream>> streams_;
  std::map<void*, std::shared_ptr<Event>> events_;
  std::map<std::byte*, Region> regions_;
  std::map<std::string, int> calls_;
  std::string failing_;  // HORO_FAKE_CUDA_FAIL
  int calls_here_ = 0;   // of its function on its device, since it was set
  std::thread thread_;
};

}  // namespace
