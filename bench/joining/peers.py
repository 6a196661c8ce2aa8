"""Jobs of horo and of torchft in turns: one of three ranks is killed, and another process joins in its place."""

import collections
import contextlib
import importlib.metadata
import itertools
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import typing

HERE = pathlib.Path(__file__).resolve().parent
RANKS, LEAST = 3, 2
BEFORE, AFTER, REST = 20, 5, 15  # steps before a death; of the window; after a join before the next death
AGAIN = 10  # steps of the survivors of a torchft job before another process is started
WAIT_S, LOOK_S = 90, 0.1

Log = collections.namedtuple("Log", "marks steps")  # {name: ns}, [(ns, whether it counts, size)]


class Join(typing.NamedTuple):
    """What a join has shown, in us. slowest: step of the others. start: from the start of the process to its first
    round that counts. model: the same from the time at which its model was there. step: the median of a step."""

    slowest: float
    start: float
    model: float
    step: float


def read(path):
    """The Log of a rank."""
    marks, steps = {}, []
    for line in path.read_text().rpartition("\n")[0].splitlines():
        kind, *words = line.split()
        if kind == "mark":
            marks[words[0]] = int(words[1])
        else:
            steps.append((int(words[0]), words[1] == "1", int(words[2])))
    return Log(marks, steps)


def first_round(log):
    """The time at which the first round that counts has ended."""
    return next(at for at, counts, _ in log.steps if counts)


def measured(new, others):
    """The Join of the rank with the Log new."""
    first = first_round(new)
    slowest, usual = 0, []
    for log in others:
        ends = [at for at, _, _ in log.steps]
        last = [at for at in ends if at > first][AFTER - 1]
        steps = list(itertools.pairwise(ends))
        slowest = max(slowest, *(b - a for a, b in steps if b > new.marks["ready"] and b <= last))
        usual += [b - a for a, b in steps if a > last]
    middle = sorted(usual)[len(usual) // 2]
    return Join(slowest / 1e3, (first - new.marks["start"]) / 1e3, (first - new.marks["model"]) / 1e3, middle / 1e3)


class JoiningJob:
    """Ranks that write logs into a folder."""

    replaces = True  # the launcher does it

    def __init__(self, folder, options):
        self.folder, self.options = pathlib.Path(folder), options
        self.output = open(self.folder / "output", "wb")
        self._processes = []

    def _start(self, command, **variables):
        quiet = {"stdin": subprocess.DEVNULL, "stdout": self.output, "stderr": subprocess.STDOUT}
        env = os.environ | {"OMP_NUM_THREADS": "1"} | variables
        self._processes.append(subprocess.Popen([str(word) for word in command], env=env, **quiet))
        return self._processes[-1]

    def logs(self):
        """{pid: Log} of the processes that run, in the order of their starts."""
        found = {int(path.stem): read(path) for path in self.folder.glob("*.log")}
        alive = {pid: log for pid, log in found.items() if is_running(pid) and "start" in log.marks}
        return dict(sorted(alive.items(), key=lambda one: one[1].marks["start"]))

    def wait_for(self, what, condition):
        """Waits until condition(logs()); returns the logs."""
        end = time.monotonic() + WAIT_S
        while not condition(logs := self.logs()):
            if time.monotonic() > end:
                tail = (self.folder / "output").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{type(self).__name__}: not in {WAIT_S} s: {what}\n{tail}")
            time.sleep(LOOK_S)
        return logs

    def end(self):
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in self.logs():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.output.close()


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class HoroJob(JoiningJob):
    def begin(self):
        command = [self.options.horo, "run", "-n", RANKS, "--min-np", LEAST, "--restarts", 100, "--grace", 0]
        self._start([*command, sys.executable, HERE / "rank_of_horo.py", self.folder, self.options.batch])


class TorchftJob(JoiningJob):
    """The lighthouse has the options of torchft's README, but for the number of replicas."""

    replaces = False

    def begin(self):
        program = pathlib.Path(self.options.torchft).parent / "torchft_lighthouse"
        quorum = ["--min_replicas", LEAST, "--quorum_tick_ms", 100, "--join_timeout_ms", 10000]
        port = free_port()
        self._start([program, "--bind", f"127.0.0.1:{port}", *quorum])
        self._lighthouse = f"http://127.0.0.1:{port}"
        self._groups = {}
        for group in range(RANKS):
            self.start_group(group)

    def start_group(self, group):
        words = [self.folder, self.options.batch, group, RANKS, LEAST]
        command = [self.options.torchft, HERE / "rank_of_torchft.py", *words]
        self._groups[self._start(command, TORCHFT_LIGHTHOUSE=self._lighthouse).pid] = group

    def replace(self, pid):
        self.start_group(self._groups[pid])


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def counted(log, size, since=0):
    """The number of steps after `since` that count, on so many ranks."""
    return sum(counts and at > since and of == size for at, counts, of in log.steps)


def all_train(logs, steps):
    return len(logs) == RANKS and all(counted(log, RANKS) >= steps for log in logs.values())


def joins(kind, options, count):
    """Yields a Join for each of so many deaths in one job."""
    with tempfile.TemporaryDirectory(prefix="horo_join_") as folder:
        job = kind(folder, options)
        try:
            job.begin()
            logs = job.wait_for(f"{BEFORE} steps of {RANKS} ranks", lambda logs: all_train(logs, BEFORE))
            for number in range(count):
                victim = list(logs)[number % RANKS]
                os.kill(victim, signal.SIGKILL)
                dead = time.monotonic_ns()
                others = logs.keys() - {victim}
                if not job.replaces:
                    job.wait_for(
                        "steps of the survivors",
                        lambda logs: all(pid in logs and counted(logs[pid], LEAST, dead) >= AGAIN for pid in others),
                    )
                    job.replace(victim)
                logs = job.wait_for("a join", lambda logs: victim not in logs and all_train(logs, REST))
                (new,) = logs.keys() - others
                yield measured(logs[new], [logs[pid] for pid in others])
        finally:
            job.end()


def torch_version():
    return importlib.metadata.version("torch")


def versions_of(python):
    """The versions of torchft and torch that this interpreter has; None: it has no torchft."""
    if not pathlib.Path(python).exists():
        return None
    code = "import importlib.metadata as m; print(m.version('torchft'), m.version('torch'))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    found = re.fullmatch(r"(\S+) (\S+)\n", done.stdout)
    return {"torchft": found[1], "torch of torchft": found[2]} if found else None
