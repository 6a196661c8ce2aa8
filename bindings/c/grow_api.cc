// The C ABI: elastic jobs that grow.
#include <algorithm>

#include "bindings/c/handles.h"

using horo_c::checked;
using horo_c::guarded;

int32_t horo_has_yet_to_join(horo_session* session) {
  return guarded([&]() -> std::int32_t { return checked(session).session.has_yet_to_join() ? 1 : 0; });
}

int32_t horo_can_grow(horo_session* session, const char* terms) {
  return guarded([&]() -> std::int32_t {
    checked(session).session.can_grow(terms == nullptr ? "" : terms);
    return HORO_OK;
  });
}

int32_t horo_get_joiners(horo_session* session, uint32_t* ids, size_t count) {
  return guarded([&]() -> std::int32_t {
    const std::vector<std::uint32_t> joiners = checked(session).session.joiners();
    if (ids == nullptr && count > 0) throw std::invalid_argument("ids is a null pointer");
    std::copy_n(joiners.begin(), std::min(count, joiners.size()), ids);
    return static_cast<std::int32_t>(joiners.size());
  });
}

int64_t horo_grow(horo_session* session) {
  return guarded([&]() -> std::int64_t {
    horo_session& s = checked(session);
    horo_c::WorkTable::Seat seat(s.works);
    return seat.give(s.session.grow());
  });
}

int32_t horo_synced(horo_session* session, const char* text) {
  return guarded([&]() -> std::int32_t {
    checked(session).session.synced(text == nullptr ? "" : text);
    return HORO_OK;
  });
}
