// The C ABI over Session: the one catch at the border, handles instead of pointers, and error texts per thread.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/c/horo_c.h"
#include "horo/horo.h"

struct horo_session {
  explicit horo_session(const horo::Config& config, const horo::Exchange& exchange = {}) : session(config, exchange) {}

  std::int64_t add(std::shared_ptr<horo::Work> work) {
    const std::lock_guard lock(mutex);
    works.emplace(++last_work, std::move(work));
    return last_work;
  }
  std::shared_ptr<horo::Work> find(std::int64_t work) {
    const std::lock_guard lock(mutex);
    const auto found = works.find(work);
    if (found == works.end()) throw std::invalid_argument("there is no work " + std::to_string(work));
    return found->second;
  }
  // Of threads that come at once one does it, and the others wait for it. (std::call_once would make the library one
  // that cannot be loaded late: it uses thread-local variables of the C++ library, for which little room is left then.)
  void shut_down() {
    {
      std::unique_lock lock(mutex);
      if (std::exchange(is_shutting_down, true)) return changed.wait(lock, [this] { return is_shut_down; });
    }
    session.shutdown();
    const std::lock_guard lock(mutex);
    is_shut_down = true;
    changed.notify_all();
  }

  std::mutex mutex;  // guards all but the session
  std::unordered_map<std::int64_t, std::shared_ptr<horo::Work>> works;
  std::int64_t last_work = 0;
  std::condition_variable changed;  // with mutex: is_shut_down
  bool is_shutting_down = false;
  bool is_shut_down = false;
  horo::Session session;
};

