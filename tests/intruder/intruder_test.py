"""intruder_test.py RANK_PROGRAM MOST_KIB [SANITIZERS]: unauthenticated peers connect to all ports of a job of three
ranks.

None of them is accepted, gets more than one hello, or stays connected; the job starts, and its sums are right. No rank
may grow by more than MOST_KIB meanwhile. MOST_KIB depends on SANITIZERS, because sanitizers keep freed memory.
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
from unauthenticated_peer import (
    ANSWER_BYTES,
    DATA_PURPOSE,
    EXCHANGE_PURPOSE,
    HELLO_BYTES,
    Frame,
    Place,
    UnauthenticatedPeer,
    first_hello,
)

DEADLINE_S = 200
HELLO_TIMEOUT_MS = 1500
SIZE = 3
STEPS = 300
FLOOD = 200
# The cases in which a rank answers a peer that has the key.
WITH_ANSWER = cases.HERE | {"another purpose", "yet another purpose"}
WITH_ANSWER |= {f"{what} in the end" for what in ("a channel", "another incarnation", "another epoch", "another job")}
WITH_ANSWER |= {"another rank in the end", "another kind in the end"}
RANK_PROGRAM, MOST_KIB, SANITIZERS = sys.argv[1], int(sys.argv[2]), sys.argv[3:]


def until(condition, what):
    """Polls condition() until its result is true; returns the result. Fails at the deadline."""
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
                raise AssertionError(f"rank {self.number} did not print {line!r} within {DEADLINE_S} s")
        said = self.process.stdout.readline().strip()
        if said != line:
            raise AssertionError(f"rank {self.number} printed {said!r}, expected {line!r}; its log:\n{self.log()}")

    def go_on(self):
        self.process.stdin.write("\n")

    def log(self):
        self.errors.seek(0)
        return self.errors.read()

    def peers_dropped(self):
        return [int(count) for count in re.findall(r"unauthenticated connections dropped: (\d+)", self.log())]

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
    """Unauthenticated peers on threads, each with one connection and one case."""

    def __init__(self):
        self.threads = []
        self.problems = []

    def send(self, place, name, key=None):
        thread = threading.Thread(target=self._run, args=(place, name, key), daemon=True)
        thread.start()
        self.threads.append(thread)

    def _run(self, place, name, key):
        try:
            peer = UnauthenticatedPeer(place, DEADLINE_S)
            peer.case = name
            with contextlib.suppress(OSError):  # closed by the rank in the middle of a message
                cases.CASES[name](peer, key)
            if not peer.is_closed():
                self.problems.append(f"{name}: still connected")
            if len(peer.received) > ANSWER_BYTES:
                self.problems.append(f"{name}: received {len(peer.received)} bytes")
        except Exception as error:
            self.problems.append(f"{name}: {error!r}")

    def end(self):
        for thread in self.threads:
            thread.join(DEADLINE_S)
        late = sum(thread.is_alive() for thread in self.threads)
        return [*self.problems, *([f"{late} peers are still connected"] if late else [])]


def visit_all(places, key):
    """Runs every case at every place; the cases of HERE after all others have ended."""
    problems = []
    for names in (set(cases.CASES) - cases.HERE, cases.HERE):
        peers = Visit()
        for place in places:
            for name in sorted(names):
                sender = place.here if name in cases.HERE else place.dialer
                peers.send(dataclasses.replace(place, dialer=sender), name, key)
        problems += peers.end()
    return problems


def flood(place):
    """Starts FLOOD connections at once, half of them silent."""
    peers = Visit()
    for number in range(FLOOD):
        peers.send(place, "absent" if number % 2 else "a mebibyte of 0xff")
    return peers


class Strangers:
    """Silent connections: `count` at once, each replaced when the rank closes it."""

    def __init__(self, port, count):
        self.port = port
        self.sockets = [self._connect() for _ in range(count)]
        self.replaced = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _connect(self):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", self.port))
        return one

    def _is_closed(self, one):
        try:
            return not one.recv(1)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _run(self):
        while not self.ended.is_set():
            for index, one in enumerate(self.sockets):
                if self._is_closed(one):
                    one.close()
                    self.sockets[index] = self._connect()
                    self.replaced += 1

    def end(self):
        self.ended.set()
        self.thread.join(DEADLINE_S)
        for one in self.sockets:
            one.close()


def reserved_port():
    """A socket that reserves a port: bound and not listening, so that a listener with SO_REUSEADDR can bind it too."""
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
        """Waits until rank 0 listens; returns its address, and its data port, which does not accept yet."""
        until(lambda: len(rank.listening()) == 2, "rank 0 listens")
        [other] = rank.listening() - {self.port}
        return Place(self.port, 0, size, EXCHANGE_PURPOSE), Place(other, 0, size, DATA_PURPOSE)

    def all_print(self, line):
        for rank in self.ranks.values():
            rank.expect(line)

    def finish(self):
        """Runs the job to its end and checks its exit statuses."""
        for rank in self.ranks.values():
            rank.go_on()
        self.all_print("trained")
        for rank in self.ranks.values():
            self.assertEqual(rank.process.wait(DEADLINE_S), 0, rank.log())

    def test_no_peer_is_accepted_at_any_port_and_the_job_is_not_disturbed(self):
        self.assertGreaterEqual(len(cases.CASES), 60)
        cases.PROVED.clear()
        zero, one = self.start(0), self.start(1)
        address, data_zero = self.gather(zero)
        data_one = Place(until(one.listening, "rank 1 listens").pop(), 1, SIZE, DATA_PURPOSE, here=0)
        until(lambda: one.connections_to(self.port), "rank 1 is connected to rank 0's address")
        before_kib = {rank: rank.resident_kib() for rank in (zero, one)}

        early = [flood(place) for place in (data_zero, data_one)]  # these ports do not accept yet
        problems = flood(address).end()
        found = visit_all([address], self.key)
        self.assertEqual(problems + found, [])

        two = self.start(2)
        data_two = Place(until(two.listening, "rank 2 listens").pop(), 2, SIZE, DATA_PURPOSE, dialer=1)
        self.all_print("exchanged")
        self.assertEqual(zero.peers_dropped(), [UnauthenticatedPeer.visits[address.port]])
        unheard = flood(data_two)  # rank 2 dials the others; no rank dials it
        zero.go_on(), one.go_on()
        until(lambda: one.connections_to(data_zero.port) == 2, "rank 1 is connected to rank 0")
        found = visit_all([data_zero, data_one], self.key)
        for peers in early:
            found += peers.end()
        self.assertEqual(found, [])
        self.assertEqual(set(cases.PROVED), WITH_ANSWER)
        self.assertEqual(set(cases.PROVED.values()), {3})  # at three ports
        grown_kib = [rank.resident_kib() - kib for rank, kib in before_kib.items()]
        self.assertLess(max(grown_kib), MOST_KIB)
        print(f"{len(cases.CASES)} cases; ranks 0 and 1 grew by {grown_kib} KiB; log: {zero.log().strip()}", flush=True)

        two.go_on()
        self.all_print("started")
        self.assertEqual(unheard.end(), [])
        self.assertEqual([rank.listening() for rank in self.ranks.values()], [set()] * SIZE)
        self.assertEqual(zero.peers_dropped()[1:], [UnauthenticatedPeer.visits[data_zero.port]])
        self.assertEqual(one.peers_dropped(), [UnauthenticatedPeer.visits[data_one.port]])
        self.assertLessEqual(sum(two.peers_dropped()), FLOOD)  # those that it accepted before it had finished
        for place in (address, data_zero, data_one, data_two):
            with self.assertRaises(ConnectionRefusedError):
                UnauthenticatedPeer(place, DEADLINE_S)
        self.finish()

    def test_a_false_rank_0_is_abandoned(self):
        place = Place(self.port, 1, 2, EXCHANGE_PURPOSE, dialer=0)
        answers = {
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
            for name, answer in answers.items():
                dialer, _ = impostor.accept()
                with dialer:
                    dialer.settimeout(DEADLINE_S)
                    heard = dialer.recv(4096)
                    self.assertEqual(len(heard), HELLO_BYTES, name)
                    with contextlib.suppress(OSError):  # it closed the connection first
                        if answer is not None:
                            dialer.sendall(answer(heard))
                            dialer.shutdown(socket.SHUT_WR)
                        self.assertEqual(dialer.recv(1), b"", f"{name}: it continued")
        self.start(0, size=2)
        self.all_print("exchanged")
        for rank in self.ranks.values():
            rank.go_on()
        self.all_print("started")
        self.finish()

    def test_a_flood_does_not_end_the_start(self):
        for count in (600, 2000):
            with self.subTest(count=count):
                self.start_in_a_flood_of(count)

    def start_in_a_flood_of(self, count):
        self.end_all()
        zero = self.start(0)
        address, data_zero = self.gather(zero)
        floods = [Strangers(address.port, count)]
        one, two = self.start(1), self.start(2)
        self.all_print("exchanged")
        floods[0].end()
        # Rank 1 and then the strangers wait at rank 0's port before it accepts.
        one.go_on()
        until(lambda: one.connections_to(data_zero.port) == 2, "rank 1 is connected to rank 0")
        floods.append(Strangers(data_zero.port, count))
        zero.go_on(), two.go_on()
        self.all_print("started")
        floods[1].end()
        self.assertEqual(len(zero.peers_dropped()), 2)
        self.finish()

    # UBSan makes a pipe to test whether memory is readable, and reports the object as invalid if that fails.
    @unittest.skipIf("undefined" in str(SANITIZERS), "UBSan needs descriptors for itself")
    def test_a_rank_with_few_descriptors_accepts_its_peers(self):
        self.settings["HELLO_TIMEOUT_MS"] = DEADLINE_S * 1000  # no peer is dropped by this timeout
        zero = self.start(0, size=2, files=40)
        address, _ = self.gather(zero, size=2)
        peers = Visit()
        for _ in range(FLOOD):
            peers.send(address, "absent")
        self.start(1, size=2)
        self.all_print("exchanged")
        for rank in self.ranks.values():
            rank.go_on()
        self.all_print("started")
        self.assertEqual(peers.end(), [])
        self.finish()


if __name__ == "__main__":
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    unittest.main(argv=sys.argv[:1], verbosity=2)
