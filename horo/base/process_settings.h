// The rows of the table of settings that are of the process (settings.cc has the others).
#pragma once

#include "horo/base/settings.h"

namespace horo {

inline constexpr Setting kProcessSettings[] = {
    {.name = "HORO_TIMELINE",
     .group = SettingGroup::kProcess,
     .field = &Config::timeline,
     .meaning = "file to which rank 0 writes what it does when, for ui.perfetto.dev; the other ranks write files with "
                "their number in the name beside it, and horo timeline merge joins them (docs/timeline.md)"},
    {.name = "HORO_LOG_LEVEL",
     .group = SettingGroup::kProcess,
     .choices = "trace, debug, info, warning, error or off",
     .default_is = "warning",
     .environment_alone = true,
     .meaning = "least important log lines that are written to stderr"},
    {.name = "HORO_KERNELS",
     .group = SettingGroup::kProcess,
     .choices = "scalar, sse2, neon, avx2, avx512 or auto",
     .default_is = "auto",
     .environment_alone = true,
     .meaning = "instruction set of the sums; the results are the same bits; auto takes the best one of this "
                "processor (`horo doctor` lists them)"},
    {.name = "HORO_MPI_LIBRARY",
     .group = SettingGroup::kProcess,
     .field = &Config::mpi_library,
     .default_is = "libhoro_mpi.so beside libhoro.so",
     .meaning = "path of the plug-in for HORO_BACKEND=mpi"},
    {.name = "HORO_CUDA_LIBRARY",
     .group = SettingGroup::kProcess,
     .field = &Config::cuda_library,
     .default_is = "libhoro_cuda.so beside libhoro.so",
     .meaning = "path of the plug-in for CUDA tensors"},
    {.name = "HORO_NCCL_LIBRARY",
     .group = SettingGroup::kProcess,
     .field = &Config::nccl_library,
     .default_is = "the libnccl.so.2 that the process has loaded, as torch does, or that the loader finds",
     .meaning = "path of the NCCL that reduces CUDA tensors"},
    {.name = "HORO_LIBRARY",
     .group = SettingGroup::kProcess,
     .default_is = "the one installed beside the Python package",
     .environment_alone = true,
     .meaning = "path of the libhoro.so that Python loads"},
    {.name = "HORO_TORCH_DEFAULT",
     .group = SettingGroup::kProcess,
     .choices = "0 or 1",
     .default_is = "0",
     .environment_alone = true,
     .meaning = "1: torch.distributed uses horo for CPU tensors where a script names no backend"},
    {.name = "HORO_REPLACE_GLOO",
     .group = SettingGroup::kProcess,
     .choices = "0 or 1",
     .default_is = "0",
     .environment_alone = true,
     .meaning = "1: a process group of torch.distributed that a script asks for as \"gloo\", or that torch would give "
                "to it, is made by horo; horo run --replace-gloo sets it"},
    {.name = "HORO_TRUST_STORE",
     .group = SettingGroup::kProcess,
     .choices = "0 or 1",
     .default_is = "0",
     .environment_alone = true,
     .meaning = "1: the job key of a process group on several hosts travels through the store of torch.distributed, so "
                "that every process that reads the store can join the job"},
    {.name = "HORO_STARTED_BY",
     .group = SettingGroup::kProcess,
     .default_is = "set by horo.init() in Python",
     .environment_alone = true,
     .meaning = "process id and place of the rank that has started this process; horo.init() refuses to make another "
                "rank of it"},
    {.name = "HORO_EXE",
     .group = SettingGroup::kProcess,
     .default_is = "horo on the PATH",
     .environment_alone = true,
     .meaning = "path of the horo executable that tools and tests start"},
};

}  // namespace horo
