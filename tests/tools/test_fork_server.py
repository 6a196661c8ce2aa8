"""Ranks that are forked from a process with torch are as processes of their own."""

import os
import signal
import subprocess
import sys
import time

import fork_server
import pytest
import ranks
from launching import HORO, clean_environment

PROGRAM = """
import torch
import atexit, os, signal, sys, threading, time

rank = int(os.environ["HORO_RANK"])
way = sys.argv[1]
if way == "place":
    atexit.register(print, "at exit")
    print(__name__, __file__ == sys.argv[0], sys.argv[1:], os.getcwd(), os.environ.get("MINE"), "horo" in sys.modules)
    print("torch._dynamo" in sys.modules)
    print(sys.path[0] == os.path.dirname(__file__), sys.stdin.read() == "", os.listdir("/proc/self/fd")[3:4])
    print(torch.rand(1).item(), hash("a word"), os.getpid(), os.getpgrp() == os.getpgid(os.getppid()))
    threading.Thread(target=lambda: (time.sleep(0.1), print("a thread")), daemon=False).start()
elif way == "ends":
    if rank == 0: raise ValueError("its text")
    if rank == 1: sys.exit(3)
    if rank == 2: sys.exit("no data")
    if rank == 3: os.kill(os.getpid(), signal.SIGKILL)
    if rank == 4: os.kill(os.getpid(), signal.SIGINT)
    if rank == 5: os._exit(7)
elif way == "waits for ever":
    print(os.getpid())
    while True: time.sleep(100)
elif rank == 1:
    print("waits")
    open(sys.argv[2], "w").close()
    while True: time.sleep(100)
else:
    while not os.path.exists(sys.argv[2]): time.sleep(0.01)
    sys.exit(1)
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def run(script, size, way, word="a word", env=()):
    return ranks.run_ranks([sys.executable, script, way, str(word)], size, 120, dict(env))


def test_a_rank_has_its_own_words_variables_files_and_end(script):
    ended = run(script, 2, "place", env={"MINE": "set"})
    assert isinstance(ranks.start, fork_server.Starter) and [rank.code for rank in ended] == [0, 0]
    lines = [rank.output.splitlines() for rank in ended]
    for rank in lines:
        assert rank[0] == f"__main__ True ['place', 'a word'] {os.getcwd()} set False"
        assert rank.pop(1) == "True", "it is not forked"
        assert rank[1].startswith("True True ") and rank[3:] == ["a thread", "at exit"]
    one, other = (rank[2].split() for rank in lines)
    assert all(mine != its for mine, its in zip(one[:3], other[:3])), "one random sequence, order of sets, or process"
    assert one[3] == other[3] == "True"


def test_the_exit_status_and_the_text_are_those_of_an_interpreter(script, monkeypatch):
    monkeypatch.setattr(ranks, "GRACE_S", 60)
    ended = run(script, 6, "ends")
    assert [rank.code for rank in ended] == [1, 3, 1, -signal.SIGKILL, -signal.SIGINT, 7]
    error = ended[0].output.splitlines()
    assert error[0].startswith("Traceback") and error[-1] == "ValueError: its text"
    assert ended[2].output == "no data\n" and "KeyboardInterrupt" in ended[4].output


def test_a_rank_that_does_not_end_is_killed(script, tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "GRACE_S", 0.1)
    first, second = run(script, 2, "waits", tmp_path / "waits")
    assert (first.code, second.code, second.output) == (1, None, "waits\n")


@pytest.mark.parametrize(
    "command, env",
    [
        ([sys.executable, "-c", "import torch"], {}),
        (["ip", "netns", "exec", "a", sys.executable, ranks.__file__], {}),
        ([sys.executable, ranks.__file__], {}),  # does not import torch
        ([sys.executable, "SCRIPT"], {"LD_PRELOAD": "a.so"}),
        ([sys.executable, "SCRIPT"], {"HORO_DEADLOCK_MS": "2000"}),
    ],
)
def test_other_commands_start_a_process(script, command, env):
    started = []
    start = fork_server.Starter(lambda *words: started.append(words))
    words = [script if word == "SCRIPT" else word for word in command]
    start(words, env, None)
    assert started == [(words, env, None)]


def start_by_horo_run(script, size, *words, options=("--min-np", "1")):
    """A job whose ranks a stand-in for the interpreter starts."""
    env = clean_environment({"OMP_NUM_THREADS": "1"})
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [HORO, "run", "-n", str(size), *options, ranks.start.python(), script, *map(str, words)]
    return subprocess.Popen(command, env=env, **pipes)


def test_a_rank_of_a_launcher_has_a_group_and_its_words_variables_and_files(script):
    with start_by_horo_run(script, 2, "place", "a word") as job:
        output, errors = job.communicate(timeout=120)
    assert job.returncode == 0, output + errors
    for rank in range(2):
        lines = [line.removeprefix(f"[{rank}] ") for line in output.splitlines() if line.startswith(f"[{rank}]")]
        assert lines[0] == f"__main__ True ['place', 'a word'] {os.getcwd()} None False"
        assert lines.pop(1) == "True", "it is not forked"
        assert lines[1].startswith("True True ") and lines[3:] == ["a thread", "at exit"]
        assert lines[2].endswith(" False"), "the group of its parent"


def test_a_launcher_sees_the_ends_of_its_ranks(script):
    with start_by_horo_run(script, 6, "ends") as job:
        _, errors = job.communicate(timeout=120)
    for rank, how in ((1, "exit code 3"), (3, "signal 9 (SIGKILL)"), (5, "exit code 7")):
        assert f"({how})" in next(line for line in errors.splitlines() if f"rank {rank} " in line), errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_a_launcher_ends_its_ranks(script, tmp_path, number):
    with start_by_horo_run(script, 2, "waits for ever", options=()) as job:
        pids = [int(job.stdout.readline().split()[-1]) for _ in range(2)]
        job.send_signal(number)
        job.communicate(timeout=120)
    deadline = time.monotonic() + 60
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < deadline


def test_a_stand_in_is_the_interpreter_where_no_rank_is_forked(tmp_path):
    python = ranks.start.python()
    (tmp_path / "script.py").write_text("import sys; print(sys.argv[1:], sys.executable); sys.exit(5)")
    done = subprocess.run([python, tmp_path / "script.py", "a word"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (5, f"['a word'] {sys.executable}\n"), done.stderr
    assert subprocess.run([python, "-c", "print(3)"], capture_output=True, text=True).stdout == "3\n"
