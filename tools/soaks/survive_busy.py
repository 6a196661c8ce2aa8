"""tools/soak survive --busy: jobs of 16 ranks one after the other, beside a compiler for each core (or a loop, if there
is none). No rank is given up, and no epoch ends.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import time

from . import survivors

RANKS = 16
SOURCE = survivors.ROOT / "horo/session.cc"
LONGEST_JOB_S = 1800
EVENT = re.compile(r"^horo run: (?!rank \d+ left).*", re.M)  # a job in good order has none


def add_arguments(parser):
    parser.add_argument("--busy", type=float, metavar="SECONDS", help="only busy ranks, of which none may be given up")


def burner():
    """A command that uses a core for a while."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler:
        return [compiler, "-std=c++20", "-O2", f"-I{survivors.ROOT}", "-c", str(SOURCE), "-o", os.devnull]
    return [sys.executable, "-c", "for _ in range(10**8): pass"]


class Burners:
    """Runs a command on each core, again and again."""

    def __init__(self, command):
        self.command, self.running, self.runs = command, [], 0

    def keep(self):
        """Starts those anew that have ended."""
        self.running = [one for one in self.running if one.poll() is None]
        while len(self.running) < len(os.sched_getaffinity(0)):
            self.running.append(subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            self.runs += 1

    def end(self):
        for one in self.running:
            one.kill()
            one.wait()


def run_all(options):
    burners, wrong, jobs, longest_ms, results = Burners(burner()), [], 0, 0, 0
    end = time.monotonic() + options.busy
    try:
        while time.monotonic() < end:
            job = survivors.Job("busy", RANKS, "mixed", options.steps, options.seed + jobs, "")
            outcome = run(job, options, burners)
            jobs += 1
            lines = survivors.LINE.findall(outcome.text)
            longest_ms = max([longest_ms, *(int(line[-1]) for line in lines)])
            results += sum(int(line[2]) for line in lines)
            wrong += faults(job, outcome, options)
            if not options.json:
                print(f"{jobs} jobs, longest step {longest_ms} ms", flush=True)
    finally:
        burners.end()
    return {
        "jobs": jobs,
        "ranks": RANKS,
        "results": results,
        "longest_step_ms": longest_ms,
        "beside": os.path.basename(burners.command[0]),
        "commands_beside": burners.runs,
        "wrong": wrong,
    }


def run(job, options, burners):
    """The outcome; keeps the burners running meanwhile."""
    burners.keep()
    done = []
    thread = threading.Thread(target=lambda: done.append(survivors.run(job, options, None, LONGEST_JOB_S)))
    thread.start()
    while thread.is_alive():
        burners.keep()
        thread.join(0.1)
    return done[0]


def faults(job, outcome, options):
    """What the judge of the other jobs finds, but for the times, and events."""
    allowed = survivors.faults(job, outcome, patient(options))
    return allowed + [f"a rank was given up: {text}" for text in EVENT.findall(outcome.text)]


def patient(options):
    patient = type(options)(**vars(options))
    patient.limit = patient.step_limit = LONGEST_JOB_S
    return patient


def show(summary):
    print(
        f"{summary['jobs']} jobs of {summary['ranks']} ranks, {summary['results']} results, longest step "
        f"{summary['longest_step_ms']} ms; {summary['commands_beside']} runs of {summary['beside']} beside them"
    )
