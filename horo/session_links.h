// How a session gets its links: by the method of its config, or from its caller.
#pragma once

#include "horo/session.h"

namespace horo {

inline constexpr std::uint32_t kFirstEpoch = 0;

// The links of the first epoch. `config` and `exchange` outlive the returned function.
FirstLinks first_links_by(const Config& config, const Exchange& exchange);
// These links; the returned function is called once.
FirstLinks given(Links links);
// The links of later epochs; null: the ranks cannot connect again.
Reconnect reconnect_by(const Config& config);

}  // namespace horo
