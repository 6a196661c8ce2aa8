"""tools/soak survive --hosts: elastic jobs on two hosts, network namespaces with one horo run each. Besides ranks, the
agents and the rendezvous end or stop at random moments, and the cable is cut for a moment. Requires root.
"""

import os
import random
import signal
import subprocess
import tempfile
import threading
import time

import hosts

from . import survivors

RANKS = 2  # of each host
PROGRAMS = [name for name in survivors.PROGRAMS if name != "failures"]  # which fails in the order of one host's ranks
FIRST_PORT, PORTS = 20_000, 4_000
LATEST_S = 1.2  # of a fault, after the start
EVICT_AFTER_S = 3
LIMIT_S = 60  # of a job
FAULTS = ["kill agent", "kill agent", "kill rendezvous", "kill rendezvous", "stop rendezvous", "cut"]


def add_arguments(parser):
    what = "only jobs on two hosts, whose agents and rendezvous die, too"
    parser.add_argument("--hosts", type=int, metavar="JOBS", help=what)
    parser.add_argument("--first-job", type=int, default=0, help="of --hosts (default: 0)")


def job_of(number, options):
    """A job, and its faults: [(seconds, what, host)]."""
    chance = random.Random(f"{options.seed}/hosts/{number}")
    faults = []
    for _ in range(chance.choice([0, 1, 1, 2, 3])):
        faults.append((chance.uniform(0, LATEST_S), chance.choice(FAULTS), chance.choice("AB")))
    size = 2 * RANKS
    victims = chance.sample(range(size), chance.choice([0, 1, 1, 1, 2, 3]))
    points = ["lane.reduced", "lane.committed", "engine.report", "lane.delivered"]
    kills = [f"{victim}:{chance.choice(points)}:{chance.randint(1, 30)}" for victim in victims]
    program = chance.choice(PROGRAMS)
    return survivors.Job("hosts", size, program, options.steps, number, ",".join(kills)), sorted(faults)


def commands(job, pair, key, options):
    address = f"{pair.addresses['A']}:{FIRST_PORT + 2 * (job.seed % PORTS)}"
    rank = [options.rank, job.program, str(job.steps), str(job.seed)]
    for index, host in enumerate("AB"):
        yield [
            *(*pair.on(host), options.horo, "run", "-n", str(RANKS), "--nnodes", "2", "--node-rank", str(index)),
            *("--addr", address, "--key-file", key, "--min-np", "1", "--evict-after", str(EVICT_AFTER_S), *rank),
        ]


def services(name, host):
    """The pids of the agent of the host, or of the rendezvous."""
    pids = subprocess.run(["ip", "netns", "pids", hosts.name_of(host)], capture_output=True, text=True).stdout.split()
    for pid in map(int, pids):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if file.read().split(b"\0")[1:2] == [name.encode()]:
                    yield pid
        except OSError:
            pass


def inflict(what, host):
    verb, _, name = what.partition(" ")
    if verb == "cut":
        for state in ("down", "up"):
            hosts.ip("-n", hosts.name_of("A"), "link", "set", hosts.DEVICE, state)
            time.sleep(0.3)
        return
    for pid in services(name, "A" if name == "rendezvous" else host):
        try:
            os.kill(pid, signal.SIGKILL if verb == "kill" else signal.SIGSTOP)
            if verb == "stop":
                time.sleep(0.5)
                os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


def run(job, faults, commands):
    begin = time.monotonic()
    environment = os.environ | survivors.variables(job)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    running = [subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, **pipes) for command in commands]
    texts = ["", ""]
    readers = [
        threading.Thread(target=lambda i=i: texts.__setitem__(i, running[i].stdout.read())) for i in range(len(running))
    ]
    limit = threading.Timer(LIMIT_S, lambda: [one.kill() for one in running])
    for thread in (*readers, limit):
        thread.start()
    for at_s, what, host in faults:
        time.sleep(max(0, begin + at_s - time.monotonic()))
        inflict(what, host)
    for reader in readers:
        reader.join()
    codes = [one.wait() for one in running]
    limit.cancel()
    return codes, survivors.Outcome(max(codes), "".join(texts), time.monotonic() - begin)


def faults_of(job, codes, outcome, options):
    found = [fault for fault in survivors.faults(job, outcome, options) if not fault.startswith("exit code")]
    lines = {int(line[0]) for line in survivors.LINE.findall(outcome.text)}
    for host, code in enumerate(codes):
        is_left = any(host * RANKS <= rank < (host + 1) * RANKS for rank in lines)
        if is_left and code != 0:
            found.append(f"exit code {code} of host {'AB'[host]}, which has a survivor")
    return found


def run_all(options):
    if hosts.missing():
        raise SystemExit(f"tools/soak survive --hosts: {hosts.missing()}")
    options.limit = LIMIT_S
    options.step_limit = 4 * EVICT_AFTER_S
    wrong, rows = [], {}
    with hosts.two_namespaces() as pair, tempfile.TemporaryDirectory() as folder:
        key = hosts.write_key(folder)
        for number in range(options.first_job, options.first_job + options.hosts):
            job, faults = job_of(number, options)
            codes, outcome = run(job, faults, commands(job, pair, key, options))
            found = faults_of(job, codes, outcome, options)
            for what in [what for _, what, _ in faults] or ["none"]:
                row = rows.setdefault(what, {"runs": 0, "fired": 0, "wrong": 0, "longest_s": 0.0})
                row["runs"] += 1
                row["fired"] += len(survivors.fired(outcome))
                row["wrong"] += bool(found)
                row["longest_s"] = max(row["longest_s"], round(outcome.seconds, 2))
            if found:
                what = f"{faults}, kills {job.kills}, {job.program}"
                wrong.append(f"job {number}: {'; '.join(found)}\n    {what}\n{outcome.text}")
                if not options.json:
                    print(wrong[-1].partition("\n")[0], flush=True)
            if len(wrong) == 10:
                break
    return {"jobs": options.hosts, "hashed_freezes": 0, "table": rows, "wrong": wrong}


def show(summary):
    print(f"\n{'fault':<24}{'jobs':>6}{'died':>7}{'wrong':>7}{'longest':>10}")
    for what, row in summary["table"].items():
        print(f"{what:<24}{row['runs']:>6}{row['fired']:>7}{row['wrong']:>7}{row['longest_s']:>8.2f} s")
