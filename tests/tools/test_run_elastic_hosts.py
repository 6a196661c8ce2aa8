"""horo run --min-np --nnodes: elastic jobs on several hosts, with their agents and their rendezvous. Both hosts are
this one, and stand-ins of ranks speak the socket of their guard."""

import contextlib
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import time

import pytest
from elastic_member import MEMBER
from launching import DEADLINE_S, HORO, clean_environment

WAIT = """
import time
rank = member.id
def wait_for(name):
    while not os.path.exists(os.path.join(os.environ['TEST_FOLDER'], name)):
        time.sleep(0.01)
"""
LEAVE = "print(*member.view()[0], flush=True)\nmember.leave()"


def free_port():
    """A port that is free, as is the next one."""
    while True:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port + 1))
                return port


def processes():
    """The command of each process."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                found[int(entry.name)] = (entry / "cmdline").read_bytes().decode().split("\0")
    return found


class Job:
    """Two hosts of two ranks. The program is the source of a stand-in, or a command."""

    def __init__(self, folder, program, options=(), least=1, per_host=2):
        self.folder, self.program, self.options, self.least = folder, program, list(options), least
        self.per_host = per_host
        self.key = folder / "key"
        self.key.write_bytes(secrets.token_bytes(32))
        self.key.chmod(0o600)
        self.addr = f"127.0.0.1:{free_port()}"
        self.address = "127.0.0.1:" + str(int(self.addr.split(":")[1]) + 1)  # of the rendezvous
        self.hosts, self.others = {}, []

    def start(self, host, options=(), key=None):
        command = [HORO, "run", "-n", str(self.per_host), "--nnodes", "2", "--node-rank", str(host)]
        command += ["--addr", self.addr, "--key-file", str(key or self.key), "--min-np", str(self.least)]
        command += [*self.options, *options]
        is_source = isinstance(self.program, str)
        command += ["python3", "-c", MEMBER + WAIT + self.program] if is_source else self.program
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        environment = clean_environment() | {"TEST_FOLDER": str(self.folder)}
        self.hosts[host] = subprocess.Popen(command, env=environment, **pipes)
        return self.hosts[host]

    def start_rendezvous(self):
        command = [HORO, "rendezvous", "--addr", self.address, "--key-file", str(self.key)]
        command += ["--folder", str(self.folder / "rendezvous")]
        self.others.append(subprocess.Popen(command, env=clean_environment(), stderr=subprocess.PIPE, text=True))
        return self.others[-1]

    def let(self, name):
        (self.folder / name).touch()

    def service(self, name, host=None):
        """The pid of its agent, or of its rendezvous, once it runs."""
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            for pid, words in processes().items():
                is_it = words[1:2] == [name] and self.address in words
                if is_it and (host is None or words[words.index("--host") + 1] == str(host)):
                    return pid
            time.sleep(0.01)
        raise AssertionError(f"no {name}")

    def ended(self, host):
        """The exit code, the lines of the ranks and those of horo run."""
        output, errors = self.hosts[host].communicate(timeout=DEADLINE_S)
        return self.hosts[host].returncode, output.splitlines(), errors

    def line(self, host, text):
        """Waits for a line of horo run with this text."""
        for line in self.hosts[host].stderr:
            if text in line:
                return line
        raise AssertionError(f"no line with {text!r}")

    def start_both(self):
        """Returns when both hosts have contact with the rendezvous."""
        for host in (0, 1):
            self.start(host, options=["-v"])
        for host in (0, 1):
            self.line(host, "contact with the rendezvous")


@pytest.fixture
def job(tmp_path):
    made = []

    def make(program, **options):
        made.append(Job(tmp_path, program, **options))
        return made[-1]

    yield make
    for process in [process for one in made for process in (*one.hosts.values(), *one.others)]:
        process.kill()
        process.communicate()


def expect_three_left(job, *hosts):
    """Rank 3 is lost; all others left with the same view."""
    for host in hosts:
        code, lines, errors = job.ended(host)
        assert (code, len(lines)) == (0, 2 - host), errors
        assert all(line.endswith("0 1 2") for line in lines), lines
        assert "rank 3 died (signal 9 (SIGKILL)); epoch 1 has ranks 0, 1, 2" in errors


def test_ranks_that_all_leave_end_all_hosts_without_a_word(job):
    job = job("member.leave()")
    job.start(0), job.start(1)
    assert [job.ended(host) for host in (0, 1)] == [(0, [], "")] * 2


def test_all_hosts_get_one_view_with_one_secret_when_a_rank_dies(job):
    job = job("if rank == 3: die()\nprint(*member.view(), flush=True)\nmember.leave()", least=2)
    job.start(0), job.start(1)
    views = set()
    for host in (0, 1):
        code, lines, errors = job.ended(host)
        assert code == 0, errors
        assert "horo run: rank 3 died (signal 9 (SIGKILL)); epoch 1 has ranks 0, 1, 2\n" in errors
        views |= {re.sub(r"^\[\d\] ", "", line) for line in lines}
    assert len(views) == 1 and re.fullmatch(r"\[0, 1, 2\] [0-9a-f]{64} \{0: .*\}", views.pop())


def test_an_agent_that_dies_is_told_again_what_its_ranks_need(job):
    job = job("wait_for('die')\nif rank == 3: die()\n" + LEAVE)
    job.start_both()
    for host in (0, 1):
        os.kill(job.service("agent", host), signal.SIGKILL)
        job.line(host, "the agent of this host ended (signal 9 (SIGKILL)): it is started again")
    job.let("die")
    expect_three_left(job, 0, 1)


def test_a_rank_that_dies_while_the_rendezvous_is_stopped_parks_the_others(job):
    job = job("wait_for('die')\nif rank == 3: die()\n" + LEAVE)
    job.start_both()
    os.kill(job.service("rendezvous"), signal.SIGSTOP)
    job.let("die")
    time.sleep(0.5)
    assert job.hosts[0].poll() is None and job.hosts[1].poll() is None
    os.kill(job.service("rendezvous"), signal.SIGCONT)
    expect_three_left(job, 0, 1)


def test_a_rendezvous_that_dies_goes_on_in_the_next_term(job):
    job = job("wait_for('die')\nif rank == 3: die()\n" + LEAVE)
    job.start_both()
    for term in (2, 3):
        os.kill(job.service("rendezvous"), signal.SIGKILL)
        job.line(1, f"the rendezvous runs again, in term {term}")
    job.let("die")
    expect_three_left(job, 0, 1)


def test_the_other_hosts_go_on_when_host_0_is_lost_and_the_rendezvous_is_elsewhere(job):
    program = "print('ready', flush=True)\nif rank < 2: signal.pause()\n" + LEAVE
    job = job(program, options=["--evict-after", "0.5"])
    job.options += ["--rendezvous", job.address]
    rendezvous = job.start_rendezvous()
    job.start_both()
    assert job.hosts[1].stdout.readline().endswith("ready\n")
    agent = job.service("agent", 0)
    job.hosts[0].kill()
    code, lines, errors = job.ended(1)
    assert code == 0 and [line[4:] for line in lines if "ready" not in line] == ["2 3"] * 2, errors
    assert "rank 0 is evicted: it did not answer for 500 ms (host 0 is silent)" in errors
    deadline = time.monotonic() + DEADLINE_S
    while agent in processes() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert agent not in processes()
    assert rendezvous.poll() is None
    rendezvous.terminate()
    assert rendezvous.wait(DEADLINE_S) == 0


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def silence(job, host, least_rank):
    """Stops the agent of the host, and the guard, which would start another one, until the ranks of the host are
    evicted. The ranks of the other host run until let("end")."""
    job.start_both()
    agent = job.service("agent", host)
    stopped = [parent_of(agent), agent]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    job.line(1 - host, f"rank {least_rank} is evicted")
    for pid in reversed(stopped):
        os.kill(pid, signal.SIGCONT)


EVICTED_OR_WAIT = """
if rank in evicted:
    kind, text = FREEZE, b''
    while kind == FREEZE:
        kind, text = member.receive(FREEZE, EVICTED)
    print(text[4:].decode(), flush=True)
    member.leave(True, b"PeerLost")
    sys.exit(1)
