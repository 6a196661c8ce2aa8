"""Attacks on the handshake, one function each, by name. None may be accepted, not even with the job key, because the
peer then has the wrong rank, start or handshake. Each peer sends the number of a rank that the port still waits for, so
that only the handshake refuses it; the cases of HERE send the number of a connected rank."""

import collections
import contextlib
import socket
import struct
import time

from unauthenticated_peer import (
    ABORT,
    ANSWER_BYTES,
    CONTROL,
    CONTROL_PURPOSE,
    DATA,
    DATA_PURPOSE,
    EXCHANGE_PURPOSE,
    FRAME_BYTES,
    GOODBYE,
    NONCE_BYTES,
    Frame,
    UnauthenticatedPeer,
    first_hello,
    hash64,
    nonce,
    proof,
)

CASES = {}  # name: function(peer, key)
PROVED = collections.Counter()  # handshakes in which the acceptor has proved the key, by case
HTTP = b"GET / HTTP/1.1\r\nHost: rank0\r\n\r\n"
TLS = bytes.fromhex("16030100a5010000a10303") + bytes(160)


def case(name):
    def add(function):
        assert name not in CASES, name
        CASES[name] = function
        return function

    return add


def sends(name, make):
    """A case that only sends `make(place)`."""
    CASES[name] = lambda peer, key: peer.send(make(peer.place))


def third_hello(key, first, answer, label="horo dial", **fields):
    return Frame(**fields).encode(proof(key, label, first + answer))


def handshake(peer, key, third=None, **fields):
    """Runs the handshake up to the dialer's last message; `third` changes fields of it."""
    place = peer.place
    first = first_hello(place, key=key, **fields)
    peer.send(first)
    answer = peer.answer()
    is_proved = proof(key, "horo accept", first + answer[: FRAME_BYTES + NONCE_BYTES]) == answer[-32:]
    assert is_proved, "the acceptor's proof differs from this implementation's: the cases with the key test nothing"
    PROVED[peer.case] += 1
    fields = {"sender": fields.get("sender", place.dialer), "incarnation": fields.get("incarnation", 0)}
    last = third_hello(key, first, answer, **(fields | (third or {})))
    peer.send(last)


# ---- Absent, truncated, slow.

CASES["absent"] = lambda peer, key: None
CASES["absent and gone"] = lambda peer, key: peer.socket.shutdown(socket.SHUT_WR)


@case("reset at once")
def _(peer, key):
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.socket.close()


for cut in (1, 8, 11, 75, 76, 77, 100, 133):
    sends(f"first hello cut at {cut}", lambda place, cut=cut: first_hello(place)[:cut])


@case("first hello cut and gone")
def _(peer, key):
    peer.send(first_hello(peer.place)[:90])
    peer.socket.shutdown(socket.SHUT_WR)


sends("first hello and silence", first_hello)


@case("third hello cut")
def _(peer, key):
    first = first_hello(peer.place)
    peer.send(first)
    peer.send(third_hello(bytes(32), first, peer.answer(), sender=peer.place.dialer)[:-1])


@case("third hello cut and gone")
def _(peer, key):
    peer.send(first_hello(peer.place))
    peer.answer()
    peer.send(Frame(sender=peer.place.dialer).encode(b"", length=32))
    peer.socket.shutdown(socket.SHUT_WR)


def drip(peer, data, pause_s):
    for byte in data:
        peer.send(bytes([byte]))
        time.sleep(pause_s)


CASES["garbage in drops"] = lambda peer, key: drip(peer, bytes(4000), 0.05)
CASES["a good hello in drops"] = lambda peer, key: drip(peer, first_hello(peer.place) * 40, 0.05)

# ---- Oversized.

for length in (0, 257, 1 << 16, 1 << 31, 1 << 40, (1 << 64) - 1):
    sends(f"hello of {length} bytes", lambda place, n=length: Frame(sender=place.dialer).encode(b"x" * 300, length=n))
sends("a mebibyte of zeros", lambda place: bytes(1 << 20))
sends("a mebibyte of 0xff", lambda place: b"\xff" * (1 << 20))
sends("a mebibyte behind a good hello", lambda place: first_hello(place) + b"x" * (1 << 20))

# ---- Another protocol, version or kind.

