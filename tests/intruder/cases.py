"""What an intruder may try, one function each, by name. None may be let in: not even those who know the job key,
because they are other ranks than they should be, other starts, or other conversations. Each speaks as a rank that is
still missed at the place, so that nothing but the handshake keeps it out; those of HERE as one that is not."""

import socket
import struct
import time

from strangers import (
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
    Stranger,
    first_hello,
    hash64,
    nonce,
    proof,
)

CASES = {}  # name: function(stranger, key)
TELEPHONE_BOOK = b"GET / HTTP/1.1\r\nHost: rank0\r\n\r\n"
TLS = bytes.fromhex("16030100a5010000a10303") + bytes(160)


def case(name):
    def add(function):
        assert name not in CASES, name
        CASES[name] = function
        return function

    return add


def says(name, make):
    """A case that says `make(place)` and nothing more."""
    CASES[name] = lambda stranger, key: stranger.send(make(stranger.place))


def third_hello(key, first, answer, label="horo dial", **fields):
    return Frame(**fields).encode(proof(key, label, first + answer))


def converse(stranger, key, third=None, **fields):
    """The whole conversation; `third` changes fields of the last message."""
    place = stranger.place
    first = first_hello(place, **fields)
    stranger.send(first)
    answer = stranger.answer()
    knows = proof(key, "horo accept", first + answer[: FRAME_BYTES + NONCE_BYTES]) == answer[-32:]
    fields = {"sender": fields.get("sender", place.caller), "incarnation": fields.get("incarnation", 0)}
    last = third_hello(key, first, answer, **(fields | (third or {})))
    stranger.send(last)
    return first, answer, last, knows


# ---- Absent, truncated, slow.

CASES["absent"] = lambda stranger, key: None
CASES["absent and gone"] = lambda stranger, key: stranger.socket.shutdown(socket.SHUT_WR)


@case("reset at once")
def _(stranger, key):
    stranger.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stranger.socket.close()


for cut in (1, 8, 11, 75, 76, 77, 100):
    says(f"first hello cut at {cut}", lambda place, cut=cut: first_hello(place)[:cut])


@case("first hello cut and gone")
def _(stranger, key):
    stranger.send(first_hello(stranger.place)[:90])
    stranger.socket.shutdown(socket.SHUT_WR)


says("first hello and silence", first_hello)


@case("third hello cut")
def _(stranger, key):
    first = first_hello(stranger.place)
    stranger.send(first)
    stranger.send(third_hello(bytes(32), first, stranger.answer(), sender=stranger.place.caller)[:-1])


@case("third hello cut and gone")
def _(stranger, key):
    stranger.send(first_hello(stranger.place))
    stranger.answer()
    stranger.send(Frame(sender=stranger.place.caller).encode(b"", length=32))
    stranger.socket.shutdown(socket.SHUT_WR)


def drip(stranger, data, pause_s):
    for byte in data:
        stranger.send(bytes([byte]))
        time.sleep(pause_s)


CASES["garbage in drops"] = lambda stranger, key: drip(stranger, bytes(4000), 0.05)
CASES["a good hello in drops"] = lambda stranger, key: drip(stranger, first_hello(stranger.place) * 40, 0.05)

# ---- Oversized.

for length in (0, 257, 1 << 16, 1 << 31, 1 << 40, (1 << 64) - 1):
    says(f"hello of {length} bytes", lambda place, n=length: Frame(sender=place.caller).encode(b"x" * 300, length=n))
says("a mebibyte of zeros", lambda place: bytes(1 << 20))
says("a mebibyte of 0xff", lambda place: b"\xff" * (1 << 20))
says("a mebibyte behind a good hello", lambda place: first_hello(place) + b"x" * (1 << 20))

# ---- Another protocol, version or kind.