namespace {

// What went wrong last in this thread, and the text that horo_counters returned.
struct ThreadState {
  std::string error;
  std::int32_t status = HORO_OK;
  std::int32_t origin = -1;
  std::string text;
};
thread_local ThreadState thread_state;

std::int32_t failed(std::int32_t status, const char* text, int origin = -1) noexcept {
  try {
    thread_state.error = text;
  } catch (const std::exception&) {
    thread_state.error = "out of memory";  // short enough to need none
  }
  thread_state.status = status;
  thread_state.origin = origin;
  return status;
}

// Runs a call and turns what it throws into a status and an error text.
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

horo_session& checked(horo_session* session) {
  if (session == nullptr) throw std::invalid_argument("the session is a null pointer; call horo_init first");
  session->session.check_process();
  return *session;
}

template <class T>
T known(std::optional<T> value, const char* what, int number) {
  if (!value)
    throw std::invalid_argument(std::string(what) + " " + std::to_string(number) + " is not known to this horo");
  return *value;
}

horo::TensorSpec spec_from(const horo_tensor_spec* c) {
  check_struct(c, "horo_tensor_spec");
  if (c->priority != 0) throw std::invalid_argument("priority must be 0 in this version");
  if (c->weight != 1.0) throw std::invalid_argument("weight must be 1 in this version");
  if (c->dims < 0 || (c->dims > 0 && c->shape == nullptr)) throw std::invalid_argument("shape is a null pointer");
  horo::TensorSpec spec;
  spec.set = c->set;
  spec.channel = c->channel;
  spec.name = c->name == nullptr ? "" : c->name;
  spec.once = spec.name.empty();
  spec.stepwise = c->stepwise != 0;
  spec.kind = known(horo::collective_kind_from(c->kind), "kind", c->kind);
  spec.op = known(horo::reduce_op_from(c->op), "op", c->op);
  spec.dtype = known(horo::dtype_from(c->dtype), "dtype", c->dtype);
  spec.order = known(horo::order_from(c->order), "order", c->order);
  spec.root = c->root;
  spec.prescale = c->prescale;
  spec.postscale = c->postscale;
  spec.shape.assign(c->shape, c->shape + c->dims);
  return spec;
}

// The environment, with settings in front of it.
horo::Config config_with(const char* const* settings, std::size_t count, bool has_exchange) {
  std::map<std::string, std::string> given;
  if (count > 0 && settings == nullptr) throw std::invalid_argument("settings is a null pointer");
  for (std::size_t i = 0; i < count; ++i) {
    const std::string setting = settings[i] == nullptr ? "" : settings[i];
    const std::size_t equals = setting.find('=');
    if (setting.rfind("HORO_", 0) != 0 || equals == std::string::npos) {
      throw std::invalid_argument("setting '" + setting + "' is not of the form HORO_NAME=value");
    }
    given[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  return horo::config_from_environment(given, has_exchange);
}

using Blobs = std::vector<std::vector<std::byte>>;

// One call of the caller's function.
Blobs exchange_by(horo_exchange exchange, void* user, const horo::Config& config, std::span<const std::byte> mine) {
  const auto n = static_cast<std::size_t>(config.size);
  std::vector<std::byte> all(n * HORO_EXCHANGE_BYTES);
  std::vector<std::uint64_t> all_bytes(n);
  std::array<char, 4096> error{};
  horo_exchange_call call{};
  call.struct_bytes = sizeof(call);
  call.rank = config.rank;
  call.size = config.size;
  call.start = static_cast<std::int32_t>(config.incarnation);
  call.timeout_ms = static_cast<std::int32_t>(config.start_timeout.count());
  call.mine = mine.data();
  call.mine_bytes = mine.size();
  call.all = all.data();
  call.all_bytes = all_bytes.data();
  call.error = error.data();
  call.error_bytes = error.size();
  call.origin = -1;
  const std::int32_t status = exchange(user, &call);
  error.back() = 0;
  const std::string why = error[0] == 0 ? "the exchange of addresses failed, and gave no reason" : error.data();
  if (status == HORO_PEER_LOST) throw horo::PeerLost(call.origin, why);
  if (status == HORO_INVALID_ARGUMENT) throw std::invalid_argument(why);
  if (status != HORO_OK) throw std::runtime_error(why);
  Blobs blobs;
  for (std::size_t rank = 0; rank < n; ++rank) {
    if (all_bytes[rank] > HORO_EXCHANGE_BYTES) {
      throw std::invalid_argument("the exchange gave " + std::to_string(all_bytes[rank]) + " bytes of rank " +
                                  std::to_string(rank) + ", expected at most " + std::to_string(HORO_EXCHANGE_BYTES));
    }
    const std::byte* begin = all.data() + rank * HORO_EXCHANGE_BYTES;
    blobs.emplace_back(begin, begin + all_bytes[rank]);
  }
  return blobs;
}

horo::Key key_from(std::int64_t key) {
  if (key < 0 || key > UINT32_MAX) throw std::invalid_argument("key " + std::to_string(key) + " was not declared");
  return static_cast<horo::Key>(key);
}

std::int64_t submit_one(horo_session* session, std::int64_t key, const void* in, void* out, bool absent) {
  return guarded([&]() -> std::int64_t {
    horo_session& s = checked(session);
    return s.add(s.session.submit(horo::Submission{key_from(key), in, out, absent}));
  });
}

}  // namespace

int32_t horo_abi_version(void) {
  return HORO_ABI_VERSION;
}

const char* horo_version(void) {
  return horo::kVersion;
}

const char* horo_error_text(const horo_session*) {
  return thread_state.error.c_str();
}

int32_t horo_error_status(const horo_session*) {
  return thread_state.status;
}

int32_t horo_error_origin(const horo_session*) {
  return thread_state.origin;
}

horo_session* horo_init(const char* const* settings, size_t count) {
  horo_session* session = nullptr;
  guarded([&]() -> std::int32_t {
    session = new horo_session(config_with(settings, count, false));
    return HORO_OK;
  });
  return session;
}

horo_session* horo_init_exchange(const char* const* settings, size_t count, horo_exchange exchange, void* user) {
  horo_session* session = nullptr;
  guarded([&]() -> std::int32_t {
    if (exchange == nullptr) throw std::invalid_argument("exchange is a null pointer");
    const horo::Config config = config_with(settings, count, true);
    session = new horo_session(
        config, [&](std::span<const std::byte> mine) { return exchange_by(exchange, user, config, mine); });
    return HORO_OK;
  });
  return session;
}

int32_t horo_shutdown(horo_session* session) {
  return guarded([&]() -> std::int32_t {
    checked(session).shut_down();
    return HORO_OK;
  });
}

// In a forked child it stays where it is: its lock may be held by a thread that the child does not have.
void horo_free(horo_session* session) {
  if (session == nullptr || !session->session.is_here()) return;
  delete session;
}

int32_t horo_abort(horo_session* session, const char* reason) {
  return guarded([&]() -> std::int32_t {
    checked(session).session.abort(reason == nullptr ? "no reason given" : reason);
    return HORO_OK;
  });
}

int32_t horo_get_topology(const horo_session* session, horo_topology* topology) {
  return guarded([&]() -> std::int32_t {
    check_struct(topology, "horo_topology");
    const horo::Topology& t = checked(const_cast<horo_session*>(session)).session.topology();
    *topology = {topology->struct_bytes, t.rank,       t.size,       t.local_rank,
                 t.local_size,           t.cross_rank, t.cross_size, t.epoch};
    return HORO_OK;
  });
}

int64_t horo_declare(horo_session* session, const horo_tensor_spec* spec) {
  return guarded([&]() -> std::int64_t { return checked(session).session.declare(spec_from(spec)); });
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
      all[i] = {key_from(submissions[i].key), submissions[i].in, submissions[i].out};
    }
    auto submitted = s.session.submit(all);
    for (std::size_t i = 0; i < count; ++i) works[i] = s.add(std::move(submitted[i]));
    return HORO_OK;
  });
}

