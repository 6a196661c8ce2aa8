"""tools/soak deaths: a rank is killed (or stopped, with --stop) at a random moment inside DDP, FSDP2, DCP or works of
torch.distributed over horo. Every other rank raises, within the deadline, an error that names that rank, and ends
as its script says: by the exception, by destroy_process_group(), or by sys.exit(). None hangs, and none dies by a
signal. The ranks are forked from one process that has imported torch.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile

import ranks

WORKER = pathlib.Path(__file__).resolve().parent / "deaths_worker.py"
KINDS = ("ddp", "fsdp2", "dcp", "wait")
EXIT_CODES = {"uncaught": 1, "destroy": 0, "exit": 3}  # of a survivor, by the end of its script
SOON_S = 2.0  # beyond the deadline: rank 0 decides half a second after a suspicion, on a busy machine
MOST_WRONG = 10  # then the soak ends


def add_arguments(parser):
    parser.add_argument("--kind", choices=KINDS, action="append", help="what the ranks do (default: all of them)")
    parser.add_argument("--times", type=int, default=100, help="deaths of each kind (default: 100)")
    parser.add_argument("--stop", action="store_true", help="SIGSTOP instead of SIGKILL, and SIGCONT later")
    parser.add_argument("--deadline-ms", type=int, default=4000, help="HORO_DEADLINE_MS of the jobs (default: 4000)")


class Worker:
    """The process that forks the ranks."""

    def __init__(self, options):
        plain = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}
        env = {name: value for name, value in os.environ.items() if not name.startswith(("HORO_RANK", "TORCHELASTIC"))}
        env |= plain | {"HORO_DEADLINE_MS": str(options.deadline_ms)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([sys.executable, str(WORKER)], env=env, text=True, **pipes)

    def run(self, order):
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker ended with code {self._process.wait()}")
        return json.loads(line)

    def end(self):
        self._process.stdin.close()
        self._process.wait()


def order_of(kind, number, options, folder):
    """A job of random size, victim, end and store."""
    chance = random.Random(f"{options.seed}/{kind}/{number}")
    size = chance.choice([2, 3, 3, 4])
    return {
        "kind": kind,
        "seed": f"{options.seed}/{kind}/{number}/moment",
        "size": size,
        "victim": chance.randrange(size),
        "ending": chance.choice(list(EXIT_CODES)),
        "signal": int(signal.SIGSTOP if options.stop else signal.SIGKILL),
        "address": chance.choice(["", ranks.free_address()]),
        "deadline_s": options.deadline_ms / 1000,
        "folder": folder,
    }


def faults(order, outcome):
    """What is wrong with how the ranks ended, and the longest time until a survivor raised."""
    if outcome["struck"] is None:
        return [f"the job failed before the signal: exit codes {outcome['codes']}"], 0.0
    wrong, slowest, victim = [], 0.0, order["victim"]
    for rank, (code, events) in enumerate(zip(outcome["codes"], outcome["events"])):
        if rank == victim:
            wrong += _victim(order, code)
            continue
        if code != EXIT_CODES[order["ending"]]:
            ended = "hangs" if code is None else f"ended with code {code}"
            wrong.append(f"rank {rank} {ended}, expected {EXIT_CODES[order['ending']]}")
        raised = events.get("raised")
        if raised is None:
            wrong.append(f"rank {rank} raised nothing")
            continue
        slowest = max(slowest, raised["at"] - outcome["struck"])
        if "PeerLost" not in raised["text"] or f"rank {victim} " not in raised["text"]:
            wrong.append(f"rank {rank} does not name rank {victim}: {raised['text']}")
        if order["kind"] != "ddp" and raised["origin"] != victim:
            wrong.append(f"rank {rank} has PeerLost.origin {raised['origin']}: {raised['text']}")
    allowed = order["deadline_s"] + (SOON_S if order["signal"] == signal.SIGSTOP else 0)
    if slowest > allowed:
        wrong.append(f"a rank raised after {slowest:.1f} s, allowed are {allowed:.1f} s")
    return wrong, slowest


def _victim(order, code):
    if order["signal"] == signal.SIGKILL:
        return [] if code == -signal.SIGKILL else [f"the killed rank ended with code {code}"]
    if code is None or code < 0:
        return [f"the stopped rank {'hangs' if code is None else f'ended with code {code}'} after SIGCONT"]
    return []


def outputs(folder, size):
    """The last lines of each rank."""
    found = []
    for rank in range(size):
        file = pathlib.Path(folder, f"output{rank}")
        lines = file.read_text(errors="replace").splitlines()[-30:] if file.exists() else []
        found += [f"    [{rank}] {line}" for line in lines]
    return "\n".join(found)


def run_all(options):
    rows, wrong, worker = [], [], Worker(options)
    try:
        for kind in options.kind or KINDS:
            row = {"kind": kind, "deaths": 0, "wrong": 0, "slowest_s": 0.0}
            rows.append(row)
            for number in range(options.times):
                with tempfile.TemporaryDirectory(prefix="horo_deaths_") as folder:
                    order = order_of(kind, number, options, folder)
                    found, slowest = faults(order, worker.run(order))
                    text = outputs(folder, order["size"]) if found else ""
                row["deaths"] += 1
                row["wrong"] += bool(found)
                row["slowest_s"] = max(row["slowest_s"], round(slowest, 3))
                what = f"{kind} {number} (rank {order['victim']} of {order['size']}, {order['ending']})"
                wrong += [f"{what}: {'; '.join(found)}\n{text}"] if found else []
                if found and not options.json:
                    print(f"WRONG: {what}: {'; '.join(found)}", flush=True)
                if len(wrong) == MOST_WRONG:
                    return {"table": rows, "wrong": wrong}
            if not options.json:
                print(f"{kind}: {row['deaths']} deaths, {row['wrong']} wrong", flush=True)
    finally:
        worker.end()
    return {"table": rows, "wrong": wrong}


def show(summary):
    print(f"{'kind':<8}{'deaths':>8}{'wrong':>7}{'slowest':>10}")
    for row in summary["table"]:
        print(f"{row['kind']:<8}{row['deaths']:>8}{row['wrong']:>7}{row['slowest_s']:>8.3f} s")
