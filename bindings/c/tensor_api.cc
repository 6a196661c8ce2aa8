// The C ABI: tensors, works and their results.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>

#include "bindings/c/handles.h"

using horo_c::check_struct;
using horo_c::checked;
using horo_c::guarded;
using horo_c::WorkTable;

namespace {

template <class T>
T known(std::optional<T> value, const char* what, int number) {
  if (!value)
    throw std::invalid_argument(std::string(what) + " " + std::to_string(number) + " is not known to this horo");
  return *value;
}

std::string text_or_nothing(const char* text) {
  return text == nullptr ? "" : text;
}

std::vector<std::int64_t> numbers(const std::int64_t* first, std::uint64_t count, const char* what) {
  if (count == 0) return {};
  if (first == nullptr) throw std::invalid_argument(std::string(what) + " is a null pointer");
  return {first, first + count};
}

horo::TensorSpec spec_from(const horo_tensor_spec* c) {
  check_struct(c, "horo_tensor_spec");
  if (c->dims < 0 || (c->dims > 0 && c->shape == nullptr)) throw std::invalid_argument("shape is a null pointer");
  if (c->split_count < 0) throw std::invalid_argument("split_count is negative: " + std::to_string(c->split_count));
  horo::TensorSpec spec;
  spec.set = c->set;
  spec.name = text_or_nothing(c->name);
  spec.once = spec.name.empty();
  spec.stepwise = c->stepwise != 0;
  spec.priority = c->priority;
  spec.kind = known(horo::collective_kind_from(c->kind), "kind", c->kind);
  spec.op = known(horo::reduce_op_from(c->op), "op", c->op);
  spec.dtype = known(horo::dtype_from(c->dtype), "dtype", c->dtype);
  spec.order = known(horo::order_from(c->order), "order", c->order);
  spec.root = c->root;
  spec.peer = c->peer;
  spec.prescale = c->prescale;
  spec.postscale = c->postscale;
  spec.shape.assign(c->shape, c->shape + c->dims);
  spec.splits = numbers(c->splits, static_cast<std::uint64_t>(c->split_count), "splits");
  spec.codec = text_or_nothing(c->codec);
  spec.custom_op = text_or_nothing(c->custom_op);
  spec.round_stream = c->round_stream;
  spec.counts_known = c->counts_known != 0;
  spec.device = known(horo::device_type_from(c->device_type), "device_type", c->device_type);
  return spec;
}

horo::Key key_from(std::int64_t key) {
  if (key < 0 || key > UINT32_MAX) throw std::invalid_argument("key " + std::to_string(key) + " was not declared");
  return static_cast<horo::Key>(key);
}

// All fields but the key. Records an event on the stream of a device tensor.
horo::Submission submission_from(horo_session& session, const horo_submission* c) {
  check_struct(c, "horo_submission");
  horo::Submission submission{0, c->in, c->out, c->absent != 0, c->out_bytes, {}};
  submission.splits = numbers(c->splits, c->split_count, "splits");
  const auto type = known(horo::device_type_from(c->device_type), "device_type", c->device_type);
  if (type == horo::DeviceType::kCuda) submission.ready = session.session.record(c->device, c->stream);
  return submission;
}

// The i-th of contiguous structs whose size is the struct_bytes of the first one.
template <class T>
const T* at(const T* first, std::size_t i, const char* what) {
  check_struct(first, what);
  return reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + i * first->struct_bytes);
}

std::int64_t submit_one(horo_session* session, std::int64_t key, const void* in, void* out, bool absent) {
  return guarded([&]() -> std::int64_t {
    horo_session& s = checked(session);
    WorkTable::Seat seat(s.works);
    return seat.give(s.session.submit(horo::Submission{key_from(key), in, out, absent}));
  });
}

void submit_all(horo_session& s, const std::vector<horo::Submission>& all, std::int64_t* works) {
  WorkTable::Seats seats(s.works, all.size());
  seats.give(s.session.submit(all), works);
}

// wait(session, works, until): whether the wait has ended.
template <class Wait>
std::int32_t wait_by(horo_session* session, std::span<const std::int64_t> works, std::int32_t timeout_ms, Wait wait) {
  return guarded([&]() -> std::int32_t {
    horo_session& s = checked(session);
    if (!works.empty() && works.data() == nullptr) throw std::invalid_argument("works is a null pointer");
    const auto waited = s.works.find(works);
    const auto until = horo::Clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
    if (!wait(s, waited, until)) return HORO_TIMEOUT;
    for (const auto& work : waited) work->outcome();
    return HORO_OK;
  });
}

}  // namespace

int64_t horo_declare(horo_session* session, const horo_tensor_spec* spec) {
  return guarded([&]() -> std::int64_t { return checked(session).session.declare(spec_from(spec)); });
}

int32_t horo_undeclare(horo_session* session, const int64_t* keys, size_t count) {
  return guarded([&]() -> std::int32_t {
    horo_session& s = checked(session);
    if (count > 0 && keys == nullptr) throw std::invalid_argument("keys is a null pointer");
    std::vector<horo::Key> all;
    all.reserve(count);
    for (std::size_t i = 0; i < count; ++i) all.push_back(key_from(keys[i]));
    s.session.undeclare(all);
    return HORO_OK;
  });
}

int64_t horo_submit(horo_session* session, int64_t key, const void* in, void* out) {
  return submit_one(session, key, in, out, false);
}

