// The table. Defaults are those of Config; ranges and meanings are written once, here and in process_settings.h.
#include "horo/base/settings.h"

#include <algorithm>
#include <array>
#include <limits>

#include "horo/base/process_settings.h"

namespace horo {
namespace {

using enum SettingGroup;

constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
constexpr SettingRange kWait{1, 7LL * 24 * 3600 * 1000};
constexpr std::int64_t kMaxBufferBytes = 1LL << 40;

constexpr Setting kOtherSettings[] = {
    {.name = "HORO_RANK",
     .group = kWorld,
     .field = &Config::rank,
     .range = {0, kMaxInt},
     .meaning = "number of this process among all processes of the job; comes with HORO_SIZE, and without both the "
                "world is the one of torchrun, mpirun or srun, or this process alone"},
    {.name = "HORO_SIZE",
     .group = kWorld,
     .field = &Config::size,
     .range = {1, kMaxInt},
     .meaning = "number of processes of the job; at most HORO_MAX_RANKS"},
    {.name = "HORO_LOCAL_RANK",
     .group = kWorld,
     .field = &Config::local_rank,
     .range = {0, kMaxInt},
     .default_is = "HORO_RANK",
     .meaning = "number of this process among those of its host"},
    {.name = "HORO_LOCAL_SIZE",
     .group = kWorld,
     .field = &Config::local_size,
     .range = {1, kMaxInt},
     .default_is = "HORO_SIZE",
     .meaning = "number of processes of the job on this host"},
    {.name = "HORO_ADDR",
     .group = kWorld,
     .field = &Config::addr,
     .meaning = "host:port where rank 0 listens while the ranks start; needed with several ranks, unless torchrun "
                "started them, or mpirun or srun on one host"},
    {.name = "HORO_HOST_ID",
     .group = kWorld,
     .field = &Config::host_id,
     .default_is = "boot id and network namespace",
     .meaning = "ranks with equal ids are on one host"},
    {.name = "HORO_JOB",
     .group = kWorld,
     .field = &Config::job,
     .meaning = "name of the job; connections of other jobs are refused"},
    {.name = "HORO_MIN_NP",
     .group = kWorld,
     .field = &Config::min_np,
     .range = {0, kMaxInt},
     .equal_on_all_ranks = true,
     .meaning = "least number of processes with which an elastic job goes on when others have died; 0: a static job"},
    {.name = "HORO_GUARD_FD",
     .group = kWorld,
     .field = &Config::guard_fd,
     .range = {-1, kMaxInt},
     .default_is = "none",
     .environment_alone = true,
     .meaning = "inherited socket to the guard of an elastic job; horo run sets it"},
    {.name = "HORO_JOINS",
     .group = kWorld,
     .field = &Config::joins,
     .environment_alone = true,
     .meaning = "1: this process joins an elastic job that runs; horo run sets it"},
    {.name = "HORO_KEY_FD",
     .group = kWorld,
     .range = {0, kMaxInt},
     .default_is = "none",
     .meaning = "inherited descriptor that holds the job key of 32 bytes; without a key only loopback addresses are "
                "used"},
    {.name = "HORO_KEY_FILE",
     .group = kWorld,
     .default_is = "none",
     .meaning =
         "file that holds the job key of 32 bytes, instead of HORO_KEY_FD: one of this user that is private (mode "
         "0600 or 0400), or one of root (0640, or a container's secret)"},
    {.name = "HORO_INCARNATION",
     .group = kWorld,
     .field = &Config::incarnation,
     .range = {0, UINT32_MAX},
     .meaning = "number of this start of the rank"},

    {.name = "HORO_BUCKET_BYTES",
     .group = kGradients,
     .field = &Config::bucket_bytes,
     .range = {0, kMaxBufferBytes},
     .equal_on_all_ranks = true,
     .meaning = "most bytes in one bucket; 0: every tensor alone"},
    {.name = "HORO_LEAST_BUCKET_BYTES",
     .group = kGradients,
     .field = &Config::least_bucket_bytes,
     .range = {0, kMaxBufferBytes},
     .equal_on_all_ranks = true,
     .meaning =
         "least bytes in a bucket between hosts, where a bucket otherwise has a sixteenth of a step's bytes, so that "
         "most of the step travels while backward computes; equal to HORO_BUCKET_BYTES: steps are not divided"},
    {.name = "HORO_CREDIT_BYTES",
     .group = kGradients,
     .field = &Config::credit_bytes,
     .range = {0, kMaxBufferBytes},
     .equal_on_all_ranks = true,
     .meaning =
         "bytes in flight in a process set before tensors below the highest priority wait; a bucket of different "
         "priorities has at most half of it; 0: one bucket"},
    {.name = "HORO_SEGMENT_BYTES",
     .group = kGradients,
     .field = &Config::segment_bytes,
     .range = {64, kMaxBufferBytes},
     .equal_on_all_ranks = true,
     .meaning = "size of the segments of a shard: the reduction of one overlaps the transfer of the next"},
    {.name = "HORO_ALGORITHMS",
     .group = kGradients,
     .field = &Config::algorithms,
     .default_is = "the algorithm with the lowest estimated time",
     .equal_on_all_ranks = true,
     .meaning = "algorithms to use where they apply, or files of schedules (ring/schedule/schedule_json.h), "
                "the same on all hosts: \"all_reduce=tree,broadcast=@mine.json\""},

    {.name = "HORO_BACKEND",
     .group = kGradients,
     .field = &Config::backend,
     .choices = "mpi or auto",
     .equal_on_all_ranks = true,
     .meaning = "how bytes travel between ranks: by Open MPI, whose mpirun started them (mpi); or by horo's own "
                "connections (auto), as HORO_TRANSPORT says"},
    {.name = "HORO_GPU_BACKEND",
     .group = kGradients,
     .field = &Config::gpu_backend,
     .choices = "nccl, host or auto",
     .equal_on_all_ranks = true,
     .meaning =
         "how CUDA tensors are reduced: by NCCL, or an error where it does not work (nccl); by way of the memory "
         "of the hosts (host); by NCCL where it works, else by way of the hosts (auto)"},
    {.name = "HORO_TRANSPORT",
     .group = kGradients,
     .field = &Config::transport,
     .choices = "tcp, shm or auto",
     .equal_on_all_ranks = true,
     .meaning =
         "how bytes travel between ranks of one host: TCP; shared memory, or an error where it is not "
         "available (shm); shared memory where it is available, else TCP (auto). Between hosts it is always TCP"},
    {.name = "HORO_SHM_CHUNK_BYTES",
     .group = kGradients,
     .field = &Config::shm_chunk_bytes,
     .range = {1 << 12, 1 << 22},
     .meaning =
         "size of the chunks of a message in shared memory: one rank reads a chunk while the other writes the next"},
    {.name = "HORO_SHM_SLOTS",
     .group = kGradients,
     .field = &Config::shm_slots,
     .range = {2, 64},
     .meaning = "number of such chunks from one rank to another; a pair of ranks shares twice that memory"},
    {.name = "HORO_SHM_PAST_CACHES",
     .group = kGradients,
     .field = &Config::shm_past_caches,
     .choices = "on, off or auto",
     .meaning = "how a rank writes long tensors for other ranks of its host: with non-temporal stores to memory (on); "
                "through the caches (off); or with non-temporal stores where the other rank's core is behind another "
                "cache that takes longer to reach than memory, by repeated measurement (auto)"},
    {.name = "HORO_CRC",
     .group = kGradients,
     .field = &Config::crc,
     .choices = "on, off or auto",
     .equal_on_all_ranks = true,
     .meaning =
         "a CRC32C behind the payload of every message over a socket, so that a changed bit is an error and never "
         "a wrong sum: on all links (on), on none (off), or on those between hosts, unless the network measured at "
         "the start is so fast that checksums would cost more than 2 % (auto)"},
    {.name = "HORO_TCP_WIDTH",
     .group = kGradients,
     .field = &Config::tcp_width,
     .range = {1, 16},
     .equal_on_all_ranks = true,
     .meaning =
         "TCP connections between two ranks; messages of more than 64 KiB are striped over all of them. More than "
         "one pays where the network limits each TCP flow, as clouds do, and where a long line loses packets, since a "
         "loss delays one connection alone"},

    {.name = "HORO_TCP_KEEP_WARM_MS",
     .group = kDeadlines,
     .field = &Config::tcp_keep_warm,
     .range = {0, kWait.high},
     .meaning =
         "time after the last message in which a connection with round trips of more than 1 ms sends a few bytes every "
         "100 ms, so that the kernel does not restart it with a small window; not with BBR, which keeps its rate; 0: "
         "never"},
    {.name = "HORO_START_TIMEOUT_MS",
     .group = kDeadlines,
     .field = &Config::start_timeout,
     .range = kWait,
     .meaning = "until all ranks are connected"},
    {.name = "HORO_HELLO_TIMEOUT_MS",
     .group = kDeadlines,
     .field = &Config::hello_timeout,
     .range = kWait,
     .meaning = "for one handshake"},
    {.name = "HORO_DEADLINE_MS",
     .group = kDeadlines,
     .field = &Config::deadline,
     .range = kWait,
     .meaning = "for one collective in flight, and for a rank that sends no sign of life meanwhile"},
    {.name = "HORO_BEAT_MS",
     .group = kDeadlines,
     .field = &Config::beat,
     .range = kWait,
     .meaning = "between signs of life that ranks request of each other while collectives are in flight"},
    {.name = "HORO_STALL_WARNING_MS",
     .group = kDeadlines,
     .field = &Config::stall_warning,
     .range = {0, kWait.high},
     .meaning = "until rank 0 first warns of a tensor that some ranks have submitted and others have not; the pauses "
                "between further warnings double, up to ten minutes; 0: no warnings"},
    {.name = "HORO_STALL_LIMIT_MS",
     .group = kDeadlines,
     .field = &Config::stall_limit,
     .range = {0, kWait.high},
     .meaning = "for a tensor that some ranks have submitted and others have not: then it fails; 0: no limit"},
    {.name = "HORO_DEADLOCK_MS",
     .group = kDeadlines,
     .field = &Config::deadlock_limit,
     .range = {0, kWait.high},
     .meaning = "after which tensors fail whose ranks wait for one another with all threads that submit; 0: never"},
    {.name = "HORO_ANSWER_TIMEOUT_MS",
     .group = kDeadlines,
     .field = &Config::answer_timeout,
     .range = kWait,
     .meaning = "for a rank's answer to a stall diagnosis, before a warning or a failure of a stalled tensor"},
    {.name = "HORO_CHECKPOINT_TIMEOUT_MS",
     .group = kDeadlines,
     .range = kWait,
     .default_is = "600000",
     .environment_alone = true,
     .meaning = "for the next part of a checkpoint that another rank writes, when rank 0 has written its own; then "
                "the save fails"},

    {.name = "HORO_AUDIT",
     .group = kAudit,
     .field = &Config::audit,
     .choices = "warn, raise or off",
     .equal_on_all_ranks = true,
     .meaning = "whether ranks compare the hashes of what they hold equal (parameters, optimizer state and options), "
                "and whether a difference is a warning or the exception ReplicasDiffer (docs/audit.md)"},
    {.name = "HORO_AUDIT_EVERY",
     .group = kAudit,
     .field = &Config::audit_every,
     .range = {0, kMaxInt},
     .equal_on_all_ranks = true,
     .meaning = "steps of an optimizer between two looks of the audit; the first looks are after steps 1, 2, 4, 8, "
                "...; 0: no look at steps, only at shutdown"},
    {.name = "HORO_AUDIT_PERMILLE",
     .group = kAudit,
     .field = &Config::audit_permille,
     .range = {0, 1000},
     .equal_on_all_ranks = true,
     .meaning = "thousandths of the time of the steps that looks take at most: where a look takes longer, several "
                "times HORO_AUDIT_EVERY steps lie between two looks; 0: no limit"},
    {.name = "HORO_AUDIT_WAIT_MS",
     .group = kAudit,
     .field = &Config::audit_wait,
     .range = kWait,
     .meaning = "of a look in step() or shutdown() for the other ranks; in step() the look continues at the next step, "
                "in shutdown() it is dropped"},
    {.name = "HORO_MAX_RANKS",
     .group = kLimits,
     .field = &Config::max_ranks,
     .range = {1, 1 << 20},
     .meaning = "processes in one job"},
    {.name = "HORO_MAX_NAME_BYTES",
     .group = kLimits,
     .field = &Config::max_name_bytes,
     .range = {1, 1 << 16},
     .equal_on_all_ranks = true,
     .meaning = "length of a tensor's name"},
    {.name = "HORO_MAX_DIMS",
     .group = kLimits,
     .field = &Config::max_dims,
     .range = {1, 1 << 10},
     .equal_on_all_ranks = true,
     .meaning = "dimensions of a tensor"},
    {.name = "HORO_MAX_TENSORS",
     .group = kLimits,
     .field = &Config::max_tensors,
     .range = {1, 1 << 28},
     .equal_on_all_ranks = true,
     .meaning = "tensors that are declared or in flight at once; names out of use are forgotten before"},
    {.name = "HORO_KEPT_TENSORS",
     .group = kLimits,
     .field = &Config::kept_tensors,
     .range = {1, 1 << 28},
     .equal_on_all_ranks = true,
     .meaning = "tensors whose names and numbers are kept; above it, those that were not used for the longest time are "
                "forgotten, and sent with their names again at their next use"},
    {.name = "HORO_MAX_ROUND_STREAMS",
     .group = kLimits,
     .field = &Config::max_round_streams,
     .range = {1, 1 << 20},
     .meaning = "largest number of optimizers (round streams) whose rounds rank 0 compares: those used last"},
    {.name = "HORO_MAX_PROCESS_SETS",
     .group = kLimits,
     .field = &Config::max_process_sets,
     .range = {0, 1 << 20},
     .equal_on_all_ranks = true,
     .meaning = "process sets that exist at once, beside the world; each has a thread on each of its ranks"},
    {.name = "HORO_MAX_MESSAGE_BYTES",
     .group = kLimits,
     .field = &Config::max_message_bytes,
     .range = {1 << 10, 1LL << 31},
     .equal_on_all_ranks = true,
     .meaning = "one message of the control plane"},
    {.name = "HORO_MAX_EARLY_BYTES",
     .group = kLimits,
     .field = &Config::max_early_bytes,
     .range = {0, kMaxBufferBytes},
     .meaning = "received from one peer before the receives were posted"},
};

constexpr auto kSettings = [] {
  std::array<Setting, std::size(kOtherSettings) + std::size(kProcessSettings)> all{};
  std::copy(std::begin(kProcessSettings), std::end(kProcessSettings),
            std::copy(std::begin(kOtherSettings), std::end(kOtherSettings), all.begin()));
  return all;
}();

}  // namespace

std::span<const Setting> all_settings() {
  return kSettings;
}

const Setting* find_setting(std::string_view name) {
  const auto found = std::find_if(std::begin(kSettings), std::end(kSettings),
                                  [name](const Setting& setting) { return name == setting.name; });
  return found == std::end(kSettings) ? nullptr : found;
}

}  // namespace horo
