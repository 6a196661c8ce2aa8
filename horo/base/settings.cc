// The table. Defaults stand in Config alone and are taken from there; limits and units are written once, here.
#include "horo/base/settings.h"

#include <algorithm>
#include <limits>

namespace horo {
namespace {

using enum SettingGroup;

constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
constexpr SettingRange kIncarnations{0, std::numeric_limits<std::uint32_t>::max()};
constexpr SettingRange kWait{1, 7LL * 24 * 3600 * 1000};
constexpr std::int64_t kMaxBufferBytes = 1LL << 40;

constexpr Setting kSettings[] = {
    {.name = "HORO_RANK",
     .group = kWorld,
     .field = &Config::rank,
     .range = {0, kMaxInt},
     .meaning = "number of this process among all processes of the job; comes with HORO_SIZE, and without both the "
                "world is what torchrun, mpirun or srun say, or this process alone"},
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
     .meaning =
         "host:port where rank 0 listens while the ranks gather; needed where there are several, unless torchrun "
         "started them, or mpirun or srun did on one host"},
    {.name = "HORO_HOST_ID",
     .group = kWorld,
     .field = &Config::host_id,
     .default_is = "boot id and network namespace",
     .meaning = "ranks with equal ids are on one host"},
    {.name = "HORO_JOB",
     .group = kWorld,
     .field = &Config::job,
     .meaning = "name of the job; ranks of other jobs are turned away"},
    {.name = "HORO_KEY_FD",
     .group = kWorld,
     .range = {0, kMaxInt},
     .default_is = "none",
     .meaning = "inherited descriptor that holds the job key of 32 bytes; without a key only loopback addresses are "
                "used"},
    {.name = "HORO_KEY_FILE",
     .group = kWorld,
     .default_is = "none",
     .meaning = "file of mode 0600 that holds the job key of 32 bytes, instead of HORO_KEY_FD"},
    {.name = "HORO_INCARNATION",
     .group = kWorld,
     .field = &Config::incarnation,
     .range = kIncarnations,
     .meaning = "which start of this rank it is"},

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
     .meaning = "between hosts a bucket has a sixteenth of a step's bytes, so that most of it travels while backward "
                "computes, but as many as these, if there are; as HORO_BUCKET_BYTES: steps are not cut into parts"},
    {.name = "HORO_CREDIT_BYTES",
     .group = kGradients,
     .field = &Config::credit_bytes,
     .range = {0, kMaxBufferBytes},
     .equal_on_all_ranks = true,
     .meaning = "bytes on their way in a process set before what has less than the greatest priority waits; half of "
                "it is the most in one bucket of different priorities; 0: one bucket"},
    {.name = "HORO_SEGMENT_BYTES",
     .group = kGradients,
     .field = &Config::segment_bytes,
     .range = {64, kMaxBufferBytes},
     .equal_on_all_ranks = true,
     .meaning = "piece of a shard whose reduction overlaps the next one's move"},
    {.name = "HORO_ALGORITHMS",
     .group = kGradients,
     .field = &Config::algorithms,
     .default_is = "what is expected to be fastest",
     .equal_on_all_ranks = true,
     .meaning = "algorithms to take where they can be taken, or files of schedules (ring/schedule/schedule_json.h), "
                "the same on all "
                "hosts: \"all_reduce=tree,broadcast=@mine.json\""},

