"""horo status: what it shows of running jobs, and that nothing that asks can harm them."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

import pytest
from elastic_member import MEMBER
from launching import DEADLINE_S, HORO, clean_environment, command, horo, pids_in, run

SIGNALLED = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"  # so that no signal comes too early
READY = "print(f'pid={os.getpid()}', flush=True)\n"
WAIT = "signal.sigwait([signal.SIGUSR1])\n"  # until Job.go()

TRAINING = """
import numpy
import horo
from horo import _default, _native
from horo._specs import Spec
horo.init()
session, step = _default.session(), 0
spec = Spec('gradient', _native.ALL_REDUCE, shape=(4,), stepwise=1, round_stream=5)
def train(steps):  # as an optimizer does, without torch, which takes seconds to import
    global step
    for step in range(step + 1, step + 1 + steps):
        data = numpy.ones(4, numpy.float32)
        session.begin_round(0, 5, step, 1)
        works = [session.submit(spec, data.ctypes.data, data.ctypes.data, data), session.commit(0, 5)]
        session.wait(works)
        session.release(works)
        session.step_end()
train(3)
"""


class Job:
    """A running job whose ranks have printed a line each."""

    def __init__(self, folder, ranks, program, options=(), env=()):
        self.env = {"XDG_RUNTIME_DIR": folder, **dict(env)}
        self.process = subprocess.Popen(
            command(ranks, SIGNALLED + program, options),
            env=clean_environment(self.env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        lines = sorted(self.process.stdout.readline() for _ in range(ranks))
        self.pids = [pids_in(line)[0] for line in lines]

    def status(self, *options):
        return horo("status", self.process.pid, *options, env=self.env)

    def state(self):
        """The document of this job."""
        done = self.status("--json")
        assert done.returncode == 0, done.stderr
        (job,) = json.loads(done.stdout)["jobs"]
        return job

    def states(self):
        return [member["state"] for member in self.state()["members"]]

    def wait_for(self, condition):
        end = time.monotonic() + 60
        while not condition(state := self.state()):
            assert time.monotonic() < end, state
        return state

    def go(self):
        self.process.send_signal(signal.SIGUSR1)

    def end(self):
        """Lets the ranks end; returns the exit code and the errors of the job."""
        self.go()
        _, errors = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, errors


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="horo") as made:
        yield made


@pytest.fixture
def start(folder):
    jobs = []

    def start_one(*arguments, **named):
        jobs.append(Job(folder, *arguments, **named))
        return jobs[-1]

    yield start_one
    for job in jobs:
        if job.process.poll() is None:
            job.process.kill()
        job.process.communicate(timeout=DEADLINE_S)


def elastic(program):
    return MEMBER + READY + program


def sockets(folder):
    return sorted(pathlib.Path(folder, "horo").glob("*.sock"))


def test_a_static_job_is_shown_until_it_ends(start, folder):
    job = start(2, READY + WAIT)
    state = job.state()
    assert state["process"] == job.process.pid and not state["elastic"] and state["min_np"] is None
    assert [member["pid"] for member in state["members"]] == job.pids
    assert job.states() == ["running", "running"] and state["story"] == []
    assert 0 < state["age_s"] < 60 and abs(state["started_s"] + state["age_s"] - time.time()) < 60
    text = job.status().stdout
    assert f"job {state['job']} (horo run, process {job.process.pid}): " in text and "static, 2 ranks" in text
    assert horo("status", state["job"], env=job.env).stdout.splitlines()[0] == text.splitlines()[0]

    os.kill(job.pids[1], signal.SIGSTOP)
    job.wait_for(lambda state: state["members"][1]["state"] == "stopped")
    os.kill(job.pids[1], signal.SIGCONT)
    job.wait_for(lambda state: state["members"][1]["state"] == "running")
    assert job.end() == (0, "")
    done = job.status()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"horo status: no job {job.process.pid} of this user runs on this host\n"
    assert sockets(folder) == []


def test_the_end_of_a_rank_is_shown(start):
    job = start(3, READY + "if rank == 1: sys.exit(3)\nif rank == 2: sys.exit()\n" + WAIT)
    state = job.wait_for(lambda state: [one["state"] for one in state["members"]] == ["running", "died", "left"])
    assert [one["text"] for one in state["members"]] == ["", "exit code 3", "exit code 0"]


def test_an_elastic_job_trains_on_after_a_kill(start):
    job = start(3, TRAINING + READY + WAIT + "train(4)\n" + READY + WAIT, ["--min-np", "1"])
    before = job.state()
    assert before["elastic"] and (before["min_np"], before["epoch"]) == (1, 0)
    for member in before["members"]:
        figures = member["figures"]
        assert member["state"] == "running" and figures["answered"] and figures["age_s"] < 10
        del figures["answered"], figures["age_s"]
        assert figures == {"rounds": 3, "collectives": 3, "in_flight": 0, "oldest": ""}

    os.kill(job.pids[1], signal.SIGKILL)
    job.wait_for(lambda state: state["epoch"] == 1)
    job.go()
    assert job.process.stdout.readline() and job.process.stdout.readline()
    after = job.state()
    assert [member["rank"] for member in after["members"]] == [0, None, 1]
    assert [member["state"] for member in after["members"]] == ["running", "died", "running"]
    assert after["members"][1]["text"] == "signal 9 (SIGKILL)"
    assert after["story"][0]["text"] == "rank 1 died (signal 9 (SIGKILL)); epoch 1 has ranks 0, 2 as ranks 0, 1"
    assert before["started_s"] < after["story"][0]["time_s"] < time.time()
    assert [member["figures"]["rounds"] for member in after["members"]] == [7, 3, 7]
    assert [member["figures"]["collectives"] for member in after["members"]] == [7, 3, 7]
    text = job.status().stdout
    assert "elastic, 2 of 3 ranks, --min-np 1, epoch 1" in text and "epoch 1 has ranks 0, 2" in text
    assert job.end()[0] == 0


def test_a_stopped_member_keeps_its_last_figures(start):
    program = """
