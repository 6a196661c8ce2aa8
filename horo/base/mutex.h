// Lock types that clang's thread-safety analysis understands; plain std types under other compilers.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define HORO_ANNOTATION(x) __attribute__((x))
#else
#define HORO_ANNOTATION(x)
#endif

#define CAPABILITY(x) HORO_ANNOTATION(capability(x))
#define SCOPED_CAPABILITY HORO_ANNOTATION(scoped_lockable)
#define GUARDED_BY(x) HORO_ANNOTATION(guarded_by(x))
#define REQUIRES(...) HORO_ANNOTATION(requires_capability(__VA_ARGS__))
#define ACQUIRE(...) HORO_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RELEASE(...) HORO_ANNOTATION(release_capability(__VA_ARGS__))
#define EXCLUDES(...) HORO_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace horo {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds the mutex for the life of the scope.
class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// A condition variable for Mutex. Waits wake spuriously: callers loop on their condition.
class CondVar {
 public:
  void wait(Mutex& mutex) REQUIRES(mutex) {
    Lock lock(mutex);
    condition_.wait(lock.held);
  }
  template <class Time>
  void wait_until(Mutex& mutex, const Time& until) REQUIRES(mutex) {
    Lock lock(mutex);
    condition_.wait_until(lock.held, until);
  }
  void notify_all() noexcept { condition_.notify_all(); }

 private:
  // A std::unique_lock of the mutex, as std::condition_variable requires; the caller holds the mutex before and after.
  struct Lock {
    explicit Lock(Mutex& mutex) : held(mutex.mutex_, std::adopt_lock) {}
    ~Lock() { held.release(); }
    std::unique_lock<std::mutex> held;
  };
  std::condition_variable condition_;
};

}  // namespace horo
