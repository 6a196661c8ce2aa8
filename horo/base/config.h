// Every setting and limit: default, unit and environment variable. Reaching a limit is an error that names it. Ranges
// and meanings are in the table of settings.h; a new setting is a field here and a row there.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "horo/base/auth.h"
#include "horo/base/launcher.h"

namespace horo {

// How the ranks of a job find each other.
enum class MeetBy {
  kAddr,      // rank 0 listens at Config::addr; a world of one needs none
  kLocal,     // one host: at a Unix socket named after the launcher's job
  kExchange,  // by an Exchange that the caller brings
};

struct Config {
  // Rank and place. Without HORO_RANK and HORO_SIZE the launcher's variables count, if a launcher is found; otherwise
  // the world is this process alone.
  int rank = 0;               // HORO_RANK
  int size = 1;               // HORO_SIZE
  int local_rank = 0;         // HORO_LOCAL_RANK (default: rank)
  int local_size = 1;         // HORO_LOCAL_SIZE (default: size)
  std::string addr;           // HORO_ADDR, host:port where rank 0 listens
  std::string host_id;        // HORO_HOST_ID (default: boot id and network namespace)
  std::string job = "horo";   // HORO_JOB
  std::optional<JobKey> key;  // HORO_KEY_FD (an inherited descriptor) or HORO_KEY_FILE (private: mode 0600 or 0400, or
                              // of root: 0640, or a container's secret); none: loopback only
  std::uint32_t incarnation = 0;  // HORO_INCARNATION (default: how often the launcher has started the ranks again)
  int min_np = 0;                 // HORO_MIN_NP: an elastic job goes on with so many ranks; 0: a static job
  int guard_fd = -1;              // HORO_GUARD_FD: socket to the guard of an elastic job; -1: none
  bool joins = false;             // HORO_JOINS: this process was started for a job that runs, and is to join it
  Launcher launcher;
  MeetBy meet_by = MeetBy::kAddr;

  // How gradients travel.
  std::size_t bucket_bytes = 25 << 20;       // HORO_BUCKET_BYTES: most bytes in one bucket; 0: every tensor alone
  std::size_t least_bucket_bytes = 1 << 20;  // HORO_LEAST_BUCKET_BYTES: between hosts, where a sixteenth of a step is
                                             // less; equal to bucket_bytes: steps are not divided
  std::size_t credit_bytes = 2 << 20;        // HORO_CREDIT_BYTES: in flight in a process set, before tensors of lower
                                             // priority wait; 0: one bucket
  std::size_t segment_bytes =
      256 << 10;  // HORO_SEGMENT_BYTES: piece of a shard whose reduction overlaps the next one's move
  std::string
      algorithms;  // HORO_ALGORITHMS: "all_reduce=tree,broadcast=scatter" instead of what ring/group/choose.cc takes

  // How bytes travel between ranks.
  std::string backend =
      "auto";               // HORO_BACKEND: mpi (by Open MPI, an error where it does not work) or auto (as follows)
  std::string mpi_library;  // HORO_MPI_LIBRARY (default: libhoro_mpi.so beside libhoro.so)

  // Tensors on GPUs.
  std::string gpu_backend = "auto";  // HORO_GPU_BACKEND: nccl (an error where it does not work), host or auto
  std::string cuda_library;          // HORO_CUDA_LIBRARY (default: libhoro_cuda.so beside libhoro.so)
  std::string nccl_library;          // HORO_NCCL_LIBRARY (default: the one of this process, or libnccl.so.2)

  // How they travel between the ranks of one host.
  std::string transport = "auto";          // HORO_TRANSPORT: tcp, shm (an error where it does not work) or auto
  std::size_t shm_chunk_bytes = 32 << 10;  // HORO_SHM_CHUNK_BYTES: readable while the next chunk is copied
  std::size_t shm_slots = 8;               // HORO_SHM_SLOTS: chunks on the way from one rank to another
  std::string shm_past_caches = "auto";    // HORO_SHM_PAST_CACHES: long tensors by non-temporal stores: on, off or auto

