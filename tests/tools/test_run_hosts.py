"""horo run --nnodes: one launcher per host; tools/two_hosts simulates two hosts."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from launching import DEADLINE_S, HORO, ROOT, clean_environment, horo

sys.path.insert(0, str(ROOT / "tools"))

import ranks  # noqa: E402

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="network namespaces need root and ip (iproute2)"
)
DIGITS = ROOT / "tests/python/programs/digits_briefly.py"
TWO_HOSTS = str(ROOT / "tools/two_hosts")


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    return path


ONE_DIES = """
import os, signal, sys, torch, horo.torch as horo
horo.init()
if horo.rank() == int(sys.argv[1]): os.kill(os.getpid(), signal.SIGKILL)
horo.allreduce(torch.ones(4), name='x')
"""


def run_on(nodes, key, options, program, env=()):
    """Runs `nodes` launchers on this host with the same options; returns their exit codes and outputs."""
    address = ranks.free_address()
    jobs = [
        subprocess.Popen(
            [HORO, "run", "--nnodes", str(nodes), "--node-rank", str(node), "--addr", address, "--key-file", str(key)]
            + [*options, *program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean_environment(env),
        )
        for node in range(nodes)
    ]
    try:
        outputs = [job.communicate(timeout=DEADLINE_S) for job in jobs]
        return [(job.returncode, *output) for job, output in zip(jobs, outputs)]
    finally:
        for job in jobs:
            job.kill()


def test_hosts_with_different_numbers_of_ranks_make_one_world(key):
    program = ["sh", "-c", "echo $HORO_RANK $HORO_LOCAL_RANK $HORO_LOCAL_SIZE $HORO_SIZE"]
    ended = run_on(3, key, ["--ranks-per-node", "2,1,2"], program)
    assert [code for code, *_ in ended] == [0, 0, 0]
    lines = sorted(line for _, out, _ in ended for line in out.splitlines())
    assert lines == ["[0] 0 0 2 5", "[1] 1 1 2 5", "[2] 2 0 1 5", "[3] 3 0 2 5", "[4] 4 1 2 5"]


def test_the_key_file_reaches_the_ranks_and_its_name_does_not(key):
    program = """
import os
print(os.pread(int(os.environ['HORO_KEY_FD']), 99, 0).hex(), 'HORO_KEY_FILE' in os.environ)
"""
    for code, out, errors in run_on(2, key, ["-n", "1"], [sys.executable, "-c", program]):
        assert code == 0, errors
        assert out.split()[1:] == [key.read_bytes().hex(), "False"]


def test_a_host_whose_ranks_end_without_init_says_so_at_its_end(key):
    program = "import os, horo.numpy as h; os.environ['HORO_RANK'] == '1' or h.init()"
    (_, _, first), (code, _, second) = run_on(
        2, key, ["-n", "1", "--start-timeout", "3"], [sys.executable, "-c", program]
    )
    assert code == 0 and "no rank of this host called horo.init()" in second, second
    assert "rank 1 did not connect within 3000 ms" in first and "called horo.init()" not in first, first


def test_a_failure_on_one_host_ends_the_job_on_the_other(key):
    ended = run_on(2, key, ["-n", "1"], [sys.executable, "-c", ONE_DIES, "1"])
    assert [code for code, *_ in ended] == [1, 128 + signal.SIGKILL], ended
    assert "rank 1, which runs on another host, was lost first" in ended[0][2]
    assert "rank 1 on host" in ended[1][2] and "failed first: signal 9 (SIGKILL)" in ended[1][2]


def refusal(*options, env=()):
    done = horo("run", *options, "true", env=env)
    assert done.returncode == 2, done.stderr
    return done.stderr


def test_several_hosts_without_a_key_are_refused_with_how_to_make_one():
    text = refusal("-n", 1, "--nnodes", 2, "--node-rank", 0, "--addr", "127.0.0.1:29400")
    assert "head -c 32 /dev/urandom > key; chmod 600 key" in text and "HORO_KEY_FILE" in text


def test_a_key_that_other_users_may_read_is_refused(key):
    key.chmod(0o644)
    options = ["-n", 1, "--nnodes", 2, "--node-rank", 0, "--addr", "127.0.0.1:29400"]
    assert "that no other user may write or read" in " ".join(refusal(*options, "--key-file", key).split())
    assert "that no other user may write or read" in " ".join(
        refusal(*options, env={"HORO_KEY_FILE": str(key)}).split()
    )


def test_an_address_of_another_host_is_refused_by_the_first_host_only(key):
    options = ["-n", 1, "--nnodes", 2, "--addr", "192.0.2.1:29400", "--key-file", key]
    assert "no interface of this host has that address" in refusal(*options, "--node-rank", 0)
    assert horo("run", *options, "--node-rank", 1, "true").returncode == 0


def test_a_port_in_use_is_reported_before_any_rank_starts(key):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        text = refusal("-n", 1, "--nnodes", 2, "--node-rank", 0, "--addr", address, "--key-file", key)
    assert f"cannot listen at {address}: Address already in use. Choose another port" in text


def test_a_name_that_does_not_resolve_is_reported(key):
    options = ["-n", 1, "--nnodes", 2, "--node-rank", 0, "--key-file", key]
    assert "--addr=no-such-host.invalid:1: " in refusal(*options, "--addr", "no-such-host.invalid:1")
    assert "--addr=nonsense: expected host:port" in refusal(*options, "--addr", "nonsense")


def namespaces():
    listed = subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
    return {name for name in listed.split() if name.startswith("horo")}


def two_hosts(*words):
    return subprocess.run([TWO_HOSTS, *map(str, words)], capture_output=True, text=True, timeout=3 * DEADLINE_S)


@needs_namespaces
def test_two_hosts_reach_each_other_and_leave_no_namespace():
    before = namespaces()
    done = two_hosts("-n", 2, HORO, "bench", "allreduce", "--max", "4K", "--rounds", 2)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = re.findall(r"^A \[0\] +(\d+) .* 0$", done.stdout, re.M)
    assert [int(row) for row in rows] == [8 << i for i in range(10)], done.stdout
    assert namespaces() <= before


@needs_namespaces
def test_ranks_listen_only_on_the_chosen_interface_while_they_connect():
    """Rank 1 reads the listening sockets while rank 0 still waits for its last peer."""
    program = f"""
