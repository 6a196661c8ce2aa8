// RunPlace: the rank of `horo run` that this process belongs to, whatever its environment says.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "horo/base/config.h"
#include "horo/base/run_table.h"

namespace horo {

struct RunPlace {
  std::shared_ptr<RunTable> table;  // null: no `horo run` above this process has one that it may read
  pid_t guard = 0;                  // of the table; 0: it is no ancestor that this process can see
  int local_rank = -1;              // -1: the table's ranks are no ancestors of this process
  pid_t hidden_guard = 0;           // of a `horo run` above this process that it may not look into
  bool is_below_rank = false;       // a strict ancestor of this process has called init() as that rank
};

// Reads /proc. Throws nothing.
RunPlace find_run_place();

// Adds the variables of the rank's place that `get` does not have, if it has no HORO_RANK and no other launcher's
// variables, and this process is in a rank's place: something has cleared its environment. Throws
// std::invalid_argument if `horo run` started this process and it cannot be known as which rank.
Lookup with_place_in_run(const Lookup& get);
// The variables that with_place_in_run(std::getenv) adds.
RunTable::Variables lost_variables();

// The place of the rank of the config, if `horo run` has started this process as that; without a table: none has, or
// the session is one of another job.
RunPlace place_of_rank(const Config& config);

// Where the caller of init() is, for `horo why` of a job that does not start. The next RunStart tells it.
void set_start_site(std::string site);

// Tells `horo run` that this process waits for the ranks of its job, and that all are connected.
class RunStart {
 public:
  // Does nothing if the config's job is not one of a `horo run` above.
  explicit RunStart(const Config& config);
  // Throws PeerLost if a rank of this host has ended and cannot be connected any more.
  void check() const;
  void done();
  ~RunStart();
  RunStart(const RunStart&) = delete;
  RunStart& operator=(const RunStart&) = delete;

 private:
  const Config& config_;
  std::shared_ptr<RunTable> table_;  // null: the job is another one
};

}  // namespace horo