  // How bytes travel over sockets.
  std::string crc = "auto";   // HORO_CRC: a checksum behind every payload: on, off or auto (between hosts)
  std::size_t tcp_width = 1;  // HORO_TCP_WIDTH: TCP connections between two ranks, over which long messages are cut
  std::chrono::milliseconds tcp_keep_warm{10'000};  // HORO_TCP_KEEP_WARM_MS: after the last message, idle connections
                                                    // with long round trips avoid slow start; 0: never

  // Deadlines.
  std::chrono::milliseconds start_timeout{30'000};   // HORO_START_TIMEOUT_MS: all ranks connected
  std::chrono::milliseconds hello_timeout{2'000};    // HORO_HELLO_TIMEOUT_MS: one handshake
  std::chrono::milliseconds deadline{30'000};        // HORO_DEADLINE_MS: one collective in flight
  std::chrono::milliseconds beat{1'000};             // HORO_BEAT_MS: between heartbeats while works are in flight
  std::chrono::milliseconds stall_limit{0};          // HORO_STALL_LIMIT_MS: submitted by some ranks only; 0: no limit
  std::chrono::milliseconds stall_warning{10'000};   // HORO_STALL_WARNING_MS: the same, until a warning; 0: never
  std::chrono::milliseconds deadlock_limit{60'000};  // HORO_DEADLOCK_MS: ranks wait for one another; 0: no search
  std::chrono::milliseconds answer_timeout{1'000};   // HORO_ANSWER_TIMEOUT_MS: for a rank's answer to a stall diagnosis

  std::string accounting = "on";  // HORO_ACCOUNTING: where the time of each step goes: on or off
  std::string marks = "on";       // HORO_MARKS: marks of input, backward, optimizer and checkpoints: on or off
  std::string steps;              // HORO_STEPS: file of a line for each step; empty: none
  std::string timeline;           // HORO_TIMELINE: file of what the ranks do when; empty: none

  // The audit of replicas: bindings/python/horo/torch/audit.py.
  std::string audit = "warn";                   // HORO_AUDIT: what a difference does: warn, raise or off
  std::size_t audit_every = 100;                // HORO_AUDIT_EVERY: steps between two looks; 0: no look at steps
  std::size_t audit_permille = 5;               // HORO_AUDIT_PERMILLE: of the steps' time; 0: no limit
  std::chrono::milliseconds audit_wait{1'000};  // HORO_AUDIT_WAIT_MS: of a look for the other ranks

  // Limits.
  std::size_t max_ranks = 16'384;            // HORO_MAX_RANKS
  std::size_t max_name_bytes = 1'024;        // HORO_MAX_NAME_BYTES: of a tensor
  std::size_t max_dims = 64;                 // HORO_MAX_DIMS: of a tensor
  std::size_t max_tensors = 1 << 20;         // HORO_MAX_TENSORS: declared or in flight at once
  std::size_t kept_tensors = 1 << 16;        // HORO_KEPT_TENSORS: above it, names out of use are forgotten
  std::size_t max_round_streams = 256;       // HORO_MAX_ROUND_STREAMS: of which rank 0 compares the rounds of all ranks
  std::size_t max_process_sets = 4096;       // HORO_MAX_PROCESS_SETS: at once, beside the world
  std::size_t max_message_bytes = 64 << 20;  // HORO_MAX_MESSAGE_BYTES: of the control plane
  std::size_t max_early_bytes = 64 << 20;  // HORO_MAX_EARLY_BYTES: received from one peer before the receive was posted
};

// Reads the variables through `get` (null: not set), checks ranges and that they fit together. Throws
// std::invalid_argument naming the variable, its value and what was expected. `has_exchange`: the caller brings an
// Exchange, for ranks without an address on several hosts.
Config config_from(const Lookup& get, bool has_exchange = false);

// config_from over this process's environment, with `given` settings in front of it. An unknown name is an error if it
// is given; in the environment it is logged, once in this process and by the first rank of a host alone.
Config config_from_environment(const std::map<std::string, std::string>& given = {}, bool has_exchange = false);

// Boot id and network namespace: equal for processes of one host that can reach each other by loopback. Throws
// std::invalid_argument, naming HORO_HOST_ID as the remedy, where /proc does not contain them.
std::string this_host_id();

}  // namespace horo