print(*member.view()[0], flush=True)
wait_for("end")
member.leave()
"""


def test_an_evicted_host_tells_its_ranks_and_ends_with_one_line(job):
    job = job("evicted = 2, 3" + EVICTED_OR_WAIT, options=["--evict-after", "0.5"])
    silence(job, 1, least_rank=2)
    why = "host 1 was evicted: it did not answer for 500 ms (host 1 is silent), and the other ranks went on without it"
    code, lines, errors = job.ended(1)
    assert code == 1 and sorted(lines) == [f"[2] {why}", f"[3] {why}"], errors
    assert [line for line in errors.splitlines() if ": process " not in line] == [f"horo run: {why}"]
    job.let("end")
    code, lines, errors = job.ended(0)
    assert code == 0 and sorted(lines) == ["[0] 0 1", "[1] 0 1"], errors


def test_host_0_serves_the_others_after_its_ranks_were_evicted(job):
    job = job("evicted = 0, 1" + EVICTED_OR_WAIT, options=["--evict-after", "0.5"])
    silence(job, 0, least_rank=0)
    for _ in range(2):
        assert "was evicted: it did not answer for 500 ms" in job.hosts[0].stdout.readline()
    job.line(0, "it serves the others")
    with pytest.raises(subprocess.TimeoutExpired):  # longer than the 5 s that an evicted rank has
        job.hosts[0].wait(3)
    job.let("end")
    code, lines, errors = job.ended(1)
    assert code == 0 and sorted(lines) == ["[2] 2 3", "[3] 2 3"], errors
    assert "did not end" not in job.ended(0)[2]


def test_a_job_can_begin_when_the_one_before_was_interrupted_on_all_hosts(job):
    again = "os.path.exists(os.path.join(os.environ['TEST_FOLDER'], 'again'))"
    job = job(f"print('ready', flush=True)\nif not {again}: signal.pause()\nmember.leave()")
    job.options += ["--rendezvous", job.address]
    job.start_rendezvous()
    job.start_both()
    for host in (0, 1):
        assert [job.hosts[host].stdout.readline()[4:] for _ in range(2)] == ["ready\n"] * 2
    for host in (0, 1):
        job.hosts[host].send_signal(signal.SIGINT)
    for host in (0, 1):
        assert job.ended(host)[0] == 130
    job.let("again")
    job.start_both()
    for host in (0, 1):
        code, lines, errors = job.ended(host)
        assert code == 0 and len(lines) == 2, errors


def test_a_rendezvous_serves_one_job_after_the_other(job):
    job = job("if rank == 3: die()\n" + LEAVE)
    job.options += ["--rendezvous", job.address]
    job.start_rendezvous()
    for _ in range(2):
        job.start(0), job.start(1)
        expect_three_left(job, 0, 1)


def test_hosts_with_other_settings_or_another_key_are_refused(job, tmp_path):
    job = job("signal.pause()")
    job.start(0, options=["-v"])
    job.line(0, "contact with the rendezvous")
    job.start(1, options=["--park-timeout", "7"])
    code, _, errors = job.ended(1)
    assert code == 1 and "host 1 was started with another number of hosts or ranks, --min-np" in errors
    other = tmp_path / "other"
    other.write_bytes(secrets.token_bytes(32))
    other.chmod(0o600)
    job.start(1, key=other)
    assert "no contact with the rendezvous at " + job.address in job.line(1, "no contact")


def test_a_host_takes_part_once(job):
    job = job("signal.pause()")
    job.start_both()
    first = job.hosts[1]
    job.start(1)
    code, _, errors = job.ended(1)
    assert code == 1 and "another horo run has begun the job as host 1" in errors
    assert first.poll() is None
    first.kill()
    first.communicate()


def test_the_key_is_in_no_command_line_and_no_environment(job):
    job = job("signal.pause()")
    job.start(0), job.start(1)
    key = job.key.read_bytes()
    pids = [job.service("agent", 0), job.service("agent", 1), job.service("rendezvous")]
    for pid in pids:
        for name in ("cmdline", "environ"):
            text = pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
            assert key not in text and key.hex().encode() not in text.lower()
    for folder in pathlib.Path("/tmp").glob("horo-rendezvous-*"):
        with contextlib.suppress(FileNotFoundError):  # another job has ended
            assert folder.stat().st_mode & 0o77 == 0


@pytest.mark.parametrize(
    "least, options, text",
    [
        (5, [], "--min-np 5: expected 1 to the number of ranks at the start, 4"),
        (1, ["--rendezvous", "nowhere"], "--rendezvous=nowhere: expected host:port"),
    ],
)
def test_invalid_options_are_refused_with_the_remedy(job, least, options, text):
    job = job("pass", least=least, options=options)
    job.start(0)
    code, _, errors = job.ended(0)
    assert code == 2 and text in errors, errors


def test_the_death_of_a_rank_that_is_alone_on_its_host_is_seen_before_its_memory_is_freed(job):
    bench = [HORO, "bench", "elastic", "--steps=0", "--compute-ms=1", "--resident=512M", "--resident-rank=1"]
    job = job(bench, per_host=1, options=["-v"])
    job.start(0), job.start(1)
    pid = next(int(line.split()[-1]) for line in job.hosts[1].stdout if "pid 1" in line)
    os.kill(pid, signal.SIGKILL)
    assert f"rank 1: process {pid} is ending at" in job.line(1, f"rank 1: process {pid} ")
    assert "1 died (signal 9 (SIGKILL)); epoch 1 has rank 0" in job.line(0, "rank 1 died")
    job.line(0, "epoch 1 runs on its one member")
