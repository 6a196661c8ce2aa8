"""intruder_test.py RANK_PROGRAM MOST_KIB [SANITIZERS]: strangers at every listening port of a job of three ranks.

None of them gets in, is told more than one hello, or keeps a connection; the job starts, and its sums are right. No
rank may grow by more than MOST_KIB while it is visited (programs under a sanitizer grow by themselves).
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import resource
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import cases
from strangers import (
    ANSWER_BYTES,
    DATA_PURPOSE,
    EXCHANGE_PURPOSE,
    Frame,
    Place,
    Stranger,
    first_hello,
)

DEADLINE_S = 90
HELLO_TIMEOUT_MS = 1500
SIZE = 3
STEPS = 300
FLOOD = 200
RANK_PROGRAM, MOST_KIB, SANITIZERS = sys.argv[1], int(sys.argv[2]), sys.argv[3:]


def until(condition, what):
    """What `condition` gives once it gives something, or a failure."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {DEADLINE_S} s")


class Rank:
    """One process of the job."""

    def __init__(self, number, size, settings, files=None):
        self.number = number
        self.errors = tempfile.TemporaryFile("w+")
        names = {"RANK": number, "SIZE": size, "LOCAL_RANK": number, "LOCAL_SIZE": size, "TRANSPORT": "tcp", **settings}
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HORO_")}
        environment |= {f"HORO_{name}": str(value) for name, value in names.items()}
        limit = None if files is None else lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        self.process = subprocess.Popen(
            [RANK_PROGRAM, str(STEPS)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            bufsize=1,
            preexec_fn=limit,
        )

    def expect(self, line):
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(DEADLINE_S):
                raise AssertionError(f"rank {self.number} did not say {line!r} within {DEADLINE_S} s")
        said = self.process.stdout.readline().strip()
        if said != line:
            raise AssertionError(f"rank {self.number} said {said!r}, expected {line!r}; its log:\n{self.log()}")

    def go_on(self):
        self.process.stdin.write("\n")

    def log(self):
        self.errors.seek(0)
        return self.errors.read()

    def strangers_dropped(self):
        return [int(count) for count in re.findall(r"strangers dropped: (\d+)", self.log())]

    def proc(self, name):
        return pathlib.Path(f"/proc/{self.process.pid}/{name}").read_text()

    def sockets(self):
        """(state, local port, remote port) of each TCP socket that this process holds."""
        folder = f"/proc/{self.process.pid}/fd"
        own = set()
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                own.add(os.readlink(f"{folder}/{name}"))
        found = []
        for table in ("tcp", "tcp6"):
            for line in self.proc(f"net/{table}").splitlines()[1:]:
                fields = line.split()
                if f"socket:[{fields[9]}]" in own:
                    ports = [int(fields[i].rsplit(":", 1)[1], 16) for i in (1, 2)]
                    found.append((fields[3], *ports))
        return found

    def listening(self):
        return {local for state, local, _ in self.sockets() if state == "0A"}

    def connections_to(self, port):
        return sum(state == "01" and remote == port for state, _, remote in self.sockets())

    def resident_kib(self):
        return int(re.search(r"VmRSS:\s+(\d+)", self.proc("status"))[1])


class Visit:
    """Strangers on threads, each with one connection and one case."""

    def __init__(self):
        self.threads = []
        self.problems = []

    def send(self, place, name, key=None):
        thread = threading.Thread(target=self._run, args=(place, name, key), daemon=True)
        thread.start()
        self.threads.append(thread)

    def _run(self, place, name, key):
        try:
            stranger = Stranger(place, DEADLINE_S)
            with contextlib.suppress(OSError):  # turned away in the middle of what it says
                cases.CASES[name](stranger, key)
            if not stranger.is_turned_away():
                self.problems.append(f"{name}: still connected")
            if len(stranger.told) > ANSWER_BYTES:
                self.problems.append(f"{name}: was told {len(stranger.told)} bytes")
        except Exception as error:
            self.problems.append(f"{name}: {error!r}")

    def end(self):
        for thread in self.threads:
            thread.join(DEADLINE_S)
        late = sum(thread.is_alive() for thread in self.threads)
        return [*self.problems, *([f"{late} strangers are still there"] if late else [])]


def visit_all(places, key):
    """Every case at every place, those who pose as somebody who is here when the others are gone."""
    problems = []
    for names in (set(cases.CASES) - cases.HERE, cases.HERE):
        strangers = Visit()
        for place in places:
            for name in sorted(names):
                poses_as = place.here if name in cases.HERE else place.caller
                strangers.send(dataclasses.replace(place, caller=poses_as), name, key)
        problems += strangers.end()
    return problems


def flood(place):
    """FLOOD connections at once, half of them silent."""
    strangers = Visit()
    for number in range(FLOOD):
        strangers.send(place, "absent" if number % 2 else "a mebibyte of 0xff")
    return strangers


def reserved_port():
    """A socket that keeps a port from others: bound and not listening, so that a listener with SO_REUSEADDR gets in."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


class IntruderTest(unittest.TestCase):
    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.key = os.urandom(32)
        key_file = os.path.join(folder, "key")
        with open(os.open(key_file, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(self.key)
        holder = self.enterContext(reserved_port())
        self.port = holder.getsockname()[1]
        self.settings = {"ADDR": f"127.0.0.1:{self.port}", "KEY_FILE": key_file}
        self.settings |= {"HELLO_TIMEOUT_MS": HELLO_TIMEOUT_MS, "START_TIMEOUT_MS": DEADLINE_S * 1000}
        self.ranks = {}
        self.addCleanup(self.end_all)

    def end_all(self):
        for rank in self.ranks.values():
            rank.process.kill()
            rank.process.wait()
            for stream in (rank.process.stdin, rank.process.stdout, rank.errors):
                with contextlib.suppress(OSError):
                    stream.close()

    def start(self, number, size=SIZE, files=None):
        rank = Rank(number, size, self.settings, files)
        self.ranks[number] = rank
        return rank

    def gather(self, rank, size=SIZE):
        """Rank 0 listens for others, and its other port, where nobody answers yet."""
        until(lambda: len(rank.listening()) == 2, "rank 0 listens")
        [other] = rank.listening() - {self.port}
        return Place(self.port, 0, size, EXCHANGE_PURPOSE), Place(other, 0, size, DATA_PURPOSE)

    def all_say(self, line):
        for rank in self.ranks.values():
            rank.expect(line)

    def finish(self):
        """The job trains and ends well."""
        for rank in self.ranks.values():
            rank.go_on()
        self.all_say("trained")
        for rank in self.ranks.values():
            self.assertEqual(rank.process.wait(DEADLINE_S), 0, rank.log())

    def test_nobody_gets_in_at_any_port_and_the_job_is_not_disturbed(self):
        self.assertGreaterEqual(len(cases.CASES), 60)
        zero, one = self.start(0), self.start(1)
        address, data_zero = self.gather(zero)
        data_one = Place(until(one.listening, "rank 1 listens").pop(), 1, SIZE, DATA_PURPOSE, here=0)
        until(lambda: one.connections_to(self.port), "rank 1 is at rank 0's address")
        before_kib = {rank: rank.resident_kib() for rank in (zero, one)}

        early = [flood(place) for place in (data_zero, data_one)]  # nobody answers there yet
        problems = flood(address).end()
        found = visit_all([address], self.key)
        self.assertEqual(problems + found, [])

        two = self.start(2)
        data_two = Place(until(two.listening, "rank 2 listens").pop(), 2, SIZE, DATA_PURPOSE, caller=1)
        self.all_say("exchanged")
        self.assertEqual(zero.strangers_dropped(), [Stranger.visits[address.port]])
        unheard = flood(data_two)  # rank 2 calls the others and is called by nobody
        zero.go_on(), one.go_on()
        until(lambda: one.connections_to(data_zero.port) == 2, "rank 1 is at rank 0")
        found = visit_all([data_zero, data_one], self.key)
        for strangers in early:
            found += strangers.end()
        self.assertEqual(found, [])
        grown_kib = [rank.resident_kib() - kib for rank, kib in before_kib.items()]
        self.assertLess(max(grown_kib), MOST_KIB)
        print(f"{len(cases.CASES)} cases; ranks 0 and 1 grew by {grown_kib} KiB; log: {zero.log().strip()}", flush=True)

        two.go_on()
        self.all_say("started")
        self.assertEqual(unheard.end(), [])
        self.assertEqual([rank.listening() for rank in self.ranks.values()], [set()] * SIZE)
        self.assertEqual(zero.strangers_dropped()[1:], [Stranger.visits[data_zero.port]])
        self.assertEqual(one.strangers_dropped(), [Stranger.visits[data_one.port]])
        self.assertLessEqual(sum(two.strangers_dropped()), FLOOD)  # those that it saw before it was done itself
        for place in (address, data_zero, data_one, data_two):
            with self.assertRaises(ConnectionRefusedError):
                Stranger(place, DEADLINE_S)
        self.finish()

    def test_whoever_poses_as_rank_0_is_left(self):
        place = Place(self.port, 1, 2, EXCHANGE_PURPOSE, caller=0)
        poses = {
            "hangs up": lambda heard: b"",
            "garbage": lambda heard: bytes(4000),
            "a hello of 2^40 bytes": lambda heard: Frame(sender=0).encode(bytes(100), length=1 << 40),
            "an answer with a proof of zeros": lambda heard: Frame(sender=0).encode(bytes(48)),
            "its own hello": lambda heard: heard,
            "a hello of its own": lambda heard: first_hello(place),
            "an abort": lambda heard: Frame(kind=4, sender=0).encode(b"\2\0\0\0\4\0\0\0gone"),
            "http": lambda heard: b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100),
            "nothing": None,
        }
        with socket.create_server(("127.0.0.1", self.port)) as impostor:
            impostor.settimeout(DEADLINE_S)
            self.start(1, size=2)
            for name, answer in poses.items():
                caller, _ = impostor.accept()
                with caller:
                    caller.settimeout(DEADLINE_S)
                    heard = caller.recv(4096)
                    self.assertLessEqual(len(heard), ANSWER_BYTES, name)
                    with contextlib.suppress(OSError):  # it hung up before we were done
                        if answer is not None:
                            caller.sendall(answer(heard))
                            caller.shutdown(socket.SHUT_WR)
                        self.assertEqual(caller.recv(1), b"", f"{name}: it went on")
        self.start(0, size=2)
        self.all_say("exchanged")
        for rank in self.ranks.values():
            rank.go_on()
        self.all_say("started")
        self.finish()

    # UBSan makes a pipe to see whether memory can be read, and calls the object invalid if it gets none.
    @unittest.skipIf("undefined" in str(SANITIZERS), "UBSan needs descriptors for itself")
    def test_a_rank_with_few_descriptors_lets_its_own_in(self):
        self.settings["HELLO_TIMEOUT_MS"] = DEADLINE_S * 1000  # nobody goes because the time is over
        zero = self.start(0, size=2, files=40)
        address, _ = self.gather(zero, size=2)
        strangers = Visit()
        for _ in range(FLOOD):
            strangers.send(address, "absent")
        self.start(1, size=2)
        self.all_say("exchanged")
        for rank in self.ranks.values():
            rank.go_on()
        self.all_say("started")
        self.assertEqual(strangers.end(), [])
        self.finish()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