sends("http", lambda place: HTTP + bytes(100))
sends("tls", lambda place: TLS)
sends("ssh", lambda place: b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n" + bytes(100))
sends("wrong magic", lambda place: first_hello(place, magic=0x0A0D0A0D6F726F68))
for version in (0, 1, 0xFFFF):
    sends(f"version {version}", lambda place, v=version: first_hello(place, version=v))
for kind in (0, DATA, CONTROL, ABORT, GOODBYE, 6, 255):
    sends(f"kind {kind}", lambda place, k=kind: first_hello(place, kind=k))
for flags in (1, 2, 0xFF):
    sends(f"flags {flags}", lambda place, f=flags: first_hello(place, flags=f))
sends("wrong checksum", lambda place: first_hello(place, crc_error=1))
sends("abort notice", lambda p: Frame(kind=ABORT, sender=p.dialer).encode(struct.pack("<II", 2, 4) + b"gone"))
sends("control message", lambda p: Frame(kind=CONTROL, sender=p.dialer).encode(bytes(64)))

# ---- Wrong identities, without the key.

sends("another job", lambda place: first_hello(place, job=hash64("other")))
sends("another epoch", lambda place: first_hello(place, epoch=1))
sends("from the rank itself", lambda place: first_hello(place, sender=place.rank))
sends("from a rank beyond the world", lambda place: first_hello(place, sender=place.size))
sends("from rank -1", lambda place: first_hello(place, sender=0xFFFFFFFF))
sends("to another rank", lambda place: first_hello(place, to=(place.rank + 1) % place.size))
sends("to a rank beyond the world", lambda place: first_hello(place, to=0x7FFFFFFF))
for size in (0, 1, 2, 4, 0xFFFFFFFF):
    sends(f"world of {size}", lambda place, n=size: first_hello(place, size=n))
for purpose in (0, 4, 255):
    sends(f"purpose {purpose}", lambda place, p=purpose: first_hello(place, purpose=p))
for field in ("channel", "plan", "key_hash", "segment", "offset"):
    sends(f"hello with {field}", lambda place, f=field: first_hello(place, **{f: 1}))
sends("short nonce", lambda place: first_hello(place, salt=bytes(15)))
sends("long nonce", lambda place: first_hello(place, salt=bytes(17)))

# ---- Wrong proofs.


def with_proof(name, make):
    """Hello 3 with the proof `make(first, answer)`."""

    def run(peer, key):
        first = first_hello(peer.place)
        peer.send(first)
        answer = peer.answer()
        peer.send(Frame(sender=peer.place.dialer).encode(make(first, answer)))

    CASES[name] = run


with_proof("proof of zeros", lambda first, answer: bytes(32))
with_proof("proof with a key of zeros", lambda first, answer: proof(bytes(32), "horo dial", first + answer))
with_proof("proof with an empty key", lambda first, answer: proof(b"", "horo dial", first + answer))
with_proof("proof with another key", lambda first, answer: proof(b"k" * 32, "horo dial", first + answer))
with_proof("their proof reflected", lambda first, answer: answer[-32:])
with_proof("no proof", lambda first, answer: b"")
with_proof("short proof", lambda first, answer: bytes(31))
with_proof("long proof", lambda first, answer: bytes(33))


@case("their hello reflected")
def _(peer, key):
    peer.send(first_hello(peer.place))
    peer.send(peer.answer())


@case("first hello twice")
def _(peer, key):
    first = first_hello(peer.place)
    peer.send(first + first)


@case("third hello before the answer")
def _(peer, key):
    first = first_hello(peer.place)
    peer.send(first + third_hello(bytes(32), first, bytes(ANSWER_BYTES), sender=peer.place.dialer))


# ---- With the key, but wrong contents.


@case("proof under the acceptor's label")
def _(peer, key):
    first = first_hello(peer.place)
    peer.send(first)
    peer.send(third_hello(key, first, peer.answer(), "horo accept", sender=peer.place.dialer))


@case("proof with a flipped bit")
def _(peer, key):
    first = first_hello(peer.place)
    peer.send(first)
    last = bytearray(third_hello(key, first, peer.answer(), sender=peer.place.dialer))
    last[-1] ^= 1
    peer.send(last)


@case("proof for another receiver")
def _(peer, key):
    first = first_hello(peer.place)
    peer.send(first)
    other = first_hello(peer.place, to=(peer.place.rank + 1) % peer.place.size)
    peer.send(third_hello(key, other, peer.answer(), sender=peer.place.dialer))


CASES["another incarnation in the end"] = lambda s, key: handshake(s, key, third={"incarnation": 1})
CASES["another epoch in the end"] = lambda s, key: handshake(s, key, third={"epoch": 1})
CASES["another job in the end"] = lambda s, key: handshake(s, key, third={"job": hash64("other")})
CASES["another rank in the end"] = lambda s, key: handshake(s, key, third={"sender": 1 if s.place.dialer == 2 else 2})
CASES["another kind in the end"] = lambda s, key: handshake(s, key, third={"kind": DATA})
CASES["a channel in the end"] = lambda s, key: handshake(s, key, third={"channel": 1})
CASES["key of another job"] = lambda s, key: handshake(s, key, job=hash64("other"))
CASES["key of another epoch"] = lambda s, key: handshake(s, key, epoch=1)


def wrong_purpose(place):
    return DATA_PURPOSE if place.purpose == EXCHANGE_PURPOSE else EXCHANGE_PURPOSE


CASES["another purpose"] = lambda s, key: handshake(s, key, purpose=wrong_purpose(s.place))
CASES["yet another purpose"] = lambda s, key: handshake(
    s, key, purpose=CONTROL_PURPOSE if s.place.purpose == EXCHANGE_PURPOSE else EXCHANGE_PURPOSE
)

# ---- Replays of a valid handshake with this rank, whose last hello did not arrive.


def earlier_handshake(place, key):
    """Returns a first hello and its answer, which were exchanged, and a last hello, which was not sent."""
    victim = UnauthenticatedPeer(place, 60)
    with contextlib.closing(victim.socket):
        first = first_hello(place, key=key)
        victim.send(first)
        answer = victim.answer()
    return first, answer, third_hello(key, first, answer, sender=place.dialer)


def replay(name, send):
    """send(peer, first, answer, last)"""
    CASES[name] = lambda peer, key: send(peer, *earlier_handshake(peer.place, key))


def in_turn(peer, first, answer, last):
    peer.send(first)
    peer.answer()
    peer.send(last)


replay("replayed whole", lambda peer, first, answer, last: peer.send(first + last))
replay("replayed in turn", in_turn)
replay("replayed last message alone", lambda peer, first, answer, last: peer.send(last))
replay("replayed answer", lambda peer, first, answer, last: peer.send(answer + last))


@case("replayed proof behind a new hello")
def _(peer, key):
    peer.send(first_hello(peer.place))
    peer.answer()
    peer.send(earlier_handshake(peer.place, key)[2])


@case("replayed from another job with the same key")
def _(peer, key):
    place = peer.place
    first = first_hello(place, key=key, job=hash64("yesterday"))
    answer = Frame(job=hash64("yesterday"), sender=place.rank).encode(nonce() + bytes(32))
    peer.send(first + third_hello(key, first, answer, job=hash64("yesterday"), sender=place.dialer))


@case("replayed first hello many times")
def _(peer, key):
    first = earlier_handshake(peer.place, key)[0]
    copies = [UnauthenticatedPeer(peer.place, 60) for _ in range(20)]
    for copy in copies:
        with contextlib.closing(copy.socket), contextlib.suppress(OSError):
            copy.send(first)
    peer.send(first)


@case("proof of another job under this job's name")
def _(peer, key):
    place = peer.place
    first = first_hello(place)
    peer.send(first)
    answer = peer.answer()
    peer.send(third_hello(proof(key, "yesterday", b""), first, answer, sender=place.dialer))


# ---- A rank that is already connected, with the key.


HERE = {"here already", "here already, another incarnation", "here already, with orders"}
CASES["here already, another incarnation"] = lambda s, key: handshake(s, key, incarnation=7)


CASES["here already"] = lambda s, key: handshake(s, key)


@case("here already, with orders")
def _(peer, key):
    handshake(peer, key)
    notice = struct.pack("<II", 2, 4) + b"gone"
    peer.send(Frame(kind=ABORT, sender=peer.place.dialer).encode(notice))
    peer.send(Frame(kind=CONTROL, sender=peer.place.dialer).encode(bytes(1000)))
