#include "bindings/c/handles.h"

namespace horo_c {

ThreadState& thread_state() noexcept {
  thread_local ThreadState state;
  return state;
}

std::int32_t failed(std::int32_t status, const char* text, int origin) noexcept {
  ThreadState& state = thread_state();
  try {
    state.error = text;
  } catch (const std::exception&) {
    state.error = "out of memory";  // short enough for the string's inline memory
  }
  state.status = status;
  state.origin = origin;
  return status;
}

}  // namespace horo_c

using horo_c::thread_state;

const char* horo_error_text(const horo_session*) {
  return thread_state().error.c_str();
}

int32_t horo_error_status(const horo_session*) {
  return thread_state().status;
}

int32_t horo_error_origin(const horo_session*) {
  return thread_state().origin;
}
