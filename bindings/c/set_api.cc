// The C ABI: process sets, and operations and codecs that callers register.
#include "bindings/c/foreign_codec.h"
#include "bindings/c/handles.h"

using horo_c::check_struct;
using horo_c::checked;
using horo_c::guarded;
using horo_c::thread_state;

int64_t horo_add_set(horo_session* session, const int32_t* ranks, size_t count, const char* name) {
  return horo_add_set_with(session, ranks, count, name, 0);
}

int64_t horo_add_set_with(horo_session* session, const int32_t* ranks, size_t count, const char* name, uint32_t flags) {
  return guarded([&]() -> std::int64_t {
    horo_session& s = checked(session);
    if (ranks == nullptr && count > 0) throw std::invalid_argument("ranks is a null pointer");
    if ((flags & ~std::uint32_t{HORO_SET_SHRINKS | HORO_SET_BY_MEMBERS}) != 0) {
      throw std::invalid_argument("the flags of horo_add_set_with are " + std::to_string(flags) +
                                  ", expected the sum of HORO_SET_SHRINKS and HORO_SET_BY_MEMBERS, one of them or 0");
    }
    const std::vector<int> members(ranks, ranks + count);
    const std::string named = name == nullptr ? "" : name;
    const bool shrinks = (flags & HORO_SET_SHRINKS) != 0;
    horo_c::WorkTable::Seat seat(s.works);
    return seat.give((flags & HORO_SET_BY_MEMBERS) != 0 ? s.session.add_set_by_members(members, named, shrinks)
                                                        : s.session.add_set(members, named, shrinks));
  });
}

int64_t horo_remove_set(horo_session* session, uint32_t set) {
  return guarded([&]() -> std::int64_t {
    horo_session& s = checked(session);
    horo_c::WorkTable::Seat seat(s.works);
    return seat.give(s.session.remove_set(set));
  });
}

int32_t horo_get_set(horo_session* session, uint32_t set, horo_set_info* info) {
  return guarded([&]() -> std::int32_t {
    horo_session& s = checked(session);
    check_struct(info, "horo_set_info");
    const horo::SetInfo found = s.session.set_info(set);
    thread_state().ranks = found.ranks;
    thread_state().text = found.name;
    *info = {info->struct_bytes, found.rank, found.size(), thread_state().ranks.data(), thread_state().text.c_str()};
    return HORO_OK;
  });
}

int64_t horo_join(horo_session* session, uint32_t set) {
  return guarded([&]() -> std::int64_t {
    horo_session& s = checked(session);
    horo_c::WorkTable::Seat seat(s.works);
    return seat.give(s.session.join(set));
  });
}

int64_t horo_rebuild(horo_session* session) {
  return guarded([&]() -> std::int64_t {
    horo_session& s = checked(session);
    horo_c::WorkTable::Seat seat(s.works);
    return seat.give(s.session.rebuild());
  });
}

int32_t horo_register_op(horo_session* session, const char* name, const horo_op* op) {
  return guarded([&]() -> std::int32_t {
    horo_session& s = checked(session);
    check_struct(op, "horo_op");
    if (op->flags != HORO_OP_ASSOCIATIVE && op->flags != HORO_OP_WHOLE) {
      throw std::invalid_argument("horo_op.flags is " + std::to_string(op->flags) +
                                  ", expected HORO_OP_ASSOCIATIVE or HORO_OP_WHOLE");
    }
    if (op->combine == nullptr) throw std::invalid_argument("horo_op.combine is a null pointer");
    horo::CustomOp custom;
    custom.name = name == nullptr ? "" : name;
    custom.whole = op->flags == HORO_OP_WHOLE;
    custom.combine = [combine = op->combine, user = op->user](std::byte* accumulator, const std::byte* value,
                                                              std::uint64_t count, horo::DType dtype) {
      return combine(user, accumulator, value, count, static_cast<std::int32_t>(dtype));
    };
    s.session.register_op(std::move(custom));
    return HORO_OK;
  });
}

int32_t horo_register_codec(horo_session* session, const char* name, const horo_codec* codec) {
  return guarded([&]() -> std::int32_t {
    checked(session).session.register_codec(horo_c::codec_from(name, codec));
    return HORO_OK;
  });
}