import numpy
import horo.numpy as hvd
hvd.init()
hvd.allreduce(numpy.ones(3))
hvd.barrier()
if rank == 0:
    waits = hvd.allreduce_async(numpy.ones(3), name='gradient')
"""
    job = start(2, program + READY + WAIT + "hvd.shutdown()", ["--min-np", "1", "--evict-after", "300"])
    state = job.wait_for(lambda state: state["members"][0]["figures"]["in_flight"] == 1)
    assert state["members"][0]["figures"]["oldest"] == "gradient"
    os.kill(job.pids[1], signal.SIGSTOP)
    job.wait_for(lambda state: state["members"][1]["state"] == "stopped")
    begin = time.monotonic()
    first, second = (member["figures"] for member in job.state()["members"])
    assert time.monotonic() - begin < 10
    assert first["answered"] and not second["answered"] and second["collectives"] == 2
    text = job.status().stdout
    assert "oldest in flight: gradient" in text and "figures of " in text
    os.kill(job.pids[1], signal.SIGCONT)
    job.wait_for(lambda state: state["members"][1]["figures"]["answered"])


def test_the_states_of_members(start):
    program = r"""
if rank == 1: die()
if rank == 2: member.leave()
if rank == 3: member.leave(True, b'\x1b[31mValueError: no')
if rank == 5: member.frozen({})
if rank == 6: os.kill(os.getpid(), signal.SIGSTOP)
"""
    starting = f"if rank == 4:\n    print('pid=0', flush=True)\n    {WAIT}"
    job = start(7, starting + elastic(program + WAIT), ["--min-np", "1", "--evict-after", "300"])
    words = ["running", "died", "left", "failed", "starting", "frozen", "stopped"]
    members = job.wait_for(lambda state: [one["state"] for one in state["members"]] == words)["members"]
    texts = ["", "signal 9 (SIGKILL)", "", "\\x1b[31mValueError: no", "", "", ""]
    assert [one["text"] for one in members] == texts
    assert [one["rank"] for one in members] == [0, None, None, None, 4, 5, 6]


def test_a_parked_job_is_shown(start):
    program = """
if rank == 1: os.kill(os.getpid(), signal.SIGSTOP)
member.frozen({})
member.receive(PARKED, ASK)  # horo status asks
"""
    job = start(2, elastic(program + WAIT), ["--min-np", "2", "--evict-after", "0.3"])
    state = job.wait_for(lambda state: state["parked"])
    assert [one["state"] for one in state["members"]] == ["parked", "stopped"]
    assert state["members"][0]["rank"] == 0 and state["epoch"] == 0
    text = "rank 1 does not answer; without it 1 is left, fewer than --min-np 2: parked for up to 60 s"
    assert text in state["story"][-1]["text"]
    assert ", parked" in job.status().stdout


def test_a_member_that_does_not_answer_is_asked_once(start):
    job = start(
        1,
        elastic(
            WAIT + "member.receive(ASK)\nmember.socket.setblocking(False)\n"
            "try: print(member.receive(ASK))\nexcept BlockingIOError: member.leave()"
        ),
        ["--min-np", "1"],
    )
    for _ in range(3):
        (member,) = job.state()["members"]
        assert member["state"] == "running" and member["figures"] is None
    assert job.end() == (0, "")


def test_a_report_is_the_answer(start):
    program = r"""
