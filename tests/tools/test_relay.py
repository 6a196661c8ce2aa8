"""tools/relay: a line between two network namespaces, with the kernel's TCP at both ends."""

import hashlib
import os
import re
import subprocess
import sys
import time

import pytest
from launching import DEADLINE_S, ROOT

sys.path.insert(0, str(ROOT / "tools"))

import hosts  # noqa: E402

pytestmark = pytest.mark.skipif(hosts.missing(line=True) is not None, reason=str(hosts.missing(line=True)))
PORT = 29421

# Sends its standard input to the first peer that connects, and closes the connection.
GIVE = f"""
import socket, sys
data = sys.stdin.buffer.read()
with socket.create_server((sys.argv[1], {PORT})) as server:
    print("listening", flush=True)
    with server.accept()[0] as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
"""
TAKE = f"""
import socket, sys, time
begin = time.monotonic()
with socket.create_connection((sys.argv[1], {PORT})) as connection:
    print(time.monotonic() - begin, file=sys.stderr)
    while data := connection.recv(1 << 20):
        sys.stdout.buffer.write(data)
"""


def transfer(pair, data):
    """Sends data from A to B over TCP; returns the data that B received, and the seconds that B took to connect."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    address = pair.addresses["A"]
    giver = subprocess.Popen([*pair.on("A"), sys.executable, "-c", GIVE, address], **pipes)
    try:
        giver.stdin.write(data)
        giver.stdin.close()
        assert giver.stdout.readline() == b"listening\n"
        command = [*pair.on("B"), sys.executable, "-c", TAKE, address]
        taken = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=True)
        return taken.stdout, float(taken.stderr)
    finally:
        giver.kill()
        giver.wait()
        giver.stdout.close()


def test_a_good_line_passes_everything():
    data = os.urandom(20 << 20)
    with hosts.two_namespaces([]) as pair:
        got, _ = transfer(pair, data)
        counters = pair.line.counters()
    assert got == data
    assert counters["a->b"]["bytes"] > len(data) and counters["b->a"]["segments"] > 0
    assert all(one["lost"] == one["late"] == one["corrupted"] == one["cut"] == 0 for one in counters.values())


def test_tcp_delivers_all_data_over_a_bad_line():
    """The relay splits offloaded segments into packets, so that the kernel accepts those that are not lost."""
    data = os.urandom(4 << 20)
    orders = ["loss 1%", "reorder 2%", "delay 1ms", "jitter 200us", "rate 500mbit"]
    with hosts.two_namespaces(orders, seed=5) as pair:
        got, _ = transfer(pair, data)
        counters = pair.line.counters()["a->b"]
    assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()
    assert counters["lost"] > 10 and counters["late"] > 20, counters


def test_the_delay_is_in_both_directions():
    with hosts.two_namespaces(["delay 30ms a->b", "delay 20ms b->a"]) as pair:
        _, connecting_s = transfer(pair, b"some bytes")
    assert connecting_s >= 0.05


def test_corruption_passes_the_checksums_of_tcp():
    data = bytes(4 << 20)
    with hosts.two_namespaces(["corrupt 1% a->b"], seed=2) as pair:
        got, _ = transfer(pair, data)
        corrupted = pair.line.counters()["a->b"]["corrupted"]
    places = {match.start() // 8 for match in re.finditer(rb"[^\0]", got)}
    assert len(got) == len(data) and corrupted > 10
    assert corrupted <= len(places) <= 2 * corrupted


# To a closed port: the kernel answers.
SEND_DATAGRAM = f"""
import socket
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hello", ("{hosts.ADDRESSES["A"]}", {PORT}))
"""


def test_a_cut_passes_nothing_and_a_stall_everything_later():
    with hosts.two_namespaces(["stall"]) as pair:
        pair.line.send("cut a->b")
        begin = time.monotonic()
        while pair.line.counters()["b->a"]["segments"] == 0 and time.monotonic() < begin + DEADLINE_S:
            subprocess.run([*pair.on("B"), sys.executable, "-c", SEND_DATAGRAM], check=True)
        assert pair.line.counters()["a->b"]["segments"] == 0
        pair.line.send("heal b->a")
        while pair.line.counters()["a->b"]["cut"] == 0 and time.monotonic() < begin + DEADLINE_S:
            pass
        assert pair.line.counters()["a->b"]["cut"] > 0, "the cut drops the answer"


def test_a_wrong_order_is_refused_and_the_relay_continues():
    with hosts.two_namespaces([]) as pair:
        with pytest.raises(ValueError, match='"explode": expected one of delay jitter'):
            pair.line.send("explode")
        first, second = pair.line.send("delay 1ms"), pair.line.send("heal")
    assert 0 < first < second


def test_it_ends_with_its_input():
    with hosts.two_namespaces([]) as pair:
        pair.line.end()
        assert pair.line.process.returncode == 0
        assert "line" not in hosts.ip("-n", hosts.name_of("A"), "link")


def test_a_wrong_order_ends_it_at_the_start():
    done = subprocess.run([hosts.relay_executable(), "A", "B", "loss 2"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr == 'relay: "2": expected a probability, 0 to 1 or 0% to 100%\n'
