"""The server of the store of torch.distributed: a thread of rank 0. A connection whose other end has not proved that it
holds the secret is dropped after a few seconds; of a Unix socket, one of another user at once."""

import contextlib
import errno
import hmac
import os
import secrets
import selectors
import socket
import threading
import time

from horo.torch.distributed import store_wire as wire

PROOF_S = 5  # from the connection to the proof
MOST_UNPROVED = 256  # connections; the oldest is dropped for a new one
WAITING = 1024  # connections at the listener
HEAD_BYTES = 4
PAUSE_S = 0.05


class _Peer:
    """One connection."""

    def __init__(self, connection):
        self.socket = connection
        self.since = time.monotonic()
        self.challenge = secrets.token_bytes(wire.NONCE_BYTES)
        self.is_proved = False
        self.input = bytearray()
        self.output = bytearray(self.challenge)
        self.awaited = None  # (keys, what answers when all exist)


class Table:
    """The keys and their values. Takes and returns byte strings."""

    def __init__(self):
        self._values = {}

    def has(self, keys):
        return all(key in self._values for key in keys)

    def set(self, *pairs):
        self._values.update(zip(pairs[::2], pairs[1::2]))
        return []

    def get(self, *keys):
        return [self._values[key] for key in keys]

    def add(self, key, number):
        self._values[key] = b"%d" % (int(self._values.get(key, b"0")) + int(number))
        return [self._values[key]]

    def append(self, key, value):
        self._values[key] = self._values.get(key, b"") + value
        return []

    def compare_set(self, key, expected, desired):
        """As torch's stores: a key that does not exist is set where b"" is expected, and else told as expected."""
        value = self._values.get(key, b"" if expected == b"" else None)
        if value == expected:
            self._values[key] = value = desired
        return [expected if value is None else value]

    def delete(self, key):
        return [b"%d" % (self._values.pop(key, None) is not None)]

    def check(self, *keys):
        return [b"%d" % self.has(keys)]

    def count(self):
        return [b"%d" % len(self._values)]

    def list(self):
        return list(self._values)

    def wait(self, *_):
        return []


OPERATIONS = ("set", "get", "add", "append", "compare_set", "delete", "check", "count", "list", "wait")
WAITS = ("get", "wait")  # for all keys


