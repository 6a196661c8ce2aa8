// JobWaits: what `horo why` shows of a job: which rank waits for which. The guard writes it as JSON, which
// docs/status.md describes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "controller/wait_report.h"
#include "tools/horo/run/job_status.h"

namespace horo::tools {

// How far a running rank of this host is in its start.
struct RankStart {
  int id = 0;                     // MemberStatus::id
  bool has_called = false;        // init()
  bool is_connected = false;      // all ranks were connected, at least once
  std::optional<double> waits_s;  // in init(), for the other ranks
  std::string site;               // of its caller then; empty: not known
  std::string process;            // before init(): "python3 sleeps"
};

struct JobWaits {
  JobStatus status;
  std::vector<RankStart> starts;
  std::optional<WaitReport> report;  // by present ranks
  std::string fault;                 // why there is no report, as a sentence without a subject
};

std::string to_json(const JobWaits& waits);
// Throws std::runtime_error for another schema, or what to_json() does not write.
JobWaits waits_from_json(const std::string& json);

}  // namespace horo::tools