import os, pathlib, time
rank = int(os.environ['HORO_RANK'])
if rank == 1:
    end = time.monotonic() + {DEADLINE_S}
    while time.monotonic() < end:
        rows = [line.split() for line in pathlib.Path('/proc/net/tcp').read_text().splitlines()[1:]]
        rows += [line.split() for line in pathlib.Path('/proc/net/tcp6').read_text().splitlines()[1:]]
        found = sorted(row[1] for row in rows if row[3] == '0A')
        if found: break
    print('listening', *found)
import horo
horo.init()
"""
    done = two_hosts("-n", 2, sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    found = re.search(r"listening (.+)", done.stdout)[1].split()
    assert found and all(address.startswith("01004D0A:") for address in found), found


def hashes(text):
    return re.findall(r"sha256 of the parameters (\w+)", text)


@needs_namespaces
def test_two_hosts_train_to_the_same_bits_as_one():
    pytest.importorskip("torch")
    # The same number of threads in both jobs, because sums of torch inside a rank depend on it.
    program = ["--cwd", ROOT, "--env", "OMP_NUM_THREADS=1", ranks.start.python(), DIGITS, 1]
    apart = two_hosts("-n", 1, *program)
    together = horo("run", "-n", 2, *program)
    assert apart.returncode == together.returncode == 0, apart.stderr + together.stderr
    assert len(hashes(apart.stdout)) == len(hashes(together.stdout)) == 2
    assert len({*hashes(apart.stdout), *hashes(together.stdout)}) == 1


@needs_namespaces
def test_two_hosts_return_the_first_failure_and_both_report_it():
    done = two_hosts("-n", 1, sys.executable, "-c", ONE_DIES, 0)
    assert done.returncode in (1, 128 + signal.SIGKILL)
    assert re.search(r"^A horo run: rank 0 on host \S+ failed first: signal 9", done.stderr, re.M), done.stderr
    assert "B horo run: rank 0, which runs on another host, was lost first" in done.stderr


@needs_namespaces
def test_two_hosts_clean_up_after_an_interrupt():
    before = namespaces()
    program = "import time; print('ready', flush=True); time.sleep(1000)"
    job = subprocess.Popen(
        [TWO_HOSTS, "-n", "1", sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert {job.stdout.readline(), job.stdout.readline()} == {"A [0] ready\n", "B [1] ready\n"}
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 128 + signal.SIGINT and namespaces() <= before


def test_two_hosts_print_their_usage():
    done = two_hosts("--help")
    assert done.returncode == 0 and "tools/two_hosts -n 2" in done.stdout
