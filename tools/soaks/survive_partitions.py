"""tools/soak survive --partitions: two hosts of two ranks do not reach each other or the rendezvous, which is on host 0
or in a third place. What is cut: all packets both ways or one way, the data while gRPC lives, gRPC while the data live;
for less than --evict-after, for longer, or to the end of the job. Each rank writes its results down: there is one
result of each round, whichever side has it. Requires root and tc (iproute2).
"""

import collections
import itertools
import random

import hosts
import packet_filter

from . import on_hosts, survivors

KINDS = ("both ways", "to the host", "from the host", "data", "grpc")
LENGTHS = ("short", "long", "for ever")
PLACES = ("host 0", "elsewhere")
PROGRAMS = [name for name in survivors.PROGRAMS if name != "failures"]  # which fails in the order of one host's ranks
STEPS = 200
START_S = 30
LEAST_ROUNDS = 5  # before the cut
MOST_WRONG = 10

# host: the one that is cut off. rendezvous: one of PLACES.
Partition = collections.namedtuple("Partition", "number kind length rendezvous host program")


def add_arguments(parser):
    parser.add_argument("--partitions", type=int, metavar="COUNT", help="only partitions between two hosts")
    parser.add_argument("--evict-after", type=float, default=3, help="of --partitions, in seconds (default: 3)")
    parser.add_argument("--only", default="", help="of --partitions: forms with these words, as data,long,elsewhere")


def partitions(options):
    """All forms in a random order, again and again."""
    forms = list(itertools.product(KINDS, LENGTHS, PLACES))
    forms += [("grpc of both", length, "elsewhere") for length in LENGTHS]
    forms = [form for form in forms if all(word in " ".join(form) for word in options.only.split(","))]
    chance = random.Random(f"{options.seed}/partitions")
    for number in range(options.partitions):
        if number % len(forms) == 0:
            chance.shuffle(forms)
        kind, length, rendezvous = forms[number % len(forms)]
        host = "B" if rendezvous == "host 0" else chance.choice("AB")
        yield Partition(number, kind, length, rendezvous, host, chance.choice(PROGRAMS))


def seconds_of(length, options):
    """How long the cut lasts; None: to the end."""
    return {"short": options.evict_after / 3, "long": options.evict_after * 1.6, "for ever": None}[length]


def cut(one, job):
    """What is dropped: [(host, device, packets)]."""
    other, port = "BA"["AB".index(one.host)], int(job.rendezvous.rpartition(":")[2])
    to_c, line = (f"to-{one.host.lower()}", hosts.DEVICE)
    incoming = [(one.host, line, None), (one.host, hosts.ASIDE, None)]
    outgoing = [(other, line, None), ("C", to_c, None)]
    if one.kind == "to the host":
        return incoming
    if one.kind == "from the host":
        return outgoing
    if one.kind == "both ways":
        return incoming + outgoing
    if one.kind == "data":
        return [(host, line, packet_filter.Only(port, False)) for host in "AB"]
    if one.rendezvous == "host 0":
        return [(host, line, packet_filter.Only(port)) for host in "AB"]
    cut_off = "AB" if one.kind == "grpc of both" else one.host
    return [(host, hosts.ASIDE, None) for host in cut_off] + [("C", f"to-{host.lower()}", None) for host in cut_off]


def hosts_left(one):
    """Those whose ranks go on."""
    if one.length == "short" or one.kind.startswith("grpc") or (one.kind == "data" and one.length == "long"):
        return "AB"  # without the rendezvous the ranks hear one another: none waits for a silent one
    if one.kind == "data":
        return "A"  # the host with the higher number goes
    return "BA"["AB".index(one.host)]


class Results:
    """What the ranks write down: a line per result with all that came before it in its hash."""

    def __init__(self, place):
        self.folder = place.folder / "results"
        self.folder.mkdir(exist_ok=True)
        for path in self.folder.iterdir():
            path.unlink()

    def by_rank(self):
        return {int(path.name): path.read_text().splitlines() for path in sorted(self.folder.iterdir())}


