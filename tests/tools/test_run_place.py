"""horo run and a rank that it started: which rank a process is without its environment, and ranks that end early."""

import os
import pty
import shutil
import subprocess
import sys
import time

import pytest
from launching import DEADLINE_S, HORO, clean_environment, horo, run

SUM = "import horo.numpy as h, numpy; h.init(); print(h.rank(), h.allreduce(numpy.ones(1), op=h.Sum)[0])"
ALL = [f"[{rank}] {rank} 2.0" for rank in range(2)]
NAMES = [name for name in ("PYTHONPATH", "HORO_LIBRARY", "LD_LIBRARY_PATH") if name in os.environ]
PATHS = [f"{name}={os.environ[name]}" for name in NAMES]


def lines_of(done):
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


@pytest.mark.parametrize(
    "way",
    [
        ["env", "-i", *PATHS],
        ["sh", "-c", f'env -i {" ".join(PATHS)} "$@"; exit $?', "sh"],
        [sys.executable, "-c", "import subprocess, sys; sys.exit(subprocess.call(sys.argv[2:], env={}))", "--"],
        ["env", "-u", "HORO_RANK", "-u", "HORO_SIZE", "-u", "RANK", "-u", "WORLD_SIZE"],
    ],
    ids=["env -i", "a child of a shell", "a child without descriptors", "some variables"],
)
def test_a_rank_whose_environment_is_cleared_is_still_that_rank(way):
    if way[0] == sys.executable:
        way = [word.replace("env={}", f"env=dict(v.split('=', 1) for v in {PATHS})") for word in way]
    assert lines_of(horo("run", "-n", 2, *way, sys.executable, "-c", SUM)) == ALL


def test_an_elastic_rank_whose_environment_is_cleared_is_still_that_rank():
    assert lines_of(horo("run", "-n", 2, "--min-np", 1, "env", "-i", *PATHS, sys.executable, "-c", SUM)) == ALL


def test_a_program_of_a_rank_without_the_variables_is_a_world_of_one():
    inner = "import horo.numpy as h; h.init(); print(h.size())"
    program = f"""
import horo.numpy as h
h.init()
own = {{name: value for name, value in os.environ.items() if name in {NAMES}}}
print(subprocess.run([sys.executable, '-c', {inner!r}], env=own, capture_output=True, text=True).stdout.strip())
h.barrier()
"""
    assert lines_of(run(2, program)) == ["[0] 1", "[1] 1"]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, to become another user")
def test_a_rank_of_another_user_without_its_variables_is_told():
    other = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    if subprocess.run([*other, sys.executable, "-c", "import horo.numpy"], capture_output=True).returncode != 0:
        pytest.skip("another user cannot read this installation")
    done = horo("run", "-n", 2, *other, "env", "-i", *PATHS, sys.executable, "-c", SUM)
    assert done.returncode == 1 and done.stdout == ""
    assert "has started this process, which has none of its variables" in done.stderr, done.stderr
    assert "HORO_RANK=0 and HORO_SIZE=1" in done.stderr


ENDS_EARLY = """
if rank == {early}: sys.exit({code})
import horo.numpy as h
h.init()
"""


@pytest.mark.parametrize("early", [0, 1])
def test_a_rank_that_ends_without_init_is_told_when_it_ends(early):
    begun = time.monotonic()
    done = run(3, ENDS_EARLY.format(early=early, code=0), options=["--start-timeout", str(DEADLINE_S)])
    assert time.monotonic() - begun < DEADLINE_S / 2  # not the start's timeout
    assert done.returncode == 1
    assert f"rank {early} has ended (exit code 0) without horo.init(); the other ranks wait for it" in done.stderr
    assert f"rank {early} on host" in done.stderr and "ended without horo.init(), in which other ranks" in done.stderr


def test_a_rank_that_fails_before_init_is_told_when_it_ends():
    begun = time.monotonic()
    done = run(3, ENDS_EARLY.format(early=2, code=7), options=["--start-timeout", str(DEADLINE_S)])
    assert time.monotonic() - begun < DEADLINE_S / 2
    assert done.returncode == 7 and "rank 2 has ended (exit code 7) without horo.init()" in done.stderr


