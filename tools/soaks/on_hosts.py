"""Elastic jobs on two hosts, network namespaces with one horo run each: their processes, faults, and what they leave.
A rendezvous of its own may run in a third namespace.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import hosts
import packet_filter

FIRST_PORT, PORTS = 20_000, 4_000
THIRD_PORT = 29_500  # of the rendezvous in the third place
END_S = 10  # in which all processes of a job end after their horo run


@dataclasses.dataclass
class Place:
    """Both hosts and the third place, a folder with the key, and the folder of temporary files of all jobs."""

    pair: hosts.Hosts
    folder: pathlib.Path
    key: str
    horo: str
    jobs: int = 0
    third: "ThirdRendezvous | None" = None

    def __post_init__(self):
        self.temporary.mkdir()

    @property
    def temporary(self):
        return self.folder / "tmp"

    def environment(self, more=()):
        own = {"TMPDIR": str(self.temporary), "XDG_RUNTIME_DIR": str(self.temporary)}
        return os.environ | own | dict(more)

    def address(self):
        """Of the next job: the previous one's port may still be in use."""
        self.jobs += 1
        return f"{self.pair.addresses['A']}:{FIRST_PORT + 2 * (self.jobs % PORTS)}"


@contextlib.contextmanager
def places(horo):
    with hosts.two_namespaces() as pair, hosts.third_place(pair), tempfile.TemporaryDirectory() as folder:
        yield Place(pair, pathlib.Path(folder), hosts.write_key(folder), horo)


class Process:
    """A process whose lines are read as they come."""

    def __init__(self, command, environment, on_line):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, **pipes)
        self.reader = threading.Thread(target=lambda: [on_line(line) for line in self.process.stdout])
        self.reader.start()

    def end(self):
        self.process.kill()
        self.reader.join()
        self.process.stdout.close()
        return self.process.wait()