def faults_of_results(by_rank, ranks_left):
    """by_rank: the lines of each rank. Another result of a round is another line in its place."""
    longest = max(by_rank.values(), key=len, default=[])
    found = []
    for rank, lines in by_rank.items():
        differs = next((at for at, pair in enumerate(zip(lines, longest)) if pair[0] != pair[1]), None)
        if differs is not None:
            found.append(f"two results of a round: rank {rank} has {lines[differs]}, another one {longest[differs]}")
        if rank in ranks_left and len(lines) != len(longest):
            found.append(f"rank {rank} has {len(lines)} results, another one {len(longest)}")
        found += survivors.faults_of_members("".join(f"{line.split()[1]}x1," for line in lines), 4, set())
    return found


def faults(one, job, codes, results):
    hosts_on = hosts_left(one)
    ranks_on = {rank for rank in range(4) if "AB"[rank // 2] in hosts_on}
    found = [f"host {host} does not end" for host, code in codes.items() if code is None]
    found += [f"exit code {codes[host]} of host {host}" for host in hosts_on if codes[host] != 0]
    lines = {int(line[0]): line for line in survivors.LINE.findall(job.text)}
    if set(lines) != ranks_on:
        found.append(f"ranks {sorted(lines)} have ended their programs, not {sorted(ranks_on)}")
    found += [f"members {line[4]} lack ranks" for line in lines.values() if hosts_on == "AB" and line[4].count(",") > 1]
    found += faults_of_results(results.by_rank(), ranks_on)
    for host in set("AB") - set(hosts_on):
        text = job.of_host(host)
        parked = "ranks of this host are parked" in text and "--park-timeout" in text
        if not ("evicted" in text or (one.length == "for ever" and parked)):
            found.append(f"host {host} does not say why it ends")
    return found


def run(one, place, third, options):
    """What is wrong."""
    limit_s = options.evict_after
    settings = ["-v", "--min-np", "1", "--evict-after", limit_s, "--park-timeout", 2 * limit_s]
    results = Results(place)
    environment = {
        "TEST_RESULTS": str(results.folder),
        "TEST_PAUSE_MS": str(round(15 * limit_s)),
        "HORO_DEADLINE_MS": str(round(800 * limit_s)),
        "HORO_START_TIMEOUT_MS": str(round(700 * limit_s)),
    }
    rank = [options.rank, one.program, STEPS, one.number]
    job = on_hosts.HostsJob(place, rank, settings, environment, third)
    try:
        if not (job.wait_for_contact(START_S) and wait_for_rounds(job, results)):
            return job, ["the job does not begin"]
        for host, device, only in cut(one, job):
            packet_filter.drop(host, device, only)
        if length_s := seconds_of(one.length, options):
            job.wait_for("^no line is like this$", length_s)
            on_hosts.heal(place)
        codes = job.codes(20 * limit_s + START_S)
        on_hosts.heal(place)
        return job, faults(one, job, codes, results) + on_hosts.left(place)
    finally:
        job.end()
        on_hosts.heal(place)


def wait_for_rounds(job, results):
    def begun():
        lines = results.by_rank().values()
        return len(lines) == 4 and min(map(len, lines)) >= LEAST_ROUNDS

    for _ in range(100 * START_S):
        if begun():
            return True
        job.wait_for("^no line is like this$", 0.01)
    return False


def run_all(options):
    if hosts.missing():
        raise SystemExit(f"tools/soak survive --partitions: {hosts.missing()}")
    rows, wrong = {}, []
    with on_hosts.places(options.horo) as place:
        third = on_hosts.ThirdRendezvous(place)
        try:
            for one in partitions(options):
                job, found = run(one, place, third if one.rendezvous == "elsewhere" else None, options)
                if one.rendezvous == "elsewhere" and one.length == "for ever":
                    third.start_anew()
                row = rows.setdefault(f"{one.kind}, {one.length}", {"runs": 0, "wrong": 0})
                row["runs"] += 1
                row["wrong"] += bool(found)
                if found:
                    wrong.append(f"{one}: {'; '.join(found)}\n{job.text}")
                    print(wrong[-1].partition("\n")[0] if not options.json else "", end="\n" * (not options.json))
                if len(wrong) == MOST_WRONG:
                    break
        finally:
            third.kill()
    return {"partitions": sum(row["runs"] for row in rows.values()), "table": rows, "wrong": wrong}


def show(summary):
    print(f"{'what is cut':<28}{'runs':>6}{'wrong':>7}")
    for what, row in summary["table"].items():
        print(f"{what:<28}{row['runs']:>6}{row['wrong']:>7}")
