"""A second implementation of horo's frames and handshake, with which tests send wrong messages."""

import collections
import dataclasses
import hashlib
import hmac
import os
import socket
import struct
import threading
import time

MAGIC = 0x0A1A0A0D6F726F68
VERSION = 3
HELLO, DATA, CONTROL, ABORT, GOODBYE = 1, 2, 3, 4, 5
EXCHANGE_PURPOSE, DATA_PURPOSE, CONTROL_PURPOSE = 1, 2, 3
FRAME_BYTES, NONCE_BYTES, MAC_BYTES = 76, 16, 32
ANSWER_BYTES = FRAME_BYTES + NONCE_BYTES + MAC_BYTES  # all that an unauthenticated peer may receive
HELLO_BYTES = FRAME_BYTES + 10 + NONCE_BYTES + MAC_BYTES  # all that a rank tells a port before it has an answer
HEADER = struct.Struct("<QHBBQIIIIQQIQQ")


def _crc_table():
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        yield value


CRC_TABLE = list(_crc_table())


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def hash64(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return value


@dataclasses.dataclass
class Frame:
    """A header; every field can be set to a wrong value."""

    magic: int = MAGIC
    version: int = VERSION
    kind: int = HELLO
    flags: int = 0
    job: int = hash64("horo")
    epoch: int = 0
    incarnation: int = 0
    sender: int = 1
    channel: int = 0
    plan: int = 0
    key_hash: int = 0
    segment: int = 0
    offset: int = 0
    length: int = 0
    crc_error: int = 0

    def encode(self, payload=b"", length=None):
        self.length = len(payload) if length is None else length
        fields = [getattr(self, field.name) for field in dataclasses.fields(self)][:-1]
        header = HEADER.pack(*fields)
        return header + struct.pack("<I", crc32c(header) ^ self.crc_error) + payload


def proof(key, label, transcript):
    return hmac.new(key, label.encode() + transcript, hashlib.sha256).digest()


def nonce():
    return os.urandom(NONCE_BYTES)


def first_hello(place, purpose=None, to=None, size=None, salt=None, key=bytes(32), **fields):
    """Hello 1 of the place's dialer, with other values for the given arguments and fields. Without a key its proof is
    wrong."""
    body = struct.pack(
        "<BBII",
        place.purpose if purpose is None else purpose,
        place.number,
        place.rank if to is None else to,
        place.size if size is None else size,
    )
    body += nonce() if salt is None else salt
    fields.setdefault("sender", place.dialer)
    header = Frame(**fields).encode(length=len(body) + MAC_BYTES)
    return header + body + proof(key, "horo call", header + body)


@dataclasses.dataclass
class Place:
    """A listening port, its rank, and the identity of a peer for which that rank waits."""

    port: int
    rank: int
    size: int
    purpose: int
    dialer: int = 2  # the port waits for this rank
    number: int = 0  # of the connection among those of its purpose
    here: int = 1  # the port does not wait for this rank: it is connected, or never dials


class UnauthenticatedPeer:
    """One connection of the test to a listening port."""

    visits = collections.Counter()  # by port
    lock = threading.Lock()

    def __init__(self, place, deadline_s):
        self.place = place
        self.until = time.monotonic() + deadline_s
        self.received = b""
        with self.lock:
            self.visits[place.port] += 1
        self.socket = socket.create_connection(("127.0.0.1", place.port), timeout=deadline_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data):
        self.socket.sendall(data)

    def receive(self, size):
        """Receives size bytes. Raises ConnectionError if the other side closes the connection before."""
        got = b""
        while len(got) < size:
            self.socket.settimeout(max(0.001, self.until - time.monotonic()))
            part = self.socket.recv(size - len(got))
            if not part:
                raise ConnectionError("ended")
            got += part
            self.received += part
        return got

    def answer(self):
        """Hello 2."""
        return self.receive(ANSWER_BYTES)

    def is_closed(self):
        """Waits until the other side closes the connection; returns False at the deadline."""
        try:
            while True:
                self.receive(1)
        except TimeoutError:
            return False
        except OSError:
            return True
        finally:
            self.socket.close()
