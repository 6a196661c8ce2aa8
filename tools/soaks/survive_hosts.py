"""tools/soak survive --hosts: elastic jobs on two hosts, network namespaces with one horo run each. Besides ranks, the
agents and the rendezvous end or stop at random moments, packets are lost, and a host is switched off. The rendezvous is
on host 0, or a third place has one that serves job after job: it must not grow. Nothing is left after a job. Requires
root and tc (iproute2).
"""

import collections
import os
import random
import signal
import time

import hosts
import packet_filter

from . import on_hosts, survive_flat, survive_partitions, survivors

RANKS = 2  # of each host
PROGRAMS = survive_partitions.PROGRAMS
LATEST_S = 1.2  # of a fault, after the start
EVICT_AFTER_S, PARK_S = 3, 15
START_S = 10
LIMIT_S = 60  # of a job
STOP_S, CUT_S = 0.5, (0.1, 0.6)
FAULTS = ["kill agent", "stop agent", "kill rendezvous", "stop rendezvous", "unplug", "cut", "cut", "off"]
RESTART_EVERY = 50  # kills of the rendezvous in the third place; between them it is to have a long life
HELD = (*survive_flat.KINDS, "folder KiB")
LIMITS = dict(zip(HELD, (0.02, 0.1, 0.02, 8, 1)))  # growth of that rendezvous per job
WARM_JOBS = 20  # of a rendezvous, before the first look at what it holds
LEAST_READINGS = 40  # for a verdict

HostFault = collections.namedtuple("HostFault", "at_s what host kind seconds", defaults=("", 0))


def add_arguments(parser):
    what = "only jobs on two hosts, whose agents and rendezvous die, too"
    parser.add_argument("--hosts", type=int, nargs="?", const=10**9, metavar="JOBS", help=what)
    parser.add_argument("--seconds", type=float, help="of --hosts: no job begins later")
    parser.add_argument("--first-job", type=int, default=0, help="of --hosts (default: 0)")


def job_of(number, options):
    """A job, its faults, and the place of its rendezvous."""
    chance = random.Random(f"{options.seed}/hosts/{number}")
    place = chance.choice(survive_partitions.PLACES)
    faults = []
    for _ in range(chance.choice([0, 1, 1, 2, 3])):
        what = chance.choice(FAULTS)
        if what == "kill rendezvous" and place == "elsewhere" and chance.randrange(RESTART_EVERY):
            what = "stop rendezvous"
        host = "B" if what in ("off", "cut") and place == "host 0" else chance.choice("AB")
        kind = chance.choice(survive_partitions.KINDS) if what == "cut" else ""
        faults.append(HostFault(chance.uniform(0, LATEST_S), what, host, kind, chance.uniform(*CUT_S)))
    off = [fault for fault in faults if fault.what == "off"]
    faults = [fault for fault in faults if fault not in off[1:]]  # one host is left
    victims = chance.sample(range(2 * RANKS), chance.choice([0, 1, 1, 1, 2, 3]))
    points = ["lane.reduced", "lane.committed", "engine.report", "lane.delivered"]
    kills = [f"{victim}:{chance.choice(points)}:{chance.randint(1, 30)}" for victim in victims]
    job = survivors.Job("hosts", 2 * RANKS, chance.choice(PROGRAMS), options.steps, number, ",".join(kills))
    return job, sorted(faults), place


def inflict(fault, job, place, third):
    verb, _, name = fault.what.partition(" ")
    if verb == "off":
        job.wait_for_contact(START_S)  # a job that has begun goes on without the host
        return on_hosts.power_off(place, fault.host)
    if verb == "unplug":
        hosts.ip("-n", hosts.name_of("A"), "link", "set", hosts.DEVICE, "down")
        time.sleep(fault.seconds)
        return hosts.ip("-n", hosts.name_of("A"), "link", "set", hosts.DEVICE, "up")
    if verb == "cut":
        rendezvous = "elsewhere" if third else "host 0"
        one = survive_partitions.Partition(0, fault.kind, "short", rendezvous, fault.host, "")
        dropped = survive_partitions.cut(one, job)
        for host, device, only in dropped:
            packet_filter.drop(host, device, only)
        time.sleep(fault.seconds)
        for host, device, _ in dropped:
            packet_filter.pass_all(host, device)
        return None
    if verb == "kill" and name == "rendezvous" and third:
        third.kill()
        return third.start()
    host = ("C" if third else "A") if name == "rendezvous" else fault.host
    job.signal_service(name, host, signal.SIGKILL if verb == "kill" else signal.SIGSTOP)
    if verb == "stop":
        time.sleep(STOP_S)
        job.signal_service(name, host, signal.SIGCONT)
    return None


def run(job, faults, place, third, options):
    """The exit codes of both hosts, and the outcome."""
    settings = ["--min-np", "1", "--evict-after", EVICT_AFTER_S, "--park-timeout", PARK_S, "-v"]
    rank = [options.rank, job.program, str(job.steps), str(job.seed)]
    running = on_hosts.HostsJob(place, rank, settings, survivors.variables(job, options), third)
    try:
        for fault in faults:
            time.sleep(max(0, running.began + fault.at_s - time.monotonic()))
            inflict(fault, running, place, third)
        codes = running.codes(LIMIT_S)
    finally:
        running.end()
        on_hosts.heal(place)
    text = "".join(line for _, _, line in running.lines)
    for host in [fault.host for fault in faults if fault.what == "off"]:
        ranks = range(*((0, RANKS) if host == "A" else (RANKS, 2 * RANKS)))
        text += "".join(f"[{rank}] fired {rank}:host.off:1\n" for rank in ranks)
    code = max(abs(1 if code is None else code) for code in codes.values())
    return codes, survivors.Outcome(code, text, time.monotonic() - running.began)


