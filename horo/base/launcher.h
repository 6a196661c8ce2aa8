// Who started this process: rank, size and the start's name, as launchers leave them in the environment.
//
//   launcher      found where all of these are set          local rank, local size            name of the start
//   HORO_*        HORO_RANK or HORO_SIZE                    HORO_LOCAL_RANK, _LOCAL_SIZE      (HORO_ADDR is its place)
//   torchrun      RANK, WORLD_SIZE, LOCAL_RANK,             LOCAL_RANK, LOCAL_WORLD_SIZE      TORCHELASTIC_RUN_ID,
//   MASTER_ADDR,
//                 LOCAL_WORLD_SIZE, MASTER_ADDR, _PORT                                        MASTER_PORT,
//                 _RESTART_COUNT
//   mpirun        OMPI_COMM_WORLD_RANK, _SIZE               OMPI_COMM_WORLD_LOCAL_RANK,       OMPI_MCA_ess_base_jobid
//   and (Open MPI)                                              _LOCAL_SIZE                       _orte_hnp_uri;
//   PMIX_NAMESPACE mpiexec       PMI_RANK, PMI_SIZE                        MPI_LOCALRANKID, MPI_LOCALNRANKS  none:
//   HORO_JOB has to be set (Hydra) srun          SLURM_PROCID, SLURM_JOB_ID, SLURM_STEP_ID SLURM_LOCALID, SLURM_JOB_ID,
//   SLURM_STEP_ID
//                 of a step that runs tasks                 SLURM_STEP_TASKS_PER_NODE
//
// HORO_* come first: `horo run` and a user who sets them mean them. Launchers that are found together have to agree on
// rank and size, the first in the table is then taken; if they do not, both are named and refused. SLURM_* alone never
// contradict: torchrun, mpirun and `horo run` are started inside allocations and by srun, once on each host, and what
// they start inherits SLURM_* of another meaning. They count where nothing else is found (or Hydra's variables, which
// srun sets as well, say the same); not in a batch script or an interactive shell, whose environment describes the
// allocation: those have no step, a step number of their own, or are step 0 with a terminal (SLURM_PTY_PORT).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace horo {

// Looks a variable up; null: not set.
using Lookup = std::function<const char*(const char*)>;

struct Launcher {
  std::string name;   // "torchrun", "mpirun", "mpiexec" or "srun"; empty: none, or HORO_* variables
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
