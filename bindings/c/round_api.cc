// The C ABI: steps and rounds.
#include "bindings/c/handles.h"

using horo_c::checked;
using horo_c::guarded;

int32_t horo_step_end(horo_session* session, uint32_t set) {
  return guarded([&]() -> std::int32_t {
    checked(session).session.step_end(set);
    return HORO_OK;
  });
}

int32_t horo_begin_round(horo_session* session, uint32_t set, uint64_t stream, uint64_t step, uint64_t round) {
  return guarded([&]() -> std::int32_t {
    checked(session).session.begin_round(set, stream, step, round);
    return HORO_OK;
  });
}

int32_t horo_fail_round(horo_session* session, uint32_t set, uint64_t stream, const char* reason) {
  return guarded([&]() -> std::int32_t {
    checked(session).session.fail_round(set, stream, reason == nullptr ? "it gave no reason" : reason);
    return HORO_OK;
  });
}
