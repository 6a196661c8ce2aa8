"""Ranks connect under every launcher: horo run, torchrun, mpirun and srun, without options of horo."""

import ast
import concurrent.futures
import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest
import ranks

from horo._session import Session
from horo.errors import HoroError, PeerLost

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = str(ROOT / "tests/python/programs/launched.py")
DIGITS = [str(ROOT / "tests/python/programs/digits_briefly.py"), "2"]
DEADLINE_S = 360
FOREIGN = r"(HORO_(RANK|SIZE|LOCAL_|ADDR|KEY_|JOB)|OMPI_|PMI|SLURM_|TORCHELASTIC_|MASTER_|RANK$|WORLD_SIZE$|LOCAL_)"


def executable(name):
    given = os.environ.get("HORO_EXE") if name == "horo" else None
    beside = pathlib.Path(sys.executable).with_name(name)
    built = ROOT / "build/release/tools/horo/horo"
    found = given or next((str(p) for p in (beside, built) if p.name == name and p.exists()), shutil.which(name))
    assert found, f"{name} is not installed: tools/setup does that"
    return found


# Words before those of a script, by launcher: of the number of ranks and the interpreter.
LAUNCHERS = {
    "horo run": lambda n, python=sys.executable: [executable("horo"), "run", "-n", str(n), python],
    "torchrun": lambda n, python=sys.executable: [executable("torchrun"), f"--nproc-per-node={n}", *NO_PYTHON, python],
    "mpirun": lambda n, python=sys.executable: [executable("mpirun"), "--oversubscribe", "-n", str(n), python],
}
LONG_BUT_ONE = [pytest.param(name, marks=() if name == "horo run" else pytest.mark.long) for name in LAUNCHERS]
NO_PYTHON = ["--no-python"]  # of its own


def environment(extra=()):
    clean = {name: value for name, value in os.environ.items() if not re.match(FOREIGN, name)}
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    return clean | root | dict(extra)


