// A RecordStore in files that have no name, as those of memfd_create: the record outlives the processes that use it one
// after the other, and dies with the last process that has the files open.
#pragma once

#include <memory>
#include <vector>

#include "elastic/service/record_log.h"

namespace horo {

// fds: of one process at a time; stay open. Each write replaces the oldest record, so a process that is killed in one
// leaves the record before: with a single file there is none. Throws std::invalid_argument if one is no such file.
std::unique_ptr<RecordStore> open_record_memory(std::vector<int> fds);

}  // namespace horo
