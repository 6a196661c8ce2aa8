"""tools/soak survive --digits: examples/digits.py on two hosts of two ranks, of which a rank, an agent, the rendezvous
(for a minute), host 1, host 0, or one after the other are lost. The ranks that are left end with one model. Without
names of cases all of them run.
"""

import collections
import os
import re
import signal
import sys
import time

import hosts

from . import on_hosts, survivors

WORKER = str(survivors.ROOT / "tools/soaks/survive_digits_worker.py")
MINUTE_S = 60
LIMIT_S = 300
START_S = 120  # of Python and torch beside other processes

# events: [(round, what, which)]. left: the ranks that end. pause_ms: after each round, so that an outage ends first.
Case = collections.namedtuple("Case", "place events left pause_ms", defaults=(0,))
CASES = {
    "rank": Case("host 0", [(20, "rank", 1)], [0, 2, 3]),
    "agent": Case("host 0", [(20, "agent", "A"), (40, "agent", "B")], [0, 1, 2, 3]),
    "rendezvous": Case("elsewhere", [(20, "rendezvous", None)], [0, 1, 2, 3], 250),
    "rendezvous-and-rank": Case("elsewhere", [(20, "rendezvous", 0)], [1, 2, 3]),
    "host-1": Case("host 0", [(20, "host", "B")], [0, 1]),
    "host-0": Case("elsewhere", [(20, "host", "A")], [2, 3]),
    "all": Case(
        "elsewhere",
        [(10, "rank", 3), (15, "agent", "A"), (20, "rendezvous", None), (280, "host", "A")],
        [2],
        300,
    ),
}


def add_arguments(parser):
    what = f"only examples/digits.py on two hosts; {', '.join(CASES)} (default: all)"
    parser.add_argument("--digits", nargs="*", metavar="CASE", choices=list(CASES), help=what)
    parser.add_argument("--passes", type=int, help="of --digits, over the data (default: as in the file)")
    parser.add_argument(
        "--accuracy", type=float, default=96.5, help="of --digits, at least, in percent (default: 96.5)"
    )
    parser.add_argument("--down", type=float, default=MINUTE_S, help="of --digits: seconds without a rendezvous")


def kill_rank(job, rank):
    os.kill(int(re.search(rf"^\w \[{rank}\] pid=(\d+)", job.text, re.M)[1]), signal.SIGKILL)


def inflict(what, which, job, place, options):
    if what == "rank":
        kill_rank(job, which)
    if what == "agent":
        job.signal_service("agent", which)
    if what == "host":
        on_hosts.power_off(place, which)
    if what == "rendezvous":
        place.third.kill()
        end = time.monotonic() + options.down
        time.sleep(min(1, options.down / 2))
        if which is not None:
            kill_rank(job, which)
        time.sleep(max(0, end - time.monotonic()))
        place.third.start()


def run(case, place, options):
    """The job, and what is wrong."""
    settings = ["--min-np", 1, "--evict-after", 3, "--park-timeout", 2 * MINUTE_S]
    environment = {"DIGITS_PAUSE_MS": str(case.pause_ms)}
    if options.passes:
        environment["DIGITS_PASSES"] = str(options.passes)
    rank = [sys.executable, WORKER]
    job = on_hosts.HostsJob(place, rank, settings, environment, place.third if case.place == "elsewhere" else None)
    try:
        for number, what, which in case.events:
            if job.wait_for(rf"^\[\d\] round {number}$", START_S) is None:
                return job, [f"no rank comes to round {number}"]
            inflict(what, which, job, place, options)
        codes = job.codes(LIMIT_S)
    finally:
        job.end()
        on_hosts.heal(place)
    is_off = any(what == "host" for _, what, _ in case.events)
    return job, [*faults(case, job.text, codes, options.accuracy), *on_hosts.left(place, not is_off)]


def faults(case, text, codes, least):
    hashes = dict(re.findall(r"^\w \[(\d)\] sha256 of the parameters (\w+)", text, re.M))
    if sorted(map(int, hashes)) != case.left or len(set(hashes.values())) != 1:
        yield f"expected one sha256 on ranks {case.left}, got {hashes}"
    accuracies = [float(value) for value in re.findall(r"\] accuracy ([\d.]+) %$", text, re.M)]
    if len(accuracies) != len(case.left) or min(accuracies) < least:
        yield f"accuracies {accuracies}; expected at least {least} % on {len(case.left)} ranks"
    for host in {"AB"[rank // 2] for rank in case.left}:
        if codes[host] != 0:
            yield f"exit code {codes[host]} of host {host}"


def run_all(options):
    if hosts.missing():
        raise SystemExit(f"tools/soak survive --digits: {hosts.missing()}")
    rows, wrong = {}, []
    with on_hosts.places(options.horo) as place:
        third = on_hosts.ThirdRendezvous(place)
        try:
            for name in options.digits or CASES:
                job, found = run(CASES[name], place, options)
                accuracy = re.search(r"\] accuracy ([\d.]+) %", job.text)
                rows[name] = {"accuracy": accuracy and float(accuracy[1]), "s": round(time.monotonic() - job.began, 1)}
                wrong += [f"{name}: {text}\n{job.text}" for text in found]
        finally:
            third.kill()
    return {"table": rows, "wrong": wrong}


def show(summary):
    print(f"{'what is lost':<24}{'accuracy':>10}{'seconds':>10}")
    for name, row in summary["table"].items():
        print(f"{name:<24}{row['accuracy'] or 0:>8.2f} %{row['s']:>10.1f}")
