"""Two simulated hosts: network namespaces A and B of this machine, connected by a cable (veth) or by tools/relay, a
line with programmable faults:

    with hosts.two_namespaces() as pair: ...
    with hosts.two_namespaces(["delay 10ms", "rate 1gbit"], seed=3) as pair:
        job = subprocess.Popen([*pair.on("B"), "program"])
        pair.line.send("cut a->b")
    with hosts.two_namespaces(rate="1gbit") as pair:  # a cable with this rate in each direction
    with hosts.two_namespaces() as pair, hosts.third_place(pair): ...  # a host C for services, by a cable to each

Requires root, ip and tc (iproute2) and, for a line, /dev/net/tun and the relay of the release build.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys

import ranks

ROOT = pathlib.Path(__file__).resolve().parent.parent
ADDRESSES = {"A": "10.77.0.1", "B": "10.77.0.2"}
DEVICE = "line"  # with the address, on both hosts
THIRD_ADDRESS = "10.77.0.3"
ASIDE = "aside"  # the device of A and of B to the third place
TBF = {"burst": "16kb", "limit": "1250kb"}  # of a cable with a rate: the bytes of a burst, and of the queue


class Line:
    """A running relay between two namespaces."""

    def __init__(self, names, orders, seed):
        command = [relay_executable(), *names, *orders, "--device", DEVICE, "--seed", str(seed)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            self._answer("relay")
        except RuntimeError as error:  # the relay has printed the reason
            raise ValueError(f"a line of {', '.join(orders) or 'no orders'}: {error}") from None

    def send(self, order):
        """Sends an order; returns after it is in effect, with the seconds since the relay's start.

        Raises ValueError if the relay refuses the order."""
        try:
            self.process.stdin.write(order + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # _answer() raises
        return self._answer(order)[0]

    def counters(self):
        """The counters by direction, "a->b" and "b->a"; tools/relay/link.h documents them."""
        self.process.stdin.write("counters\n")
        self.process.stdin.flush()
        return json.loads(self._answer("counters")[1].removeprefix("counters "))

    def _answer(self, order):
        seconds, _, text = self.process.stdout.readline().strip().partition(" ")
        if not seconds:
            raise RuntimeError(f"{order}: the relay ended with exit code {self.process.wait()}")
        if text.startswith("error: "):
            raise ValueError(text.removeprefix("error: "))
        return float(seconds), text

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@dataclasses.dataclass
class Hosts:
    """The result of two_namespaces."""

    addresses: dict  # by host
    line: Line | None  # None: a cable
    jobs: int = 0  # the number of Places created so far

    def on(self, host):
        """The leading words of a command that runs on the host."""
        return ["ip", "netns", "exec", name_of(host)]

    def pids(self, host):
        return [int(pid) for pid in ip("netns", "pids", name_of(host)).split()]


class Places:
    """The placement of a job's ranks on both hosts, the first of them on A; for ranks.run_ranks and soaks.kill.Job."""

    FIRST_PORT, PORTS = 20_000, 10_000  # below the kernel's range of ephemeral ports

    def __init__(self, pair, folder, ranks_by_host):
        """Writes a key to the folder if it has none."""
        self.pair, self.ranks_by_host = pair, ranks_by_host
        self.key = write_key(folder)
        pair.jobs += 1  # each job has its own port, because the previous one may still be in use
        self.address = f"{pair.addresses['A']}:{self.FIRST_PORT + pair.jobs % self.PORTS}"

    def prefix(self, rank):
        return self.pair.on("AB"[rank >= self.ranks_by_host[0]])

    def environment(self, rank, size):
        on_a, on_b = self.ranks_by_host
        local, among = (rank, on_a) if rank < on_a else (rank - on_a, on_b)
        own = {"HORO_LOCAL_RANK": str(local), "HORO_LOCAL_SIZE": str(among), "HORO_KEY_FILE": self.key}
        return ranks.environment(rank, size, self.address) | own


def write_key(folder):
    """Writes a job key that only its owner may read; returns its path."""
    path = os.path.join(folder, "key")
    with contextlib.suppress(FileExistsError), open(_create(path), "wb") as file:
        file.write(secrets.token_bytes(32))
    return path


def _create(path):
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def horo_executable():
    """The horo of HORO_EXE, of .venv or of the release build."""
    given = os.environ.get("HORO_EXE")
    places = [given] if given else [ROOT / ".venv/bin/horo", ROOT / "build/release/tools/horo/horo"]
    found = next((str(place) for place in places if shutil.which(str(place))), None)
    if not found:
        sys.exit(f"no horo executable at {' or '.join(map(str, places))}: build it, or set HORO_EXE")
    return found


