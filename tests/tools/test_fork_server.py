"""Ranks that are forked from a process with torch are as processes of their own."""

import os
import signal
import sys

import fork_server
import pytest
import ranks

PROGRAM = """
import torch
import atexit, os, signal, sys, threading, time

rank = int(os.environ["HORO_RANK"])
way = sys.argv[1]
if way == "place":
    atexit.register(print, "at exit")
    print(__name__, __file__ == sys.argv[0], sys.argv[1:], os.getcwd(), os.environ.get("MINE"), "horo" in sys.modules)
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
