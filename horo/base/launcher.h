// Launcher: the program that started this process, with rank, size and the name of the start, read from the
// environment.
//
//   HORO_*        found by     HORO_RANK or HORO_SIZE
//                 local        HORO_LOCAL_RANK, HORO_LOCAL_SIZE
//                 start        named by HORO_ADDR
//   torchrun      found by     RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//                 local        LOCAL_RANK, LOCAL_WORLD_SIZE
//                 start        TORCHELASTIC_RUN_ID, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RESTART_COUNT
//   mpirun        found by     OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
//   (Open MPI)    local        OMPI_COMM_WORLD_LOCAL_RANK, OMPI_COMM_WORLD_LOCAL_SIZE
//                 start        OMPI_MCA_ess_base_jobid, OMPI_MCA_orte_hnp_uri; PMIX_NAMESPACE
//   mpiexec       found by     PMI_RANK, PMI_SIZE
//   (Hydra)       local        MPI_LOCALRANKID, MPI_LOCALNRANKS
//                 start        unnamed: HORO_JOB must be set
//   srun          found by     SLURM_PROCID, SLURM_JOB_ID, SLURM_STEP_ID, of a step that runs tasks
//                 local        SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE
//                 start        SLURM_JOB_ID, SLURM_STEP_ID
//
// HORO_* take precedence: `horo run` and users set them on purpose. `horo run` sets torchrun's variables too, for
// trainers: beside HORO_* they count only with TORCHELASTIC_RUN_ID, which torchrun alone sets. Launchers that are found
// together must agree on rank and size, and the first in the table is taken; contradictions are refused with the names
// of both. SLURM_* alone never contradict: torchrun, mpirun and `horo run` are started inside allocations and by srun,
// once per host, and their children inherit SLURM_* with another meaning. SLURM_* count where no other launcher is
// found (or where Hydra's variables, which srun sets as well, agree); not in a batch script or an interactive shell,
// whose environment describes the allocation: those have no step, a reserved step number, or step 0 with a terminal
// (SLURM_PTY_PORT).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace horo {

// Looks a variable up; null: not set.
using Lookup = std::function<const char*(const char*)>;

struct Launcher {
  std::string name;   // "torchrun", "mpirun", "mpiexec" or "srun"; empty: none, or HORO_*
  std::string found;  // "RANK=1, WORLD_SIZE=2, ...": for messages
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::uint32_t incarnation = 0;  // how often it has started the ranks again
  std::string job;                // no other start of ranks on this host has this name; empty: it has none
  std::string hub;                // host:port of its own server, which every rank can reach; empty: it has none
  std::string remark;             // worth a warning: variables that look like a launcher's and were not taken
};

// Throws std::invalid_argument: launchers that contradict each other, or a variable of the one that is taken that is no
// number in its range.
Launcher detect_launcher(const Lookup& get);

}  // namespace horo
