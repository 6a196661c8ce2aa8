"""Ranks that cannot connect, or refuse to: addresses, keys, launchers, versions and settings."""

import concurrent.futures
import os
import socket

import torch
from table import by_command, on_ranks

import horo.torch as hvd

SECTION = "Starting"
AT_INIT = "`init`, this rank"
TORCHRUN = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
TORCHRUN |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_ess_base_jobid": "<job>"}
MPIRUN |= {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}


def init(run, env, module="horo"):
    """The last line of the output of a process with these variables."""
    done = run([run.python, "-c", f"import {module}; {module}.init()"], env=env)
    assert done.returncode == 1, done
    return done.stderr.strip().splitlines()[-1].removeprefix("horo.errors.")


@by_command(SECTION, "Several ranks and no address", where=AT_INIT, do="Start with `horo run`, or set `HORO_ADDR`")
def no_address(run):
    return init(run, {"HORO_RANK": "0", "HORO_SIZE": "2"})


@by_command(SECTION, "`HORO_RANK` without `HORO_SIZE`", where=AT_INIT, do="Set both, or none")
def rank_without_size(run):
    return init(run, {"HORO_RANK": "0"})


@by_command(
    SECTION,
    "A name that does not resolve",
    where=AT_INIT,
    do="Try `getent hosts NAME`; use an address",
    changing=((r": (Name or service not known|Temporary failure in name resolution)\.", ": <reason>."),),
)
def unknown_name(run):
    return init(run, {"HORO_RANK": "1", "HORO_SIZE": "2", "HORO_ADDR": "no-such-host.invalid:4000"})


@by_command(SECTION, "A port that is taken", where="`init`, rank 0", do="`ss -ltnp` shows the program that holds it")
def port_taken(run):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        return init(run, {"HORO_RANK": "0", "HORO_SIZE": "2", "HORO_ADDR": address, "HORO_HELLO_TIMEOUT_MS": "100"})


@by_command(
    SECTION,
    "An address of another host, and no key",
    where=AT_INIT,
    do="`head -c 32 /dev/urandom > key; chmod 600 key`, copied to every host",
)
def no_key(run):
    return init(run, {"HORO_RANK": "1", "HORO_SIZE": "2", "HORO_ADDR": "192.0.2.1:4000"})


@by_command(
    SECTION,
    "A rank that never connects",
    where="`init`, every rank",
    do="Check that rank's output; `HORO_START_TIMEOUT_MS` limits the wait of the others",
)
def rank_that_never_connects(run):
    world = {"HORO_RANK": "0", "HORO_SIZE": "2", "HORO_ADDR": run.free_address()}
    return init(run, world | {"HORO_START_TIMEOUT_MS": "300"})


@by_command(
    SECTION,
    "A rank that mpirun or srun started on this host never connects",
    where="`init`, every rank",
    do="As above; ranks in separate containers need `HORO_ADDR`",
)
def local_rank_that_never_connects(run):
    return init(run, MPIRUN | {"HORO_START_TIMEOUT_MS": "300"})


@by_command(SECTION, "`HORO_BACKEND=mpi` without mpirun", where=AT_INIT, do="Start with Open MPI's mpirun")
def mpi_without_mpirun(run):
    return init(run, {"HORO_BACKEND": "mpi"})


@by_command(
    SECTION,
    "`HORO_BACKEND=mpi` without the plug-in",
    where=AT_INIT,
    do="Install horo on a machine with Open MPI's headers; `horo doctor` shows what was found",
)
def mpi_without_plug_in(run):
    return init(run, MPIRUN | {"HORO_BACKEND": "mpi", "HORO_MPI_LIBRARY": "/nowhere/libhoro_mpi.so"})


@by_command(
    SECTION, "`HORO_BACKEND=mpi` under the mpiexec of another MPI", where=AT_INIT, do="Start with Open MPI's mpirun"
)
def mpi_of_another_launcher(run):
    # MPI finds no launcher, and starts a world of one process.
    foreign = {"PMI_RANK": "0", "PMI_SIZE": "2", "HORO_JOB": "doc", "HORO_BACKEND": "mpi"}
    worlds = [foreign, foreign | {"PMI_RANK": "1"}]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda env: init(run, env | {"OMPI_MCA_plm": "isolated"}), worlds))
    return said[1]


@by_command(SECTION, "Two launchers that contradict each other", where=AT_INIT, do="Unset the variables of one")
def two_launchers(run):
    return init(run, TORCHRUN | MPIRUN)


@by_command(SECTION, "mpirun or srun on several hosts, without an address", where=AT_INIT, do="Set both on all hosts")
def several_hosts(run):
    return init(run, MPIRUN | {"OMPI_COMM_WORLD_SIZE": "4"})


@by_command(SECTION, "torchrun on several hosts, without a key", where=AT_INIT, do="Set it on all hosts")
def torchrun_without_key(run):
    return init(run, TORCHRUN, "horo.torch")


@by_command(SECTION, "torchrun on several hosts, and `horo.init()`", where=AT_INIT, do="Call `horo.torch.init()`")
def torchrun_without_torch(run):
    return init(run, TORCHRUN)


@by_command(SECTION, "Another version of horo on one rank", where="`init`, every rank", do="Install one version")
def another_version(run):
    # An exchange that changes the version in the other rank's peer info.
    program = """
import horo
from horo._session import Session
old = horo.version().encode()
Session(["HORO_RANK=0", "HORO_SIZE=2"], lambda call, mine: [mine, mine.replace(old, b"9.9.9")])
"""
    lines = run([run.python, "-c", program]).stderr.strip().splitlines()
    return lines[-1]


@on_ranks(
    SECTION,
    "A setting that must be equal on all ranks, but differs",
    do="Set it to the same value on all ranks; docs/settings.md marks these settings",
    session="",
    initialized=False,
)
def settings_differ():
    hvd.init(settings={"HORO_SEGMENT_BYTES": 65536 << int(os.environ["HORO_RANK"])})
    hvd.allreduce(torch.ones(1))


@by_command(
    SECTION,
    "Too few file descriptors",
    where="`init`, the ranks that need more",
    do="Raise the limit of `ulimit -n`, which limits.conf, systemd or the container sets",
    changing=((r"has \d+ open already, but this process may open \d+", "has <some> open, but may open <fewer>"),),
)
def too_few_descriptors(run):
    limit = "n = len(os.listdir('/proc/self/fd')) + 5; resource.setrlimit(resource.RLIMIT_NOFILE, (n, n))"
    world = {"HORO_RANK": "0", "HORO_SIZE": "16", "HORO_ADDR": run.free_address()}
    done = run([run.python, "-c", f"import os, resource, horo; {limit}; horo.init()"], env=world)
    assert done.returncode == 1, done
    return done.stderr.strip().splitlines()[-1]