class Server:
    """Listens from the beginning, and serves until close()."""

    def __init__(self, host=None):
        """host: the address to listen at; None: a Unix socket with a random name, for the ranks of this host."""
        self.secret = secrets.token_bytes(wire.PROOF_BYTES)
        name = b"\0horo-store-" + secrets.token_hex(16).encode()
        self.address = name if host is None else (host, 0)
        self._listener = socket.socket(wire.family_of(self.address), socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen(WAITING)
        self._listener.setblocking(False)
        if host is not None:
            self.address = self._listener.getsockname()[:2]
        self._table = Table()
        self._peers = {}  # descriptor: _Peer
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._woken = socket.socketpair()  # the end of the first ends the thread
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._pid = os.getpid()
        # A daemon: the store lives as long as rank 0, and its thread calls nothing of torch.
        threading.Thread(target=self._run, name="horo_store", daemon=True).start()

    def close(self):
        """Ends the thread, and with it the connections. Of a forked child: closes its copies of the descriptors."""
        self._wake.close()
        if os.getpid() != self._pid:
            self._close_all()

    def _close_all(self):
        self._selector.close()
        for one in (self._listener, self._woken, *(peer.socket for peer in self._peers.values())):
            one.close()

    def _run(self):
        try:
            while True:
                for key, events in self._selector.select(self._time_left()):
                    if key.fileobj is self._woken:
                        return
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fd in self._peers:
                        self._serve(self._peers[key.fd], events)
                self._drop_late()
        finally:
            self._close_all()

    def _unproved(self):
        return [peer for peer in self._peers.values() if not peer.is_proved]  # the oldest first

    def _time_left(self):
        unproved = self._unproved()
        return max(0, unproved[0].since + PROOF_S - time.monotonic()) if unproved else None

    def _drop_late(self):
        for peer in self._unproved():
            if time.monotonic() < peer.since + PROOF_S:
                return
            self._drop(peer)

    def _accept(self):
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._make_room()
            return
        if wire.is_of_another_user(connection):
            connection.close()
            return
        connection.setblocking(False)
        if connection.family != socket.AF_UNIX:
            with contextlib.suppress(OSError):  # its other end may be gone
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(unproved := self._unproved()) >= MOST_UNPROVED:
            self._drop(unproved[0])
        peer = self._peers[connection.fileno()] = _Peer(connection)
        self._selector.register(connection, selectors.EVENT_READ)
        self._serve(peer, selectors.EVENT_WRITE)

    def _make_room(self):
        """No descriptor is left: a stranger gives one up, or the thread waits for one."""
        unproved = self._unproved()
        if unproved:
            self._drop(unproved[0])
        else:
            time.sleep(PAUSE_S)

    def _drop(self, peer):
        del self._peers[peer.socket.fileno()]
        self._selector.unregister(peer.socket)
        peer.socket.close()

    def _serve(self, peer, events):
        """No error of a connection leaves this: it ends that connection."""
        try:
            if events & selectors.EVENT_WRITE:
                self._send(peer)
            if events & selectors.EVENT_READ:
                part = peer.socket.recv(1 << 16)
                if not part:
                    raise ConnectionError("ended")
                peer.input += part
                self._read(peer)
        except BlockingIOError:
            pass
        except (OSError, ValueError):  # it has ended, or breaks the protocol
            if peer.socket.fileno() in self._peers:
                self._drop(peer)

    def _send(self, peer):
        with contextlib.suppress(BlockingIOError):
            while peer.output:
                del peer.output[: peer.socket.send(peer.output)]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.output else 0)
        self._selector.modify(peer.socket, wanted)

    def _read(self, peer):
        if not peer.is_proved and not self._take_proof(peer):
            return
        while len(peer.input) >= HEAD_BYTES:
            end = HEAD_BYTES + wire.length_in(peer.input[:HEAD_BYTES])
            if len(peer.input) < end:
                return
            operation, *parts = wire.unpacked(bytes(peer.input[HEAD_BYTES:end]))
            del peer.input[:end]
            self._handle(peer, operation.decode(), parts)

    def _take_proof(self, peer):
        size = wire.NONCE_BYTES + wire.PROOF_BYTES
        if len(peer.input) < size:
            return False
        answer, theirs = bytes(peer.input[: wire.NONCE_BYTES]), bytes(peer.input[wire.NONCE_BYTES : size])
        if not hmac.compare_digest(theirs, wire.proof(self.secret, b"dial", peer.challenge, answer)):
            raise ConnectionError("a wrong proof")
        del peer.input[:size]
        peer.is_proved = True
        peer.output += wire.proof(self.secret, b"accept", peer.challenge, answer)
        self._send(peer)
        return True

    def _handle(self, peer, operation, parts):
        if operation not in OPERATIONS:
            raise ValueError(f"an operation {operation!r}")
        run = getattr(self._table, operation)
        if operation in WAITS and not self._table.has(parts):
            peer.awaited = parts, run
            return
        self._answer(peer, run, parts)
        if operation not in ("check", "count", "list", *WAITS):
            self._answer_waiting()

    def _answer(self, peer, run, parts):
        """The first part of the answer is empty, or the text of an error."""
        try:
            answer = [b"", *run(*parts)]
        except (TypeError, ValueError) as error:
            answer = [str(error).encode()]
        peer.output += wire.packed(answer)
        self._send(peer)

    def _answer_waiting(self):
        for peer in [peer for peer in self._peers.values() if peer.awaited and self._table.has(peer.awaited[0])]:
            (keys, run), peer.awaited = peer.awaited, None
            try:
                self._answer(peer, run, keys)
            except OSError:
                self._drop(peer)
