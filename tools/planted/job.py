"""A job of planted/rank.py under horo run, and what horo says of it."""

import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BOARD = 128  # steps of a verdict: StepBoard::kLast
LEAD = 12  # steps before those
DEADLINE_S = 180


def executable():
    places = [os.environ.get("HORO_EXE"), ROOT / ".venv/bin/horo", ROOT / "build/release/tools/horo/horo"]
    found = next((str(place) for place in places if place and shutil.which(str(place))), None)
    return found or sys.exit("step_checks: no horo executable: build it, or set HORO_EXE")


class Window:
    """The last steps of a window: by id the records and the delays in them, and the sentence of `horo status`."""

    def __init__(self, by_id, late):
        self.by_id, self.late = by_id, late

    def records(self, rank):
        return [row["record"] for row in self.by_id[rank]]

    def planted(self, rank, place):
        """Of the steps with this delay, in milliseconds, the median."""
        times = [row["planted"][place] / 1e6 for row in self.by_id[rank] if place in row["planted"]]
        return statistics.median(times) if times else 0.0

    def bar(self, rank, bar):
        """Milliseconds of a step, the median."""
        return statistics.median(record["bars"][bar] or 0 for record in self.records(rank)) / 1e6

    def busy(self, exempt=()):
        """The largest share of a rank's time in which its training thread waited for a core."""
        shares = []
        for rank in self.by_id.keys() - set(exempt):
            records = self.records(rank)
            waited = sum(record["run_queue"] or 0 for record in records)
            shares.append(waited / sum(record["time"] for record in records))
        return max(shares)


class PlantedJob:
    """Ranks that train in windows. A context manager."""

    def __init__(self, folder, compute_ms, ranks=4, options=(), arguments=()):
        self.folder, self.ranks = pathlib.Path(folder), ranks
        program = [sys.executable, str(ROOT / "tools/planted/rank.py"), str(self.folder), str(compute_ms), *arguments]
        command = [executable(), "run", "-n", str(ranks), "--bind-to", "none", *options, *program]
        self.errors = open(self.folder / "errors.txt", "w+")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors, "text": True}
        self.process = subprocess.Popen(command, **pipes)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.process.terminate()
        self.process.stdin.close()
        self.process.wait(DEADLINE_S)
        self.process.stdout.close()
        self.errors.close()

    def said(self):
        self.errors.flush()
        return (self.folder / "errors.txt").read_text()

    def pid(self, rank):
        path = self.folder / f"pid{rank}"
        end = time.monotonic() + DEADLINE_S
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.05)
        return int(path.read_text())

    def window(self, name, steps=BOARD + LEAD):
        self.process.stdin.write(json.dumps([name, steps]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if "done" not in line:
            raise RuntimeError(f"the ranks have ended in the window {name!r}:\n{self.said()}")
        by_id = {}
        for rank in range(self.ranks):
            path = self.folder / f"rank{rank}.json"
            if path.exists():
                rows = json.loads(path.read_text())
                by_id[rank] = [row for row in rows if row["record"]][-BOARD:]  # the first round begins the first step
                path.unlink()
        return Window(by_id, self.status()["late"])

    def status(self):
        command = [executable(), "status", "--json", str(self.process.pid)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
        return json.loads(done.stdout)["jobs"][0]


class Stops:
    """Stops a process for 30 ms at random while the context lasts."""

    def __init__(self, pid, seconds=0.03, every=0.35):
        self.pid, self.seconds, self.every, self.lengths = pid, seconds, every, []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._over.wait(self.every * (0.5 + random.random())):
            begin = time.monotonic()
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(self.seconds)
            os.kill(self.pid, signal.SIGCONT)
            self.lengths.append(1000 * (time.monotonic() - begin))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()


class BusyCore:
    """A process that computes on the core of the window "core" while the context lasts."""

    def __enter__(self):
        core = max(os.sched_getaffinity(0))
        code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
        self._process = subprocess.Popen([sys.executable, "-c", code])
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