member.receive(ASK)
member.send(REPORT, struct.pack('<IQQQI', 0, 7, 9, 2, 7) + b'\x1b[31m\xc3\xbc')
"""
    job = start(1, elastic(program + WAIT + "member.leave()"), ["--min-np", "1"])
    figures = job.state()["members"][0]["figures"]
    assert figures.pop("age_s") < 10
    assert figures == {"answered": True, "rounds": 7, "collectives": 9, "in_flight": 2, "oldest": "\\x1b[31mü"}
    assert job.end() == (0, "")


def test_a_member_with_a_malformed_report_is_killed(start):
    job = start(1, elastic(WAIT + "member.send(REPORT, b'12')\nsignal.pause()"), ["--min-np", "1"])
    job.go()
    _, errors = job.process.communicate(timeout=DEADLINE_S)
    assert "horo run: rank 0 is killed: " in errors


def test_the_document_has_these_keys(start):
    job = start(
        1, elastic("member.receive(ASK)\nmember.send(REPORT, bytes(32))\n" + WAIT + "member.leave()"), ["--min-np", "1"]
    )
    whole = json.loads(job.status("--json").stdout)
    assert list(whole) == ["schema", "jobs"] and whole["schema"] == 1
    (state,) = whole["jobs"]
    keys = "schema job process title command started_s age_s ranks size elastic min_np slots epoch parked members"
    assert list(state) == [*keys.split(), "checkpoint", "late", "story_dropped", "story"]
    assert state["title"] == "horo run" and state["command"][1] == "-c" and state["job"] != state["process"]
    (member,) = state["members"]
    assert list(member) == ["id", "rank", "pid", "state", "text", "figures", "steps"]
    assert list(member["figures"]) == ["answered", "age_s", "rounds", "collectives", "in_flight", "oldest"]


def test_two_jobs_are_listed(start):
    one, two = start(1, READY + WAIT), start(2, READY + WAIT, ["--verbose"])
    listed = horo("status", env=one.env)
    assert listed.returncode == 0 and "job  " in listed.stdout
    found = {job["process"]: job for job in json.loads(horo("status", "--json", env=one.env).stdout)["jobs"]}
    for job, ranks in ((one, "static, 1 rank "), (two, "static, 2 ranks ")):
        number = found[job.process.pid]["job"]
        line = next(line for line in listed.stdout.splitlines() if line.split()[0] == str(number))
        assert ranks in line
    lines = [line["text"] for line in found[two.process.pid]["story"]]
    assert lines[0] == f"job {found[two.process.pid]['job']}: horo status shows its state"
    assert lines[1].startswith("rank 0: process ")


def test_the_socket_of_a_killed_guard_is_removed(start, folder):
    job = start(1, READY + WAIT)
    os.kill(job.state()["job"], signal.SIGKILL)
    job.process.communicate(timeout=DEADLINE_S)
    assert len(sockets(folder)) == 1
    assert job.status().returncode == 1
    assert sockets(folder) == []


def test_clients_that_say_nothing_do_not_harm_the_job(start, folder):
    job = start(2, READY + WAIT)
    with contextlib.ExitStack() as ends:
        for text in [b"", b"", b"status", b"", b"GET /\r\n", b"\0" * 1000, b"status 1\n"] * 3:
            end = ends.enter_context(socket.socket(socket.AF_UNIX))
            end.connect(str(sockets(folder)[0]))
            with contextlib.suppress(BrokenPipeError):
                end.send(text)
        assert job.states() == ["running", "running"]
        begin = time.monotonic()
        assert job.end() == (0, "")
        assert time.monotonic() - begin < 10


def test_a_folder_that_is_not_safe_is_not_used(folder, start):
    elsewhere = pathlib.Path(folder, "elsewhere")
    elsewhere.mkdir(mode=0o700)
    pathlib.Path(folder, "horo").symlink_to(elsewhere)
    job = start(1, READY + WAIT)
    assert list(elsewhere.iterdir()) == []
    assert job.states() == ["running"]  # by the folder in /tmp
    assert job.end() == (0, "")


def test_watch_ends_with_the_job(start):
    job = start(1, READY + WAIT)
    number = job.state()["job"]
    words = [HORO, "status", str(job.process.pid), "--watch", "0.1"]
    watch = subprocess.Popen(words, env=clean_environment(job.env), stdout=subprocess.PIPE, text=True)
    first = f"job {number} (horo run, process {job.process.pid}): "
    seen = 0
    while seen < 2:
        seen += watch.stdout.readline().startswith(first)
    assert job.end() == (0, "")
    rest, _ = watch.communicate(timeout=DEADLINE_S)
    assert watch.returncode == 0 and rest.endswith(f"job {number} has ended\n")


def test_progress_is_a_line_each_so_many_seconds():
    step = "horo.allreduce(numpy.ones(4), name='gradient')\n    horo.step_end()\n"
    program = f"import numpy, horo.numpy as horo\nhoro.init()\nfor _ in range(3):\n    {step}time.sleep(0.6)\n"
    done = run(2, program, options=("--progress", "0.2"))
    lines = [line for line in done.stderr.splitlines() if line.startswith("horo run: step 2: ")]
    assert done.returncode == 0 and lines and all(line.endswith(" steps/s, 2 ranks") for line in lines), done.stderr


def test_wrong_arguments_are_refused():
    for words in (["x"], ["1", "2"], ["--watch", "0"], ["--watch", "1", "--often"], ["-5"]):
        assert horo("status", *words).returncode == 2, words
    assert horo("status", 1).returncode == 1
    nothing = horo("status", 1, "--json")
    assert nothing.returncode == 1 and json.loads(nothing.stdout) == {"schema": 1, "jobs": []}
