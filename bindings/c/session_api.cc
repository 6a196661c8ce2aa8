// The C ABI: sessions, from start to end, and their counters.
#include <algorithm>
#include <array>
#include <map>

#include "bindings/c/handles.h"

using horo_c::check_struct;
using horo_c::checked;
using horo_c::guarded;
using horo_c::thread_state;

namespace {

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

}  // namespace

int32_t horo_abi_version(void) {
  return HORO_ABI_VERSION;
}

const char* horo_version(void) {
  return horo::kVersion;
}

const char* horo_lost_variables(void) {
  std::string text;
  const std::int32_t status = guarded([&]() -> std::int32_t {
    for (const auto& [name, value] : horo::lost_variables()) text.append(name).append("=").append(value).append("\n");
    return HORO_OK;
  });
  if (status != HORO_OK) return nullptr;
  thread_state().text = text;
  return thread_state().text.c_str();
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

horo_session* horo_init_join(const char* const* settings, size_t count, const char* terms) {
  horo_session* session = nullptr;
  guarded([&]() -> std::int32_t {
    session = new horo_session(config_with(settings, count, false), horo::JoinTerms{terms == nullptr ? "" : terms});
    return HORO_OK;
  });
  return session;
}

int32_t horo_shutdown(horo_session* session) {
  return guarded([&]() -> std::int32_t {
    checked(session).shut_down(false);
    return HORO_OK;
  });
}

int32_t horo_shutdown_at_exit(horo_session* session) {
  return guarded([&]() -> std::int32_t {
    checked(session).shut_down(true);
    return HORO_OK;
  });
}

// In a forked child the session is leaked: its lock may be held by a thread that the child does not have.
void horo_free(horo_session* session) {
  if (session == nullptr || !session->session.is_here()) return;
  delete session;
}

int32_t horo_abort(horo_session* session, const char* reason) {
  return horo_fail(session, reason, nullptr);
}

int32_t horo_fail(horo_session* session, const char* reason, const char* failure) {
  return guarded([&]() -> std::int32_t {
    checked(session).session.abort(reason == nullptr ? "no reason given" : reason, failure == nullptr ? "" : failure);
    return HORO_OK;
  });
}

int32_t horo_get_topology(const horo_session* session, horo_topology* topology) {
  return guarded([&]() -> std::int32_t {
    check_struct(topology, "horo_topology");
    const horo::Topology& t = checked(const_cast<horo_session*>(session)).session.topology();
    *topology = {topology->struct_bytes, t.rank,       t.size,  t.local_rank, t.local_size,
                 t.cross_rank,           t.cross_size, t.epoch, t.min_size,   t.is_homogeneous ? 1 : 0};
    return HORO_OK;
  });
}

int32_t horo_get_members(const horo_session* session, uint32_t* ids, size_t count) {
  return guarded([&]() -> std::int32_t {
    const std::vector<std::uint32_t> members = checked(const_cast<horo_session*>(session)).session.members();
    if (ids == nullptr && count > 0) throw std::invalid_argument("ids is a null pointer");
    std::copy_n(members.begin(), std::min(count, members.size()), ids);
    return static_cast<std::int32_t>(members.size());
  });
}

int32_t horo_notice(horo_session* session, double* grace_s) {
  return guarded([&]() -> std::int32_t {
    const auto until = checked(session).session.notice();
    if (until && grace_s != nullptr) {
      *grace_s = std::max(std::chrono::duration<double>(*until - horo::Clock::now()).count(), 0.0);
    }
    return until ? 1 : 0;
  });
}

const char* horo_setting(horo_session* session, const char* name) {
  thread_state().text.clear();
  const std::int32_t status = guarded([&]() -> std::int32_t {
    const horo::Setting* setting = name == nullptr ? nullptr : horo::find_setting(name);
    if (setting == nullptr) throw std::invalid_argument(std::string(name == nullptr ? "null" : name) + ": no setting");
    thread_state().text = horo::value_in(checked(session).session.config(), *setting);
    return HORO_OK;
  });
  return status == HORO_OK ? thread_state().text.c_str() : nullptr;
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

int32_t horo_start_site(const char* text) {
  return guarded([&]() -> std::int32_t {
    horo::set_start_site(text == nullptr ? "" : text);
    return HORO_OK;
  });
}

const char* horo_ready_times(horo_session* session) {
  thread_state().text.clear();
  guarded([&]() -> std::int32_t {
    thread_state().text = horo::ready_times_json(checked(session).session.ready_times());
    return HORO_OK;
  });
  return thread_state().text.c_str();
}

int32_t horo_start_timeline(horo_session* session, const char* path) {
  return guarded([&]() -> std::int32_t {
    if (path == nullptr || *path == '\0') throw std::invalid_argument("horo_start_timeline: the path is empty");
    checked(session).session.start_timeline(path);
    return HORO_OK;
  });
}

int32_t horo_stop_timeline(horo_session* session) {
  return guarded([&]() -> std::int32_t {
    checked(session).session.stop_timeline();
    return HORO_OK;
  });
}

const char* horo_counters(horo_session* session) {
  thread_state().text.clear();
  guarded([&]() -> std::int32_t {
    thread_state().text = checked(session).session.counters().json();
    return HORO_OK;
  });
  return thread_state().text.c_str();
}
