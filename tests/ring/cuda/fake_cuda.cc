#include "tests/ring/cuda/fake_cuda.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

namespace {

using horo::CudaApi, horo::CudaEvent, horo::CudaStream;

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kInvalidDevice = 101;
constexpr int kInvalidContext = 201, kIllegalAddress = 700;

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

struct Event {
  std::uint64_t recorded = 0, passed = 0;  // numbers of records
};

// Work, a record of an event, or a wait for one.
struct Operation {
  std::function<void()> work = {};
  std::shared_ptr<Event> record = {};
  std::shared_ptr<Event> wait = {};
  std::uint64_t number = 0;  // of the record
};

struct Stream {
  bool is_capturing = false;
  std::deque<Operation> operations = {};
  bool is_running = false;
};

struct Region {
  std::size_t bytes = 0;
  std::byte* alias = nullptr;  // the same memory, for the streams
};

class FakeCuda {
 public:
  static FakeCuda& get() {
    static FakeCuda* const fake = new FakeCuda;  // its thread runs until the process ends
    return *fake;
  }

  int devices() const { return devices_; }

  CudaStream make_stream(bool is_capturing) {
    const std::lock_guard lock(mutex_);
    const auto stream = std::make_shared<Stream>(Stream{is_capturing});
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

  CudaEvent make_event() {
    const std::lock_guard lock(mutex_);
    const auto event = std::make_shared<Event>();
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
    *has_passed = event->second->passed >= event->second->recorded;
    return 0;
  }

  int wait_on_host(CudaEvent handle) {
    std::unique_lock lock(mutex_);
    const auto found = events_.find(handle);
    if (found == events_.end()) return kInvalidValue;
    const std::shared_ptr<Event> event = found->second;
    changed_.wait(lock, [&, number = event->recorded] { return event->passed >= number; });
    return 0;
  }

  // The stream waits for the last record of the event.
  int wait_on_stream(CudaStream stream, CudaEvent handle) {
    const std::lock_guard lock(mutex_);
    const auto event = events_.find(handle);
    if (event == events_.end()) return kInvalidValue;
    put(stream, {{}, {}, event->second, event->second->recorded});
    return 0;
  }

  void run_on(CudaStream stream, std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    put(stream, {std::move(work), {}, {}, 0});
  }

  void finish(CudaStream handle) {
    std::unique_lock lock(mutex_);
    const std::shared_ptr<Stream> stream = find(handle);
    changed_.wait(lock, [&] { return stream->operations.empty() && !stream->is_running; });
  }

  // Streams that wait for an event that is never complete are left out.
  void finish_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] {
      return ready().empty() && std::ranges::none_of(streams_, [](const auto& one) { return one.second->is_running; });
    });
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

  void free(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = regions_.find(static_cast<std::byte*>(memory));
    if (found == regions_.end()) return;
    ::munmap(found->first, found->second.bytes);
    ::munmap(found->second.alias, found->second.bytes);
    regions_.erase(found);
  }

  // Where a stream reads or writes this address.
  std::byte* alias_of(const void* address) {
    const std::lock_guard lock(mutex_);
    auto* const at = static_cast<std::byte*>(const_cast<void*>(address));
    auto found = regions_.upper_bound(at);
    if (found == regions_.begin()) return at;
    --found;
    const auto offset = static_cast<std::size_t>(at - found->first);
    return offset < found->second.bytes ? found->second.alias + offset : at;
  }

  int error_in(const std::string& function) {
    const char* fail = std::getenv("HORO_FAKE_CUDA_FAIL");
    const std::lock_guard lock(mutex_);
    const int call = ++calls_[function];
    if (fail == nullptr) return 0;
    return fail == function || fail == function + ":" + std::to_string(call) ? kIllegalAddress : 0;
  }

  FakeCudaCounts counts() {
    const std::lock_guard lock(mutex_);
    return {static_cast<std::int64_t>(streams_.size()), static_cast<std::int64_t>(events_.size()), pinned, pins,
            without_device, allocated};
  }

  std::atomic<std::int64_t> pinned = 0, pins = 0, without_device = 0, allocated = 0;  // these order nothing

 private:
  FakeCuda()
      : devices_(number_from("HORO_FAKE_CUDA_DEVICES", 2)),
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
      if (stream->operations.empty()) continue;
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
      const std::shared_ptr<Stream> stream = all[random_() % all.size()];
      const Operation operation = std::move(stream->operations.front());
      stream->operations.pop_front();
      if (operation.work) {
        stream->is_running = true;
        lock.unlock();
        operation.work();
        lock.lock();
        stream->is_running = false;
      }
      if (operation.record) operation.record->passed = std::max(operation.record->passed, operation.number);
      changed_.notify_all();
    }
  }

  const int devices_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::map<void*, std::shared_ptr<Stream>> streams_;
  std::map<void*, std::shared_ptr<Event>> events_;
  std::map<std::byte*, Region> regions_;
  std::map<std::string, int> calls_;
  std::thread thread_;
};

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

thread_local std::vector<int> entered;

int begin(const char* function) {
  if (!entered.empty()) return FakeCuda::get().error_in(function);
  ++FakeCuda::get().without_device;
  return kInvalidContext;
}

int start(int* devices, char* why, std::size_t room) {
  static const int pid = ::getpid();
  if (pid != ::getpid()) {
    std::snprintf(why, room, "%s", horo::kForkedText);
    return kNotInitialized;
  }
  *devices = FakeCuda::get().devices();
  std::snprintf(why, room, "the fake does not start");
  return FakeCuda::get().error_in("start");
}