int64_t horo_submit_absent(horo_session* session, int64_t key, void* out) {
  return submit_one(session, key, nullptr, out, true);
}

int32_t horo_submit_many(horo_session* session, const horo_submission* submissions, size_t count, int64_t* works) {
  return guarded([&]() -> std::int32_t {
    horo_session& s = checked(session);
    if (count == 0) return HORO_OK;
    if (!submissions || !works) throw std::invalid_argument("submissions or works is a null pointer");
    std::vector<horo::Submission> all(count);
    for (std::size_t i = 0; i < count; ++i) {
      const horo_submission* one = at(submissions, i, "horo_submission");
      all[i] = submission_from(s, one);
      all[i].key = key_from(one->key);
    }
    submit_all(s, all, works);
    return HORO_OK;
  });
}

int32_t horo_submit_many_in_place(horo_session* session, const int64_t* keys, void* const* data, size_t count,
                                  int64_t* works) {
  return guarded([&]() -> std::int32_t {
    horo_session& s = checked(session);
    if (count == 0) return HORO_OK;
    if (!keys || !data || !works) throw std::invalid_argument("keys, data or works is a null pointer");
    std::vector<horo::Submission> all(count);
    for (std::size_t i = 0; i < count; ++i) all[i] = {key_from(keys[i]), data[i], data[i]};
    submit_all(s, all, works);
    return HORO_OK;
  });
}

int64_t horo_submit_spec(horo_session* session, const horo_tensor_spec* spec, const horo_submission* submission) {
  return guarded([&]() -> std::int64_t {
    horo_session& s = checked(session);
    WorkTable::Seat seat(s.works);
    return seat.give(s.session.submit(spec_from(spec), submission_from(s, submission)));
  });
}

int32_t horo_submit_unit(horo_session* session, const horo_unit* unit, int64_t* works) {
  return guarded([&]() -> std::int32_t {
    horo_session& s = checked(session);
    check_struct(unit, "horo_unit");
    if (works == nullptr) throw std::invalid_argument("works is a null pointer");
    horo::Unit all{text_or_nothing(unit->name), {}, {}};
    for (std::int32_t i = 0; i < unit->count; ++i) {
      const auto at_i = static_cast<std::size_t>(i);
      all.specs.push_back(spec_from(at(unit->specs, at_i, "horo_tensor_spec")));
      all.submissions.push_back(submission_from(s, at(unit->submissions, at_i, "horo_submission")));
    }
    WorkTable::Seats seats(s.works, all.specs.size());
    seats.give(s.session.submit(std::move(all)), works);
    return HORO_OK;
  });
}

int32_t horo_poll(horo_session* session, int64_t work) {
  return guarded([&]() -> std::int32_t {
    horo_session& s = checked(session);
    return s.session.poll(*s.works.find(work)) ? 1 : 0;
  });
}

int32_t horo_wait(horo_session* session, const int64_t* works, size_t count, int32_t timeout_ms) {
  return wait_by(session, {works, count}, timeout_ms, [](horo_session& s, const auto& waited, horo::TimePoint until) {
    return s.session.wait(waited, until);
  });
}

int32_t horo_wait_stream(horo_session* session, const int64_t* works, size_t count, const horo_stream* stream,
                         int32_t timeout_ms) {
  return wait_by(session, {works, count}, timeout_ms, [=](horo_session& s, const auto& waited, horo::TimePoint until) {
    if (stream == nullptr) return s.session.wait_issued(waited, until);
    check_struct(stream, "horo_stream");
    return s.session.wait_stream(waited, stream->device, stream->stream, until);
  });
}

int32_t horo_finish_devices(horo_session* session, int32_t timeout_ms) {
  return guarded([&]() -> std::int32_t {
    const auto until = horo::Clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
    return checked(session).session.finish_devices(until) ? HORO_OK : HORO_TIMEOUT;
  });
}

int32_t horo_get_result(horo_session* session, int64_t work, horo_result* result) {
  return guarded([&]() -> std::int32_t {
    check_struct(result, "horo_result");
    const auto found = checked(session).works.find(work);
    if (!found->is_issued()) throw std::invalid_argument("work " + std::to_string(work) + " has not ended yet");
    const horo::Outcome& outcome = found->outcome();
    result->absent = outcome.absent ? 1 : 0;
    result->data = outcome.data.get();
    result->bytes = outcome.bytes;
    result->counts = outcome.counts.empty() ? nullptr : outcome.counts.data();
    result->count_count = static_cast<std::int32_t>(outcome.counts.size());
    return HORO_OK;
  });
}

int32_t horo_copy_result(horo_session* session, int64_t work, void* out, const horo_stream* stream) {
  return guarded([&]() -> std::int32_t {
    check_struct(stream, "horo_stream");
    const auto found = checked(session).works.find(work);
    if (out == nullptr) throw std::invalid_argument("out is a null pointer");
    found->copy_result(out, stream->device, stream->stream);
    return HORO_OK;
  });
}

int32_t horo_release(horo_session* session, int64_t work) {
  return horo_release_many(session, &work, 1);
}

int32_t horo_release_many(horo_session* session, const int64_t* works, size_t count) {
  return guarded([&]() -> std::int32_t {
    horo_session& s = checked(session);
    if (count > 0 && works == nullptr) throw std::invalid_argument("works is a null pointer");
    s.works.erase({works, count});
    return HORO_OK;
  });
}
