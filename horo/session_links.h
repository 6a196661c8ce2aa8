// How a session begins: what it takes from its config, and its links, by the method of its config or from its caller.
#pragma once

#include <memory>

#include "horo/session.h"

namespace horo {

inline constexpr std::uint32_t kFirstEpoch = 0;

// Of a process that has yet to join a job: a world of its own, as the others do not call what it calls before. Else the
// same.
Config before_join(const Config& config);
// What its Topology is until then: a rank of the job at its start, with its place on the host, and never rank 0. So
// what its script computes from the number of ranks is what the others have computed.
Topology topology_before_join(const Config& config);
// Throws std::invalid_argument unless this process was started to join a job.
const Config& checked_to_join(const Config& config);
// The timeline of Config::timeline, which begins before the ranks connect: a file that cannot be written is an error of
// this rank alone, std::invalid_argument.
std::unique_ptr<Timeline> timeline_for(const Config& config);
// The file of Config::steps, likewise; null: none. The accounting of Config::accounting, which writes to it.
std::unique_ptr<StepFile> step_file_for(const Config& config);
// is_provisional: the session of a process before its join, whose steps are none of the job.
std::unique_ptr<Steps> steps_for(const Config& config, StepFile* file, Timeline* timeline, bool is_provisional);
// The links of the first epoch. `config` and `exchange` outlive the returned function.
FirstLinks first_links_by(const Config& config, const Exchange& exchange);
// These links; the returned function is called once.
FirstLinks given(Links links);
// The links of later epochs; null: the ranks cannot connect again.
Reconnect reconnect_by(const Config& config);

}  // namespace horo