// Processes have devices of their own, unless HORO_FAKE_CUDA_SHARED is set.
int identify(int device, unsigned char* uuid) {
  const int pid = std::getenv("HORO_FAKE_CUDA_SHARED") == nullptr ? ::getpid() : 0;
  std::memset(uuid, 0, 16);
  std::memcpy(uuid, &device, sizeof(device));
  std::memcpy(uuid + 8, &pid, sizeof(pid));
  return 0;
}

int enter(int device) {
  if (device < 0 || device >= FakeCuda::get().devices()) return kInvalidDevice;
  entered.push_back(device);
  return 0;
}

int leave() {
  if (entered.empty()) return kInvalidContext;
  entered.pop_back();
  return 0;
}

int stream_create(CudaStream* stream) {
  if (const int error = begin("stream_create")) return error;
  *stream = FakeCuda::get().make_stream(false);
  return 0;
}

int event_create(CudaEvent* event) {
  if (const int error = begin("event_create")) return error;
  *event = FakeCuda::get().make_event();
  return 0;
}

int allocate(void** memory, std::size_t bytes) {
  if (const int error = begin("allocate_blocking")) return error;
  *memory = FakeCuda::get().allocate(bytes);
  if (*memory == nullptr) return kOutOfMemory;
  ++FakeCuda::get().allocated;
  return 0;
}

int free_memory(void* memory) {
  if (const int error = begin("free_blocking")) return error;
  FakeCuda::get().finish_all();
  FakeCuda::get().free(memory);
  --FakeCuda::get().allocated;
  return 0;
}

int copy(const char* function, void* to, const void* from, std::size_t bytes, CudaStream stream) {
  if (const int error = begin(function)) return error;
  FakeCuda::get().run_on(stream,
                         [=] { copy_bytes(FakeCuda::get().alias_of(to), FakeCuda::get().alias_of(from), bytes); });
  return 0;
}

constexpr CudaApi kApi{
    horo::kCudaApiVersion,
    start,
    [](int device, char* text, std::size_t room) {
      std::snprintf(text, room, "fake device %d", device);
      return 0;
    },
    identify,
    enter,
    leave,
    stream_create,
    [](CudaStream stream) {
      const int error = begin("stream_destroy");
      return error != 0 ? error : FakeCuda::get().destroy_stream(stream);
    },
    [](CudaStream stream, bool* is_capturing) {
      *is_capturing = FakeCuda::get().is_capturing(stream);
      return begin("stream_is_capturing");
    },
    event_create,
    [](CudaEvent event) {
      const int error = begin("event_destroy");
      return error != 0 ? error : FakeCuda::get().destroy_event(event);
    },
    [](CudaEvent event, CudaStream stream) {
      const int error = begin("event_record");
      return error != 0 ? error : FakeCuda::get().record(event, stream);
    },
    [](CudaEvent event, bool* has_passed) {
      const int error = begin("event_query");
      return error != 0 ? error : FakeCuda::get().has_passed(event, has_passed);
    },
    [](CudaEvent event) {
      const int error = begin("event_wait_blocking");
      return error != 0 ? error : FakeCuda::get().wait_on_host(event);
    },
    [](CudaStream stream, CudaEvent event) {
      const int error = begin("stream_wait");
      return error != 0 ? error : FakeCuda::get().wait_on_stream(stream, event);
    },
    allocate,
    free_memory,
    [](void* to, const void* from, std::size_t bytes, CudaStream stream) {
      return copy("copy_to_host", to, from, bytes, stream);
    },
    [](void* to, const void* from, std::size_t bytes, CudaStream stream) {
      return copy("copy_to_device", to, from, bytes, stream);
    },
    [](void* to, const void* from, std::size_t bytes, CudaStream stream) {
      return copy("copy_on_device", to, from, bytes, stream);
    },
    [](void* /*data*/, std::size_t /*bytes*/) {
      if (const int error = begin("pin")) return error;
      ++FakeCuda::get().pinned;
      ++FakeCuda::get().pins;
      return 0;
    },
    [](void* /*data*/) {
      if (const int error = begin("unpin")) return error;
      --FakeCuda::get().pinned;
      return 0;
    },
    [](int error, char* text, std::size_t room) { std::snprintf(text, room, "error %d of the fake", error); },
};

}  // namespace

extern "C" {

__attribute__((visibility("default"))) const CudaApi* horo_cuda_api() {
  return &kApi;
}

void* fake_cuda_allocate(std::size_t bytes) {
  return FakeCuda::get().allocate(bytes);
}
void fake_cuda_free(void* memory) {
  FakeCuda::get().free(memory);
}
CudaStream fake_cuda_stream(bool is_capturing) {
  return FakeCuda::get().make_stream(is_capturing);
}
void fake_cuda_write(CudaStream stream, void* to, const void* from, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(from);
  FakeCuda::get().run_on(stream, [to, data = std::vector<std::byte>(first, first + bytes)] {
    copy_bytes(FakeCuda::get().alias_of(to), data.data(), data.size());
  });
}
void fake_cuda_read(CudaStream stream, void* to, const void* from, std::size_t bytes) {
  FakeCuda::get().finish(stream);
  copy_bytes(to, FakeCuda::get().alias_of(from), bytes);
}
void fake_cuda_block(CudaStream stream) {
  FakeCuda::get().block(stream);
}
void fake_cuda_counts(FakeCudaCounts* counts) {
  *counts = FakeCuda::get().counts();
}
}