def relay_executable():
    """The relay of the build of HORO_EXE, or of the release build; None if there is none."""
    folders = [ROOT / "build/release/tools/horo"]
    if os.environ.get("HORO_EXE"):
        folders.insert(0, pathlib.Path(os.environ["HORO_EXE"]).resolve().parent)
    found = [folder.parent / "relay/relay" for folder in folders]
    return next((str(path) for path in found if os.access(path, os.X_OK)), None)


def missing(line=False):
    """The reason why two hosts (with a relay between them) cannot be made here; None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not shutil.which("ip"):
        return "no program ip: install iproute2 (tools/setup does)"
    if line and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "the relay needs /dev/net/tun"
    if line and not relay_executable():
        return "no relay at build/release/tools/relay: build it"
    return None


def ip(*words, check=True):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def name_of(host):
    return f"horo-{os.getpid()}-{host}"


def remove_leftovers():
    """Removes namespaces of processes that were killed before their cleanup."""
    for name, pid in re.findall(r"^(horo-(\d+)-[ABC])\b", ip("netns", "list"), re.M):
        if not os.path.exists(f"/proc/{pid}"):
            ip("netns", "delete", name, check=False)


@contextlib.contextmanager
def two_namespaces(orders=None, seed=0, rate=None):
    """A context with two Hosts. With orders (the list may be empty) a relay connects them, otherwise a cable: as fast
    as memory, or with a rate in the syntax of tc's tbf ("10gbit burst 128kb")."""
    remove_leftovers()
    line = None
    try:
        for host in ADDRESSES:
            ip("netns", "add", name_of(host))
            ip("-n", name_of(host), "link", "set", "lo", "up")
        if orders is None:
            _lay_cable(rate)
        else:
            line = Line([name_of(host) for host in ADDRESSES], orders, seed)
        for host, address in ADDRESSES.items():
            # Without a link-local address the kernel sends no packets of its own.
            ip("-n", name_of(host), "link", "set", DEVICE, "addrgenmode", "none")
            ip("-n", name_of(host), "address", "add", f"{address}/24", "dev", DEVICE)
            ip("-n", name_of(host), "link", "set", DEVICE, "up")
        yield Hosts(dict(ADDRESSES), line)
    finally:
        if line:
            line.end()
        for host in ADDRESSES:
            ip("netns", "delete", name_of(host), check=False)


def _lay_cable(rate):
    names = [name_of(host) for host in ADDRESSES]
    ip("link", "add", DEVICE, "netns", names[0], "type", "veth", "peer", "name", DEVICE, "netns", names[1])
    for name in names if rate else []:
        _limit(name, rate)


def _limit(name, rate):
    words = rate.split()
    own = [word for key, value in TBF.items() if key not in words for word in (key, value)]
    try:
        tc("-n", name, "qdisc", "add", "dev", DEVICE, "root", "tbf", "rate", *words, *own)
    except RuntimeError as error:
        raise ValueError(f"a cable of {rate}: {error}") from None


def tc(*words):
    program = shutil.which("tc", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not program:
        raise RuntimeError("no program tc: install iproute2 (tools/setup does)")
    done = subprocess.run([program, *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())


@contextlib.contextmanager
def third_place(pair):
    """Adds host C, which both hosts reach by cables of their own, also when one of them or the cable between them is
    not there."""
    name = name_of("C")
    try:
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "address", "add", f"{THIRD_ADDRESS}/32", "dev", "lo")
        for host, address in pair.addresses.items():
            to, here = f"to-{host.lower()}", name_of(host)
            ip("link", "add", ASIDE, "netns", here, "type", "veth", "peer", "name", to, "netns", name)
            for where, device in ((here, ASIDE), (name, to)):
                ip("-n", where, "link", "set", device, "addrgenmode", "none")
                ip("-n", where, "link", "set", device, "up")
            ip("-n", here, "route", "add", THIRD_ADDRESS, "dev", ASIDE, "src", address)
            ip("-n", name, "route", "add", address, "dev", to, "src", THIRD_ADDRESS)
        yield
    finally:
        ip("netns", "delete", name, check=False)


def line_options(arguments, program):
    """Leading "--line ORDERS", "--cable RATE" and "--seed N": (options of two_namespaces, other arguments)."""
    own = {"--line": None, "--cable": None, "--seed": "0"}
    while arguments and arguments[0] in own:
        if len(arguments) < 2:
            sys.exit(f"{program}: {arguments[0]} needs a value")
        own[arguments[0]], arguments = arguments[1], arguments[2:]
    if own["--line"] and own["--cable"]:
        sys.exit(f"{program}: --line and --cable: expected one of them")
    orders = orders_in(own["--line"]) if own["--line"] else None
    return {"orders": orders, "rate": own["--cable"], "seed": int(own["--seed"])}, arguments


def orders_in(text):
    return [order.strip() for order in text.split(",")]