@contextlib.contextmanager
def started(command, env=()):
    """A process whose whole session is killed at the end of the block."""
    process = subprocess.Popen(
        command,
        env=environment(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()


def outputs(commands, codes=(0,)):
    """Runs commands, pairs (command, variables), at the same time; returns their outputs."""
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(started(command, env)) for command, env in commands]
        texts = [process.communicate(timeout=DEADLINE_S)[0] for process in processes]
        for process, text in zip(processes, texts):
            assert process.returncode in codes, text
        return texts


def places(text):
    return sorted(ast.literal_eval(found) for found in re.findall(r"place (\(.*?\))", text))


def one_host(size):
    return [(rank, size, rank, size, 0, 1) for rank in range(size)]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_of_one_host_connect_without_a_setting(launcher):
    (text,) = outputs([([*LAUNCHERS[launcher](3), PROGRAM, "again"], {})])
    assert places(text) == one_host(3)


@pytest.fixture(scope="module")
def digest():
    """digest(launcher): the sha256 of the parameters after examples/digits.py on two ranks."""
    known = {}

    def digest(launcher):
        if launcher not in known:
            (text,) = outputs([([*LAUNCHERS[launcher](2, ranks.start.python()), *DIGITS], {})])
            found = re.findall(r"sha256 of the parameters ([0-9a-f]{64})", text)
            assert len(found) == 2 and found[0] == found[1], text
            known[launcher] = found[0]
        return known[launcher]

    return digest


@pytest.mark.parametrize("launcher", [pytest.param("torchrun", marks=pytest.mark.long), "mpirun"])
def test_training_ends_with_the_same_bits_under_every_launcher(launcher, digest):
    assert digest(launcher) == digest("horo run")


@pytest.mark.parametrize("launcher", LONG_BUT_ONE)
def test_processes_that_a_rank_starts_are_no_ranks(launcher):
    command = [*LAUNCHERS[launcher](2), str(ROOT / "tests/python/programs/children.py"), executable("horo")]
    (text,) = outputs([(command, {})])
    assert text.count("done") == 2


IMPORTED_BY_A_WORKER = """
import multiprocessing, os, subprocess, sys
if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=print)
    worker.start()
    worker.join()
else:
    pipes = [os.pipe() for _ in range(9)]  # one of them has the number of the job key's descriptor
import horo
try:
    horo.init(settings={"HORO_START_TIMEOUT_MS": "5000"})
except horo.HoroError as error:
    sys.exit(f"refused: {error}")
os.environ["MASTER_PORT"] = "1"
sys.exit(subprocess.run([sys.executable, "-c", "import horo; print('place', horo.rank(), horo.size())"]).returncode)
"""


def test_a_worker_that_imports_the_script_before_its_rank_calls_init_is_refused(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(IMPORTED_BY_A_WORKER)
    (text,) = outputs([([*LAUNCHERS["horo run"](2), str(script)], {})])
    assert text.count("is a worker of multiprocessing's 'spawn' or 'forkserver', and no rank") == 2
    assert sorted(re.findall(r"place \d \d", text)) == ["place 0 2", "place 1 2"], text


def slurm_step(rank, size, step="0"):
    """The variables of srun for a task on one node."""
    names = {"PROCID": rank, "LOCALID": rank, "NODEID": 0, "NTASKS": size, "STEP_NUM_TASKS": size}
    names |= {"STEP_TASKS_PER_NODE": size, "JOB_ID": os.getpid(), "STEP_ID": step, "JOB_NAME": "python"}
    return {f"SLURM_{name}": str(value) for name, value in names.items()}


def test_tasks_of_srun_on_one_host_connect():
    texts = outputs([([sys.executable, PROGRAM], slurm_step(rank, 2)) for rank in range(2)])
    assert places("".join(texts)) == one_host(2)


def test_two_steps_of_one_slurm_job_do_not_mix():
    commands = [([sys.executable, PROGRAM], slurm_step(rank, 2, step)) for step in "01" for rank in range(2)]
    assert places("".join(outputs(commands))) == sorted(2 * one_host(2))


def test_horo_run_takes_precedence_inside_a_slurm_step():
    (text,) = outputs([([*LAUNCHERS["horo run"](2), PROGRAM], slurm_step(0, 1))])
    assert places(text) == one_host(2)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    return str(path)


def two_agents(program, rendezvous, env):
    """torchrun's two agents, which do not detect that they are on one host."""
    commands = []
    for node in "01":
        agent = [executable("torchrun"), "--nnodes", "2", "--node-rank", node, "--nproc-per-node", "2"]
        commands.append(([*agent, *rendezvous, *program], env))
    return commands


TWO_HOSTS = sorted((2 * cross + local, 4, local, 2, cross, 2) for cross in range(2) for local in range(2))


def test_ranks_of_torchrun_on_several_hosts_connect_through_its_store(key_file):
    rendezvous = ["--master-addr", "127.0.0.1", "--master-port", free_port()]
    texts = outputs(two_agents([PROGRAM, "torch", "again"], rendezvous, {"HORO_KEY_FILE": key_file}))
    assert places("".join(texts)) == TWO_HOSTS


def test_ranks_of_a_torchrun_whose_agent_has_no_store_connect_too(key_file):
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}"]
    env = {"HORO_KEY_FILE": key_file, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    texts = outputs(two_agents([PROGRAM, "torch", "again"], rendezvous, env))
    assert places("".join(texts)) == TWO_HOSTS


def test_without_a_key_the_error_names_the_setting():
    rendezvous = ["--master-addr", "127.0.0.1", "--master-port", free_port()]
    texts = outputs(two_agents([PROGRAM, "torch"], rendezvous, {}), codes=(1,))
    assert all("LOCAL_WORLD_SIZE=2) started ranks on several hosts" in text for text in texts)
    assert all("HORO_KEY_FILE=a file of 32 random bytes, mode 0600" in text for text in texts)


def test_two_launchers_that_contradict_each_other_are_both_named():
    env = {"HORO_RANK": "0", "HORO_SIZE": "4", "HORO_ADDR": "127.0.0.1:4000"}
    (text,) = outputs([([*LAUNCHERS["mpirun"](1), PROGRAM], env)], codes=(1,))
    assert "HORO_RANK=0, HORO_SIZE=4) and mpirun (OMPI_COMM_WORLD_RANK=0, OMPI_COMM_WORLD_SIZE=1" in text


SQUATTER = """
import os, socket, sys
os.setuid(65534)
listener = socket.socket(socket.AF_UNIX)
listener.bind(chr(0) + sys.argv[1])
listener.listen()
print("listening", flush=True)
while True:
    listener.accept()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its user")
def test_a_socket_of_another_user_is_refused():
    alone = slurm_step(1, 2) | {"HORO_START_TIMEOUT_MS": "300"}
    (text,) = outputs([([sys.executable, PROGRAM], alone)], codes=(1,))
    name = re.search(r"last error: @(horo/0/[0-9a-f]{16}): Connection refused", text)[1]
    with started([sys.executable, "-c", SQUATTER, name]) as squatter:
        assert squatter.stdout.readline() == "listening\n"
        (text,) = outputs([([sys.executable, PROGRAM], alone)], codes=(1,))
    assert "the socket's other end belongs to user 65534, expected user 0" in text


def exchange_by_files(folder):
    """An exchange through files, which does not use torchrun."""

    def exchange(call, mine):
        assert (call.size, call.timeout_ms) == (2, 120000)
        written = folder / f"{call.rank}.new"
        written.write_bytes(mine)
        written.rename(folder / str(call.rank))
        paths = [folder / str(rank) for rank in range(call.size)]
        while not all(path.exists() for path in paths):
            os.sched_yield()
        return [path.read_bytes() for path in paths]

    return exchange


def plain_rank(rank):
    return [f"HORO_RANK={rank}", "HORO_SIZE=2", "HORO_START_TIMEOUT_MS=120000"]


def test_ranks_connect_through_any_exchange(tmp_path):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        opened = [pool.submit(Session, plain_rank(rank), exchange_by_files(tmp_path)) for rank in range(2)]
        sessions = [one.result(DEADLINE_S) for one in opened]
        assert [(s.topology.rank, s.topology.size) for s in sessions] == [(0, 2), (1, 2)]
        for closed in [pool.submit(session.close) for session in sessions]:
            closed.result(DEADLINE_S)


@pytest.mark.parametrize(
    "raised, kind, text",
    [
        (PeerLost("rank 1 is missing", 1), PeerLost, "rank 1 is missing"),
        (ValueError("no such store"), ValueError, "no such store"),
        (OSError("broken"), HoroError, "OSError: broken"),
    ],
)
def test_the_error_of_an_exchange_is_raised(raised, kind, text):
    def exchange(call, mine):
        raise raised

    with pytest.raises(kind, match=text) as error:
        Session(plain_rank(0), exchange)
    assert getattr(error.value, "origin", 1) == 1


def test_an_exchange_with_too_few_values_is_refused():
    with pytest.raises(ValueError, match="2 values of at most 4096 bytes"):
        Session(plain_rank(0), lambda call, mine: [mine])