def test_an_elastic_job_begins_at_once_without_a_rank_that_ends_without_init():
    begun = time.monotonic()
    program = ENDS_EARLY.format(early=1, code=0) + "print(h.size())"
    done = run(3, program, options=["--start-timeout", str(DEADLINE_S), "--min-np", "2"])
    assert time.monotonic() - begun < DEADLINE_S / 2
    assert lines_of(done) == ["[0] 2", "[2] 2"] and "rank 1 left" in done.stderr


def test_a_rank_that_does_not_begin_again_is_told_when_it_ends():
    program = """
import horo.numpy as h
h.init()
h.shutdown()
if rank != 1: h.init()
"""
    done = run(2, program, options=["--start-timeout", str(DEADLINE_S)])
    assert done.returncode == 1 and "does not call horo.init() again" in done.stderr


def test_a_program_that_never_uses_horo_ends_in_silence():
    done = horo("run", "-n", 2, "hostname")
    assert done.returncode == 0 and done.stderr == "" and len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize("kind", ["file", "pipe", "here-document"])
def test_every_rank_gets_the_whole_standard_input(kind, tmp_path):
    program = tmp_path / "train.py"
    program.write_text(SUM + "\n" + "#" * 200_000)  # more than a pipe holds
    ways = {"file": f"< {program}", "pipe": "", "here-document": f"<<'END'\n{SUM}\nEND\n"}
    word = f"cat {program} | " if kind == "pipe" else ""
    line = f"{word}{HORO} run -n 2 {sys.executable} - {ways[kind]}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=DEADLINE_S)
    assert lines_of(done) == ALL


def test_ranks_read_standard_input_at_their_own_pace():
    """One rank reads nothing, one a line, and one everything."""
    program = "n = [0, 1, 1 << 30][rank]; print(len(sys.stdin.buffer.read(n)))"
    data = os.urandom(1 << 20) * 20
    command = [
        HORO,
        "run",
        "-n",
        "3",
        sys.executable,
        "-c",
        f"import os, sys; rank = int(os.environ['RANK']); {program}",
    ]
    done = subprocess.run(command, input=data, capture_output=True, timeout=DEADLINE_S, env=clean_environment())
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.decode().splitlines()) == ["[0] 0", "[1] 1", f"[2] {len(data)}"]


def test_a_file_is_read_from_where_it_stands_and_not_consumed(tmp_path):
    path = tmp_path / "lines"
    path.write_text("one\ntwo\nthree\n")
    line = f"(read first; {HORO} run -n 2 cat; cat) < {path}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=DEADLINE_S)
    assert sorted(done.stdout.splitlines()) == ["[0] three", "[0] two", "[1] three", "[1] two", "three", "two"]


def test_an_input_that_stays_open_holds_nothing_up():
    job = subprocess.Popen([HORO, "run", "-n", "2", "true"], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert job.wait(DEADLINE_S) == 0
    job.stdin.close()


@pytest.mark.parametrize("words", [[sys.executable], ["python3", "-"]])
def test_python_without_a_script_at_a_terminal_is_refused(words):
    here, there = pty.openpty()
    line = [HORO, "run", "-n", "2", *words]
    done = subprocess.run(line, stdin=there, capture_output=True, text=True, timeout=DEADLINE_S)
    os.close(here)
    os.close(there)
    assert done.returncode == 2 and "a terminal does not reach the ranks; name a script" in " ".join(
        done.stderr.split()
    )


def test_several_hosts_refuse_an_input_that_they_do_not_get():
    command = [HORO, "run", "-H", "localhost:1,10.255.255.1:1", "--addr", "10.255.255.1:4000", "python3"]
    text, writer = os.pipe()
    os.write(writer, b"print(1)")
    os.close(writer)
    done = subprocess.run(command, stdin=text, capture_output=True, text=True, timeout=DEADLINE_S)
    os.close(text)
    assert done.returncode == 2 and "standard input does not reach ranks on several hosts" in done.stderr