int64_t horo_submit_spec(horo_session* session, const horo_tensor_spec* spec, const void* in, void* out) {
  return guarded([&]() -> std::int64_t {
    horo_session& s = checked(session);
    return s.add(s.session.submit(spec_from(spec), in, out));
  });
}

int32_t horo_poll(horo_session* session, int64_t work) {
  return guarded([&]() -> std::int32_t {
    horo_session& s = checked(session);
    return s.session.poll(*s.find(work)) ? 1 : 0;
  });
}

int32_t horo_wait(horo_session* session, const int64_t* works, size_t count, int32_t timeout_ms) {
  return guarded([&]() -> std::int32_t {
    horo_session& s = checked(session);
    if (count > 0 && works == nullptr) throw std::invalid_argument("works is a null pointer");
    std::vector<std::shared_ptr<horo::Work>> waited(count);
    for (std::size_t i = 0; i < count; ++i) waited[i] = s.find(works[i]);
    const auto until = horo::Clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
    if (!s.session.wait(waited, until)) return HORO_TIMEOUT;
    for (const auto& work : waited) work->outcome();
    return HORO_OK;
  });
}

int32_t horo_get_result(horo_session* session, int64_t work, horo_result* result) {
  return guarded([&]() -> std::int32_t {
    check_struct(result, "horo_result");
    const auto found = checked(session).find(work);
    if (!found->finished()) throw std::invalid_argument("work " + std::to_string(work) + " has not ended yet");
    const horo::Outcome& outcome = found->outcome();
    result->absent = outcome.absent ? 1 : 0;
    result->data = outcome.data.get();
    result->bytes = outcome.bytes;
    result->counts = outcome.counts.empty() ? nullptr : outcome.counts.data();
    result->count_count = static_cast<std::int32_t>(outcome.counts.size());
    return HORO_OK;
  });
}

int32_t horo_release(horo_session* session, int64_t work) {
  return guarded([&]() -> std::int32_t {
    horo_session& s = checked(session);
    s.find(work);
    const std::lock_guard lock(s.mutex);
    s.works.erase(work);
    return HORO_OK;
  });
}

int32_t horo_step_end(horo_session* session, uint32_t set) {
  return guarded([&]() -> std::int32_t {
    horo_session& s = checked(session);
    if (set != 0) throw std::invalid_argument("process set " + std::to_string(set) + " does not exist; 0 is the world");
    s.session.step_end(set);
    return HORO_OK;
  });
}

int64_t horo_next_question(horo_session* session, int32_t timeout_ms) {
  return guarded([&]() -> std::int64_t {
    const auto until = horo::Clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
    return static_cast<std::int64_t>(checked(session).session.next_question(until).value_or(0));
  });
}

int32_t horo_answer(horo_session* session, int64_t question, const char* text) {
  return guarded([&]() -> std::int32_t {
    checked(session).session.answer(static_cast<std::uint64_t>(question), text == nullptr ? "" : text);
    return HORO_OK;
  });
}

const char* horo_ready_times(horo_session* session) {
  thread_state.text.clear();
  guarded([&]() -> std::int32_t {
    thread_state.text = horo::ready_times_json(checked(session).session.ready_times());
    return HORO_OK;
  });
  return thread_state.text.c_str();
}

const char* horo_counters(horo_session* session) {
  thread_state.text.clear();
  guarded([&]() -> std::int32_t {
    thread_state.text = checked(session).session.counters().json();
    return HORO_OK;
  });
  return thread_state.text.c_str();
}