def faults_of(job, codes, outcome, options):
    found = [fault for fault in survivors.faults(job, outcome, options) if not fault.startswith("exit code")]
    lines = {int(line[0]) for line in survivors.LINE.findall(outcome.text)}
    dead = {rank for rank, _ in survivors.fired(outcome)}
    found += [f"host {host} does not end" for host, code in codes.items() if code is None]
    for index, code in enumerate(codes.values()):
        ranks = set(range(index * RANKS, (index + 1) * RANKS))
        # A rank that is killed when it has left in good order has not died for the job: its own code counts.
        has_left = any(f"rank {rank} died" not in outcome.text for rank in ranks & lines & dead)
        if ranks & lines - dead and code != 0 and not has_left:
            found.append(f"exit code {code} of host {'AB'[index]}, which has a survivor")
    return found


class ThirdHeld:
    """What the rendezvous in the third place holds after each of its jobs."""

    def __init__(self, third):
        self.third, self.jobs, self.pid, self.readings = third, 0, third.pid, []

    def look(self):
        self.jobs = self.jobs + 1 if self.third.pid == self.pid else 1
        self.pid = self.third.pid
        if self.jobs > WARM_JOBS and (values := survive_flat.held(self.pid)):
            files = [path.stat().st_size for path in self.third.folder.iterdir()]
            self.readings.append(survive_flat.Reading("rendezvous", self.pid, self.jobs, [*values, sum(files) / 1024]))

    def growth(self):
        return {what: survive_flat.growth(self.readings, number) for number, what in enumerate(HELD)}

    def faults(self):
        if len(self.readings) >= LEAST_READINGS:
            for what, (value, error) in self.growth().items():
                if value - survive_flat.ERRORS * error > LIMITS[what]:
                    yield f"the rendezvous: {what} grow by {value:.3f} per job; the limit is {LIMITS[what]}"


def names_of(faults):
    return [f"{fault.what} {fault.kind}".strip() for fault in faults] or ["none"]


def run_all(options):
    if hosts.missing():
        raise SystemExit(f"tools/soak survive --hosts: {hosts.missing()}")
    options.limit, options.step_limit = LIMIT_S, 4 * EVICT_AFTER_S
    wrong, rows, jobs, shared = [], {}, 0, on_hosts.shared_memory()
    last = time.monotonic() + (options.seconds or float("inf"))
    with on_hosts.places(options.horo) as place:
        third = on_hosts.ThirdRendezvous(place)
        held = ThirdHeld(third)
        try:
            for number in range(options.first_job, options.first_job + options.hosts):
                if time.monotonic() > last or len(wrong) == survive_partitions.MOST_WRONG:
                    break
                jobs += 1
                job, faults, where = job_of(number, options)
                used = third if where == "elsewhere" else None
                codes, outcome = run(job, faults, place, used, options)
                is_off = any(fault.what == "off" for fault in faults)  # with its files
                found = faults_of(job, codes, outcome, options) + on_hosts.left(place, not is_off)
                if used:
                    held.look()
                if is_off:
                    time.sleep(EVICT_AFTER_S)  # until then its job may not be over, and the rendezvous not free
                if is_off and used and not survivors.LINE.search(outcome.text):
                    third.start_anew()  # no rank waits for that host, so the job stays for 180 s
                for what in names_of(faults):
                    note(rows.setdefault(what, {"runs": 0, "fired": 0, "wrong": 0, "longest_s": 0.0}), outcome, found)
                if found:
                    what = f"{faults}, rendezvous: {where}, kills {job.kills}, {job.program}"
                    wrong.append(f"job {number}: {'; '.join(found)}\n    {what}\n{outcome.text}")
                    if not options.json:
                        print(wrong[-1].partition("\n")[0], flush=True)
                if not options.json and jobs % 100 == 0:
                    print(f"{jobs} jobs, {len(wrong)} wrong; the rendezvous: {held.growth()}", flush=True)
        finally:
            third.kill()
        wrong += held.faults()
    wrong += [f"left in /dev/shm: {name}" for name in on_hosts.shared_memory() - shared]
    wrong += [f"a namespace is left: {host}" for host in "ABC" if os.path.exists(f"/run/netns/{hosts.name_of(host)}")]
    growth = {what: [round(one, 4) for one in pair] for what, pair in held.growth().items()}
    last_held = dict(zip(HELD, held.readings[-1].values)) if held.readings else {}
    return {"jobs": jobs, "table": rows, "growth_per_job": growth, "held_at_the_end": last_held, "wrong": wrong}


def note(row, outcome, found):
    row["runs"] += 1
    row["fired"] += len(survivors.fired(outcome))
    row["wrong"] += bool(found)
    row["longest_s"] = max(row["longest_s"], round(outcome.seconds, 2))


def show(summary):
    print(f"\n{'fault':<24}{'jobs':>6}{'died':>7}{'wrong':>7}{'longest':>10}")
    for what, row in sorted(summary["table"].items()):
        print(f"{what:<24}{row['runs']:>6}{row['fired']:>7}{row['wrong']:>7}{row['longest_s']:>8.2f} s")
    print(f"{summary['jobs']} jobs; the rendezvous in the third place holds at the end, and grows per job by:")
    for what, (value, error) in summary["growth_per_job"].items():
        print(f"{what:<24}{summary['held_at_the_end'].get(what, 0):>10.1f}{value:>10.4f} +- {error:.4f}")
