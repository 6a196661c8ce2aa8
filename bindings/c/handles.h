// Shared parts of the C ABI: the session behind the handle, the one catch at the C boundary, and error texts per
// thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/c/horo_c.h"
#include "bindings/c/work_table.h"
#include "horo/horo.h"

struct horo_session {
  explicit horo_session(const horo::Config& config, const horo::Exchange& exchange = {}) : session(config, exchange) {}
  horo_session(const horo::Config& config, const horo::JoinTerms& terms) : session(config, terms) {}

  // One of several concurrent threads shuts down, and the others wait for it. (std::call_once uses thread-local
  // variables of the C++ library; a library that uses those cannot be loaded late, when the loader has little room left
  // for them.)
  void shut_down(bool with_process) {
    {
      std::unique_lock lock(mutex);
      if (std::exchange(is_shutting_down, true)) return changed.wait(lock, [this] { return is_shut_down; });
    }
    session.shutdown(with_process);
    const std::lock_guard lock(mutex);
    is_shut_down = true;
    changed.notify_all();
  }

  horo_c::WorkTable works;
  std::mutex mutex;
  std::condition_variable changed;  // with mutex: is_shut_down
  bool is_shutting_down = false;
  bool is_shut_down = false;
  horo::Session session;
};

namespace horo_c {

// The last error of this thread, and the memory behind pointers that its calls returned.
struct ThreadState {
  std::string error;
  std::int32_t status = HORO_OK;
  std::int32_t origin = -1;
  std::string text;
  std::vector<std::int32_t> ranks;
};
ThreadState& thread_state() noexcept;

std::int32_t failed(std::int32_t status, const char* text, int origin = -1) noexcept;

// Runs a call and turns an exception into a status and an error text.
template <class Call>
auto guarded(Call call) noexcept -> decltype(call()) {
  try {
    return call();
  } catch (const std::invalid_argument& e) {
    return failed(HORO_INVALID_ARGUMENT, e.what());
  } catch (const horo::Mismatch& e) {
    return failed(HORO_MISMATCH, e.what());
  } catch (const horo::PeerLost& e) {
    return failed(HORO_PEER_LOST, e.what(), e.origin());
  } catch (const horo::ShutDown& e) {
    return failed(HORO_SHUT_DOWN, e.what());
  } catch (const std::exception& e) {
    return failed(HORO_INTERNAL, e.what());
  } catch (...) {
    return failed(HORO_INTERNAL, "an unknown exception");
  }
}

template <class T>
void check_struct(const T* value, const char* what) {
  if (value == nullptr) throw std::invalid_argument(std::string(what) + " is a null pointer");
  if (value->struct_bytes < sizeof(T)) {
    throw std::invalid_argument(std::string(what) + ".struct_bytes is " + std::to_string(value->struct_bytes) +
                                ", this horo needs " + std::to_string(sizeof(T)));
  }
}

inline horo_session& checked(horo_session* session) {
  if (session == nullptr) throw std::invalid_argument("the session is a null pointer; call horo_init first");
  session->session.check_process();
  return *session;
}

}  // namespace horo_c
