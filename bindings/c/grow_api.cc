// The C ABI: elastic jobs that grow.
#include <algorithm>

#include "bindings/c/handles.h"
#include "horo/state/transfer.h"

using horo_c::check_struct;
using horo_c::checked;
using horo_c::guarded;
using horo_c::thread_state;

namespace {

horo::NamedBuffer named(const horo_state_buffer& buffer) {
  if (buffer.struct_bytes != sizeof(horo_state_buffer)) {  // they are elements of an array
    throw std::invalid_argument("horo_transfer: horo_state_buffer has " + std::to_string(buffer.struct_bytes) +
                                " bytes, expected " + std::to_string(sizeof(horo_state_buffer)));
  }
  const std::string name = buffer.name == nullptr ? "" : buffer.name;
  if (buffer.data == nullptr && buffer.bytes > 0) {
    throw std::invalid_argument("horo_transfer: the data of " + name + " is a null pointer");
  }
  return {name, buffer.form == nullptr ? "" : buffer.form, static_cast<std::byte*>(buffer.data), buffer.bytes,
          buffer.is_of_first != 0};
}

}  // namespace

int32_t horo_has_yet_to_join(horo_session* session) {
  return guarded([&]() -> std::int32_t { return checked(session).session.has_yet_to_join() ? 1 : 0; });
}

const char* horo_rejoin(horo_session* session) {
  thread_state().text.clear();
  const std::int32_t status = guarded([&]() -> std::int32_t {
    const auto config = horo::rejoin(checked(session).session);
    if (!config) return HORO_OK;
    std::string& text = thread_state().text;
    const auto add = [&text](const char* name, int value) {
      text.append(name).append("=").append(std::to_string(value)).append("\n");
    };
    add("HORO_RANK", config->rank);
    add("HORO_SIZE", config->size);
    add("HORO_GUARD_FD", config->guard_fd);
    add("HORO_JOINS", 1);
    return HORO_OK;
  });
  return status == HORO_OK ? thread_state().text.c_str() : nullptr;
}

int32_t horo_can_grow(horo_session* session, const char* terms) {
  return guarded([&]() -> std::int32_t {
    horo::Session& own = checked(session).session;
    terms == nullptr ? own.cannot_grow() : own.can_grow(terms);
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

int32_t horo_transfer(horo_session* session, const horo_state_buffer* buffers, size_t count, int32_t has_state,
                      horo_transferred* moved) {
  return guarded([&]() -> std::int32_t {
    check_struct(moved, "horo_transferred");
    if (buffers == nullptr && count > 0) throw std::invalid_argument("horo_transfer: buffers is a null pointer");
    std::vector<horo::NamedBuffer> all;
    for (size_t i = 0; i < count; ++i) all.push_back(named(buffers[i]));
    const horo::Transferred found = horo::transfer_state(checked(session).session, all, has_state != 0);
    thread_state().text = found.donors.empty() ? "" : horo::text_of(found);
    *moved = {moved->struct_bytes, found.is_complete ? 1 : 0,  found.by_messages ? 1 : 0, found.bytes,
              found.seconds,       thread_state().text.c_str()};
    return HORO_OK;
  });
}