    {.name = "HORO_BACKEND",
     .group = kGradients,
     .field = &Config::backend,
     .choices = "mpi or auto",
     .equal_on_all_ranks = true,
     .meaning = "how bytes travel between ranks: by Open MPI, whose mpirun started them (mpi); or by horo's own "
                "connections (auto), as HORO_TRANSPORT says"},
    {.name = "HORO_TRANSPORT",
     .group = kGradients,
     .field = &Config::transport,
     .choices = "tcp, shm or auto",
     .equal_on_all_ranks = true,
     .meaning = "how bytes travel between ranks of one host: by TCP; by memory that both see (shm), or an error where "
                "that cannot be had; by memory where it can be had (auto). Between hosts it is always TCP"},
    {.name = "HORO_SHM_CHUNK_BYTES",
     .group = kGradients,
     .field = &Config::shm_chunk_bytes,
     .range = {1 << 12, 1 << 22},
     .meaning = "piece of a message in shared memory that one rank reads while the other writes the next"},
    {.name = "HORO_SHM_SLOTS",
     .group = kGradients,
     .field = &Config::shm_slots,
     .range = {2, 64},
     .meaning = "such pieces on the way from one rank to another; a pair of ranks shares twice that memory"},
    {.name = "HORO_SHM_PAST_CACHES",
     .group = kGradients,
     .field = &Config::shm_past_caches,
     .choices = "on, off or auto",
     .meaning = "how a rank writes what ranks of its host then read of its own tensors: past the caches, so that "
                "they find it in memory (on); into them (off); or past them where the other one's core is behind "
                "another cache, to which the way is longer than to memory, as is measured again and again (auto)"},
    {.name = "HORO_CRC",
     .group = kGradients,
     .field = &Config::crc,
     .choices = "on, off or auto",
     .equal_on_all_ranks = true,
     .meaning =
         "a CRC32C behind the payload of every message over a socket, so that a changed bit is an error and never "
         "a wrong sum: on all links (on), on none (off), or on those between hosts, unless the start finds a line so "
         "fast that this would cost more than 2 % (auto)"},
    {.name = "HORO_TCP_WIDTH",
     .group = kGradients,
     .field = &Config::tcp_width,
     .range = {1, 16},
     .equal_on_all_ranks = true,
     .meaning =
         "TCP connections between two ranks; messages of more than 64 KiB travel over all of them at once. More than "
         "one pays where a line is long and loses packets, since a loss holds up one connection alone"},

    {.name = "HORO_TCP_KEEP_WARM_MS",
     .group = kDeadlines,
     .field = &Config::tcp_keep_warm,
     .range = {0, kWait.high},
     .meaning =
         "after the last message, in which a connection whose round trips take more than 1 ms sends a few bytes every "
         "100 ms, so that the kernel does not make it start slowly again; none where the congestion control is BBR, "
         "which does not forget; 0: never"},
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
     .meaning = "for one collective in flight, and for a rank that gives no sign of life meanwhile"},
    {.name = "HORO_BEAT_MS",
     .group = kDeadlines,
     .field = &Config::beat,
     .range = kWait,
     .meaning = "between signs of life that ranks want of each other while collectives are in flight"},
    {.name = "HORO_STALL_WARNING_MS",
     .group = kDeadlines,
     .field = &Config::stall_warning,
     .range = {0, kWait.high},
     .meaning = "until rank 0 warns of a tensor that some ranks have submitted and others have not; 0: never"},
    {.name = "HORO_STALL_LIMIT_MS",
     .group = kDeadlines,
     .field = &Config::stall_limit,
     .range = kWait,
     .meaning = "for a tensor that some ranks have submitted and others have not"},
    {.name = "HORO_ANSWER_TIMEOUT_MS",
     .group = kDeadlines,
     .field = &Config::answer_timeout,
     .range = kWait,
     .meaning = "for a rank to say where its callers are, when a tensor has come to HORO_STALL_LIMIT_MS"},

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
     .meaning = "tensors declared in one session"},
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
     .meaning = "received from one peer before it was asked for"},

    {.name = "HORO_LOG_LEVEL",
     .group = kProcess,
     .choices = "trace, debug, info, warning, error or off",
     .default_is = "warning",
     .environment_alone = true,
     .meaning = "least important log lines that are written to stderr"},
    {.name = "HORO_KERNELS",
     .group = kProcess,
     .choices = "scalar, sse2, neon, avx2, avx512 or auto",
     .default_is = "auto",
     .environment_alone = true,
     .meaning = "instructions that sums are computed with; their bits are the same, auto takes the best ones that this "
                "processor has (`horo doctor` lists them)"},
    {.name = "HORO_MPI_LIBRARY",
     .group = kProcess,
     .field = &Config::mpi_library,
     .default_is = "libhoro_mpi.so beside libhoro.so",
     .meaning = "path of the plug-in for HORO_BACKEND=mpi"},
    {.name = "HORO_LIBRARY",
     .group = kProcess,
     .default_is = "the one installed beside the Python package",
     .environment_alone = true,
     .meaning = "path of the libhoro.so that Python loads"},
    {.name = "HORO_EXE",
     .group = kProcess,
     .default_is = "horo on the PATH",
     .environment_alone = true,
     .meaning = "path of the horo executable that tools and tests start"},
};

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