class ThirdRendezvous:
    """horo rendezvous in the third place."""

    ADDRESS = f"{hosts.THIRD_ADDRESS}:{THIRD_PORT}"

    def __init__(self, place):
        self.place, self.text, self.running = place, "", None
        place.third = self
        self.folder = place.folder / "rendezvous"
        self.start()

    def start(self):
        command = [*self.place.pair.on("C"), self.place.horo, "rendezvous", "--addr", self.ADDRESS]
        command += ["--key-file", self.place.key, "--folder", str(self.folder)]
        self.running = Process(command, self.place.environment(), self._take)
        return self.running.process.pid

    def _take(self, line):
        self.text += line

    @property
    def pid(self):
        return self.running.process.pid

    def kill(self):
        if self.running:
            self.running.end()
        self.running = None

    def start_anew(self):
        """Without its record: it may wait for a host that could not tell of its end."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.start()

    def signal(self, number):
        self.running.process.send_signal(number)


class HostsJob:
    """One horo run on each host; lines of both come into one text, in the order in which they are printed."""

    def __init__(self, place, rank, options, environment=(), third=None):
        self.place, self.lines, self.changed = place, [], threading.Condition()
        self.began = time.monotonic()
        self.address = place.address()
        own, _, port = self.address.rpartition(":")
        self.rendezvous = third.ADDRESS if third else f"{own}:{int(port) + 1}"
        options = [*options, *(("--rendezvous", third.ADDRESS) if third else ())]
        self.runs = {}
        for index, host in enumerate("AB"):
            command = [*place.pair.on(host), place.horo, "run", "-n", "2", "--nnodes", "2", "--node-rank", str(index)]
            command += ["--addr", self.address, "--key-file", place.key, *map(str, options), *map(str, rank)]
            self.runs[host] = Process(command, place.environment(environment), lambda line, h=host: self._take(h, line))

    def _take(self, host, line):
        with self.changed:
            self.lines.append((time.monotonic(), host, line))
            self.changed.notify_all()

    @property
    def text(self):
        return "".join(f"{host} {line}" for _, host, line in list(self.lines))

    def of_host(self, host):
        return "".join(line for _, where, line in list(self.lines) if where == host)

    def wait_for(self, pattern, seconds, host=None, first=0):
        """The time of the first line with the pattern, from the line `first` on; None: none comes in time."""
        end, at = time.monotonic() + seconds, first
        with self.changed:
            while True:
                for when, where, line in self.lines[at:]:
                    if host in (None, where) and re.search(pattern, line):
                        return when
                at = len(self.lines)
                if not self.changed.wait(max(0, end - time.monotonic())) and time.monotonic() >= end:
                    return None

    def wait_for_contact(self, seconds):
        """Whether both hosts have contact with the rendezvous; for jobs with -v."""
        return all(self.wait_for("contact with the rendezvous", seconds, host) for host in self.runs)

    def is_running(self, host):
        return self.runs[host].process.poll() is None

    def codes(self, seconds):
        """The exit codes by host, after so many seconds at most; None: killed then."""
        end, found = time.monotonic() + seconds, {}
        for host, run in self.runs.items():
            try:
                found[host] = run.process.wait(max(0.01, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                found[host] = None
        self.end()
        return found

    def end(self):
        for run in self.runs.values():
            run.end()

    def services(self, name, host):
        """The pids of the agent of the host, or of the rendezvous there."""
        for pid in self.place.pair.pids(host):
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
                if words[1:2] == [name] and self.rendezvous in words:
                    yield pid

    def signal_service(self, name, host, number=signal.SIGKILL):
        for pid in self.services(name, host):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def state_of(place):
    """What the processes of all three places do now, and their connections: for a fault without a known cause."""
    found = []
    for host in "ABC":
        for pid in place.pair.pids(host):
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
                threads = [_doing(task) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
                found.append(f"host {host}, process {pid}: {words.strip()[:100]}: {', '.join(sorted(threads))}")
        shown = subprocess.run([*place.pair.on(host), "ss", "-Htanp"], capture_output=True, text=True).stdout
        found += [f"host {host}, {line}" for line in shown.splitlines()]
    if place.third:
        is_there = place.third.running and place.third.running.process.poll() is None
        found.append(f"the rendezvous {'runs' if is_there else 'does not run'}; its lines: {place.third.text}")
    return "\n".join(found)


def _doing(task):
    name, state = (task / "stat").read_text().rpartition(")")[::2]
    return f"{name.partition('(')[2]} {state.split()[0]} {(task / 'wchan').read_text()}"


def power_off(place, host):
    """All processes of the host are gone at once, and no packet says so."""
    for device in (hosts.DEVICE, hosts.ASIDE):
        hosts.ip("-n", hosts.name_of(host), "link", "set", device, "down")
    for pid in place.pair.pids(host):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def power_on(place, host):
    here, address = hosts.name_of(host), place.pair.addresses[host]
    for device in (hosts.DEVICE, hosts.ASIDE):
        hosts.ip("-n", here, "link", "set", device, "up")
    hosts.ip("-n", here, "route", "replace", hosts.THIRD_ADDRESS, "dev", hosts.ASIDE, "src", address)


def heal(place):
    for host in "AB":
        power_on(place, host)
        for device in (hosts.DEVICE, hosts.ASIDE):
            packet_filter.pass_all(host, device)
        packet_filter.pass_all("C", f"to-{host.lower()}")


def left(place, files=True):
    """What the jobs have left on the hosts (and of files), after a moment: texts."""
    end = time.monotonic() + END_S
    while (found := [*_left(place), *(_files(place) if files else ())]) and time.monotonic() < end:
        time.sleep(0.05)
    for name in os.listdir(place.temporary):
        shutil.rmtree(place.temporary / name, ignore_errors=True)
    return found


def _left(place):
    for host in "ABC":
        for pid in place.pair.pids(host):
            with contextlib.suppress(OSError):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ")
                if not (place.third and place.third.running and pid == place.third.pid):
                    yield f"a process on host {host}: {words}"
        if host == "C":
            continue
        for table in ("tcp", "unix"):
            yield from _sockets(place, host, table)


def _files(place):
    for path in [*place.temporary.glob("horo-*"), *place.temporary.glob("horo/*")]:
        yield f"a file: {path.relative_to(place.temporary)}"


def _sockets(place, host, table):
    """Those that belong to a process; the kernel closes the others by itself."""
    shown = subprocess.run([*place.pair.on(host), "cat", f"/proc/net/{table}"], capture_output=True, text=True).stdout
    for line in shown.splitlines()[1:]:
        words = line.split()
        if table == "unix" or words[9] != "0":
            yield f"a socket on host {host}: {line.strip()}"


def shared_memory():
    return {name for name in os.listdir("/dev/shm") if "horo" in name}
