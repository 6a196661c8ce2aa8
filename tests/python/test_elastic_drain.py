"""The notice: SIGTERM to horo run of an elastic job, as scripts see it (docs/elastic.md)."""

import re
import secrets
import signal
import socket
import subprocess
import sys

import pytest
from test_elastic import TORCH_DEADLINE_S, command
from test_launchers import environment, executable

DRAINED = r"horo run: (the host|host [01]) is drained \(SIGTERM\): ranks [\d, ]+ leave after their round"


def start(words):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, env=environment(), **pipes)


def wait_until_all_run(job, ranks):
    lines = []
    while sum(" runs" in line for line in lines) < ranks:
        lines.append(job.stdout.readline())
        assert lines[-1], job.stderr.read()


def ended(job):
    """The exit code, the lines of the ranks and those of horo run."""
    output, errors = job.communicate(timeout=TORCH_DEADLINE_S)
    return job.returncode, re.sub(r"^\[\d+\] ", "", output, flags=re.MULTILINE).splitlines(), errors


def ends_of(lines, how):
    """By rank: its number of steps, and the hash of its parameters."""
    words = [line.split() for line in lines]
    return {int(line[0]): (int(line[2]), line[3]) for line in words if line[1] == how}


@pytest.mark.parametrize("how, end", [("exits", "ends"), ("saves", "saved"), ("polls", "left")])
def test_ranks_leave_at_the_end_of_a_step(how, end):
    with start(command(3, "elastic_drain", how, deadline=TORCH_DEADLINE_S)) as job:
        wait_until_all_run(job, 3)
        job.send_signal(signal.SIGTERM)
        code, lines, errors = ended(job)
    ends = ends_of(lines, end)
    assert code == 143 and sorted(ends) == [0, 1, 2], (lines, errors)
    steps = [count for count, _ in ends.values()]
    assert max(steps) - min(steps) <= 1 and all(count > 20 for count in steps)
    assert len(set(ends.values())) == len(set(steps))  # equal parameters after equally many steps
    assert [line.split()[1:] for line in lines if "atexit" in line] == [["atexit", str(how != "saves")]] * 3
    assert re.match(DRAINED, errors) and "Traceback" not in errors and " died " not in errors


@pytest.mark.parametrize("how, end", [("exits", "ends"), ("saves", "saved")])
def test_the_ranks_of_a_static_job_leave_after_the_same_step(root, how, end):
    program = [sys.executable, str(root / "tests/python/programs/elastic_drain.py"), how]
    with start([executable("horo"), "run", "-n", "3", "--grace", "30", *program]) as job:
        wait_until_all_run(job, 3)
        job.send_signal(signal.SIGTERM)
        code, lines, errors = ended(job)
    ends = ends_of(lines, end)
    assert code == 143 and sorted(ends) == [0, 1, 2], (lines, errors)
    assert len(set(ends.values())) == 1, ends
    steps = ends[0][0] - 1  # the first round begins the first step
    assert f"horo run: SIGTERM: the ranks leave after step {steps}\n" in errors and "Traceback" not in errors, errors


# Host 0 has the leader of the collectives, and the rendezvous, which it serves to the end.
@pytest.mark.parametrize(
    "how, drained",
    [("exits", 1), pytest.param("exits", 0, marks=pytest.mark.long), pytest.param("polls", 1, marks=pytest.mark.long)],
)
def test_the_ranks_of_the_other_host_go_on(how, drained, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(secrets.token_bytes(32))
    key.chmod(0o600)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = ("--min-np", "3", "--nnodes", "2", "--addr", address, "--key-file", str(key), "--node-rank")
    steps = 3_000 if how == "exits" else 8_000
    words = [command(2, "elastic_drain", how, steps, options=(*options, n), deadline=TORCH_DEADLINE_S) for n in "01"]
    with start(words[0]) as first, start(words[1]) as second:
        leaving, staying = (second, first) if drained else (first, second)
        wait_until_all_run(leaving, 2)
        leaving.send_signal(signal.SIGTERM)
        code, lines, errors = ended(staying)
        trained = ends_of(lines, "trained")
        assert code == 0 and len(set(trained.values())) == 1, (lines, errors)
        assert {rank: count for rank, (count, _) in trained.items()} == {2 - 2 * drained + i: steps for i in (0, 1)}
        assert re.search(DRAINED, errors) and f"rank {2 * drained} left (drained)" in errors
        assert " died " not in errors and " evicted" not in errors
        code, lines, errors = ended(leaving)
    left = ends_of(lines, "ends" if how == "exits" else "left")
    assert code == 0 and sorted(left) == [2 * drained, 2 * drained + 1], errors
    assert all(count < steps for count, _ in left.values())
