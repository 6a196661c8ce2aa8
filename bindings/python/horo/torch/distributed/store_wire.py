"""What the processes of the store tell each other: messages of byte strings, on connections on which both sides have
proved that they hold the store's secret."""

import hashlib
import hmac
import os
import socket
import struct
import time

NONCE_BYTES, PROOF_BYTES = 16, 32
MOST_BYTES = 1 << 30  # of a message
_WORD = struct.Struct("<I")


def packed(parts):
    """The message of these byte strings."""
    body = b"".join(_WORD.pack(len(part)) + part for part in parts)
    return _WORD.pack(len(body)) + body


def unpacked(body):
    """The byte strings of a message. Raises ValueError."""
    parts, at = [], 0
    while at < len(body):
        if len(body) - at < _WORD.size:
            raise ValueError("a message of the store that is cut")
        (size,) = _WORD.unpack_from(body, at)
        at += _WORD.size
        if size > len(body) - at:
            raise ValueError("a message of the store that is cut")
        parts.append(body[at : at + size])
        at += size
    return parts


def length_in(head):
    """The number of bytes of the message behind these first four. Raises ValueError."""
    (size,) = _WORD.unpack(head)
    if size > MOST_BYTES:
        raise ValueError(f"a message of {size} bytes for the store, expected at most {MOST_BYTES}")
    return size


def proof(secret, side, challenge, answer):
    """side: b"dial" or b"accept"."""
    return hmac.digest(secret, b"horo store " + side + challenge + answer, hashlib.sha256)


def is_of_another_user(connection):
    """Of a Unix socket, whose other end the kernel knows."""
    if connection.family != socket.AF_UNIX:
        return False
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", told)[1] != os.geteuid()


def family_of(address):
    """address: the name of a Unix socket, or (host in numbers, port)."""
    if isinstance(address, bytes):
        return socket.AF_UNIX
    return socket.AF_INET6 if ":" in address[0] else socket.AF_INET


class Dialed:
    """A connection to the store, of one thread."""

    def __init__(self, address, secret, until):
        """address: of a Server. until: of time.monotonic(). Raises OSError."""
        family = family_of(address)
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._set_time(until)
            self._socket.connect(address)
            if family == socket.AF_UNIX:
                if is_of_another_user(self._socket):
                    raise ConnectionError("another user listens at the address of the store")
            else:
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            challenge, answer = self._take(NONCE_BYTES, until), os.urandom(NONCE_BYTES)
            self._socket.sendall(answer + proof(secret, b"dial", challenge, answer))
            expected = proof(secret, b"accept", challenge, answer)
            if not hmac.compare_digest(self._take(PROOF_BYTES, until), expected):
                raise ConnectionError("the process at the address of the store does not hold its secret")
        except BaseException:
            self.close()
            raise

    def _set_time(self, until):
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._socket.settimeout(left)

    def _take(self, size, until):
        got = bytearray()
        while len(got) < size:
            self._set_time(until)
            part = self._socket.recv(min(size - len(got), 1 << 20))
            if not part:
                raise ConnectionError("the connection has ended")
            got += part
        return bytes(got)

    def ask(self, parts, until):
        """The answer to the message, byte strings. Raises TimeoutError, OSError."""
        self._set_time(until)
        self._socket.sendall(packed(parts))
        return unpacked(self._take(length_in(self._take(_WORD.size, until)), until))

    def close(self):
        self._socket.close()