says("http", lambda place: TELEPHONE_BOOK + bytes(100))
says("tls", lambda place: TLS)
says("ssh", lambda place: b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n" + bytes(100))
says("wrong magic", lambda place: first_hello(place, magic=0x0A0D0A0D6F726F68))
for version in (0, 1, 0xFFFF):
    says(f"version {version}", lambda place, v=version: first_hello(place, version=v))
for kind in (0, DATA, CONTROL, ABORT, GOODBYE, 6, 255):
    says(f"kind {kind}", lambda place, k=kind: first_hello(place, kind=k))
for flags in (1, 2, 0xFF):
    says(f"flags {flags}", lambda place, f=flags: first_hello(place, flags=f))
says("wrong checksum", lambda place: first_hello(place, crc_error=1))
says("abort notice", lambda p: Frame(kind=ABORT, sender=p.caller).encode(struct.pack("<II", 2, 4) + b"gone"))
says("control message", lambda p: Frame(kind=CONTROL, sender=p.caller).encode(bytes(64)))

# ---- Wrong names, without the key.

says("another job", lambda place: first_hello(place, job=hash64("other")))
says("another epoch", lambda place: first_hello(place, epoch=1))
says("from the rank itself", lambda place: first_hello(place, sender=place.rank))
says("from a rank beyond the world", lambda place: first_hello(place, sender=place.size))
says("from rank -1", lambda place: first_hello(place, sender=0xFFFFFFFF))
says("to another rank", lambda place: first_hello(place, to=(place.rank + 1) % place.size))
says("to a rank beyond the world", lambda place: first_hello(place, to=0x7FFFFFFF))
for size in (0, 1, 2, 4, 0xFFFFFFFF):
    says(f"world of {size}", lambda place, n=size: first_hello(place, size=n))
for purpose in (0, 4, 255):
    says(f"purpose {purpose}", lambda place, p=purpose: first_hello(place, purpose=p))
for field in ("channel", "plan", "key_hash", "segment", "offset"):
    says(f"hello with {field}", lambda place, f=field: first_hello(place, **{f: 1}))
says("short nonce", lambda place: first_hello(place, salt=bytes(15)))
says("long nonce", lambda place: first_hello(place, salt=bytes(17)))

# ---- Wrong proofs.


def with_proof(name, make):
    """Hello 3 with the proof `make(first, answer)`."""

    def run(stranger, key):
        first = first_hello(stranger.place)
        stranger.send(first)
        answer = stranger.answer()
        stranger.send(Frame(sender=stranger.place.caller).encode(make(first, answer)))

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
def _(stranger, key):
    stranger.send(first_hello(stranger.place))
    stranger.send(stranger.answer())


@case("first hello twice")
def _(stranger, key):
    first = first_hello(stranger.place)
    stranger.send(first + first)


@case("third hello before the answer")
def _(stranger, key):
    first = first_hello(stranger.place)
    stranger.send(first + third_hello(bytes(32), first, bytes(ANSWER_BYTES), sender=stranger.place.caller))


# ---- With the key, but wrong.


@case("proof under the acceptor's label")
def _(stranger, key):
    first = first_hello(stranger.place)
    stranger.send(first)
    stranger.send(third_hello(key, first, stranger.answer(), "horo accept", sender=stranger.place.caller))


@case("proof with a flipped bit")
def _(stranger, key):
    first = first_hello(stranger.place)
    stranger.send(first)
    last = bytearray(third_hello(key, first, stranger.answer(), sender=stranger.place.caller))
    last[-1] ^= 1
    stranger.send(last)


@case("proof for another receiver")
def _(stranger, key):
    first = first_hello(stranger.place)
    stranger.send(first)
    other = first_hello(stranger.place, to=(stranger.place.rank + 1) % stranger.place.size)
    stranger.send(third_hello(key, other, stranger.answer(), sender=stranger.place.caller))


CASES["another incarnation in the end"] = lambda s, key: converse(s, key, third={"incarnation": 1})
CASES["another epoch in the end"] = lambda s, key: converse(s, key, third={"epoch": 1})
CASES["another job in the end"] = lambda s, key: converse(s, key, third={"job": hash64("other")})
CASES["another rank in the end"] = lambda s, key: converse(s, key, third={"sender": 1 if s.place.caller == 2 else 2})
CASES["another kind in the end"] = lambda s, key: converse(s, key, third={"kind": DATA})
CASES["a channel in the end"] = lambda s, key: converse(s, key, third={"channel": 1})
CASES["key of another job"] = lambda s, key: converse(s, key, job=hash64("other"))
CASES["key of another epoch"] = lambda s, key: converse(s, key, epoch=1)


def wrong_purpose(place):
    return DATA_PURPOSE if place.purpose == EXCHANGE_PURPOSE else EXCHANGE_PURPOSE


CASES["another purpose"] = lambda s, key: converse(s, key, purpose=wrong_purpose(s.place))
CASES["yet another purpose"] = lambda s, key: converse(
    s, key, purpose=CONTROL_PURPOSE if s.place.purpose == EXCHANGE_PURPOSE else EXCHANGE_PURPOSE
)

# ---- Replayed: an honest conversation with this very rank, whose last hello did not arrive.


def earlier_conversation(place, key):
    """The first hello and its answer were heard by all, the last one by the intruder alone."""
    victim = Stranger(place, 60)
    first = first_hello(place)
    victim.send(first)
    answer = victim.answer()
    victim.socket.close()
    return first, answer, third_hello(key, first, answer, sender=place.caller)


def replay(name, send):
    """send(stranger, first, answer, last)"""
    CASES[name] = lambda stranger, key: send(stranger, *earlier_conversation(stranger.place, key))


def in_turn(stranger, first, answer, last):
    stranger.send(first)
    stranger.answer()
    stranger.send(last)


replay("replayed whole", lambda stranger, first, answer, last: stranger.send(first + last))
replay("replayed in turn", in_turn)
replay("replayed last message alone", lambda stranger, first, answer, last: stranger.send(last))
replay("replayed answer", lambda stranger, first, answer, last: stranger.send(answer + last))


@case("replayed proof behind a new hello")
def _(stranger, key):
    stranger.send(first_hello(stranger.place))
    stranger.answer()
    stranger.send(earlier_conversation(stranger.place, key)[2])


@case("replayed from another job with the same key")
def _(stranger, key):
    place = stranger.place
    first = first_hello(place, job=hash64("yesterday"))
    answer = Frame(job=hash64("yesterday"), sender=place.rank).encode(nonce() + bytes(32))
    stranger.send(first + third_hello(key, first, answer, job=hash64("yesterday"), sender=place.caller))


@case("proof of another job under this job's name")
def _(stranger, key):
    place = stranger.place
    first = first_hello(place)
    stranger.send(first)
    answer = stranger.answer()
    stranger.send(third_hello(proof(key, "yesterday", b""), first, answer, sender=place.caller))


# ---- A rank that is here already, and holds the key.


HERE = {"here already", "here already, another incarnation", "here already, with orders"}
CASES["here already, another incarnation"] = lambda s, key: converse(s, key, incarnation=7)


@case("here already")
def _(stranger, key):
    knows = converse(stranger, key)[-1]
    assert knows, "the acceptor's proof is not what this implementation expects: no case with the key tests anything"


@case("here already, with orders")
def _(stranger, key):
    converse(stranger, key)
    notice = struct.pack("<II", 2, 4) + b"gone"
    stranger.send(Frame(kind=ABORT, sender=stranger.place.caller).encode(notice))
    stranger.send(Frame(kind=CONTROL, sender=stranger.place.caller).encode(bytes(1000)))
