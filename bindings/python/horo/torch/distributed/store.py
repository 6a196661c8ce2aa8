"""The store that torch.distributed needs, under `horo run`: rank 0 serves it (store_server.py), to processes that hold
its secret alone. The secret travels over horo's own connections."""

import json
import os
import socket
import threading
import time
import weakref

import torch
import torch.distributed as dist

from horo import _default
from horo.torch.distributed.store_server import WAITS, Server
from horo.torch.distributed.store_wire import Dialed
from horo.torch.ops import broadcast_

TOLD_BYTES = 1024  # of the message that tells the address and the secret
NAME = "address of the store of torch.distributed"

_kept = []  # the stores of this meeting and the one before: torch holds what a Store in Python inherits, not the Store
_opened = weakref.WeakSet()  # stores and servers of this process, whose descriptors a forked child closes


def _as_bytes(value):
    return value if isinstance(value, bytes) else str(value).encode()


class Store(dist.Store):
    """See torch.distributed.Store. A thread has a connection of its own, so a wait in one delays no other."""

    def __init__(self, address, secret, server=None):
        super().__init__()
        self._address, self._secret, self._server = address, secret, server
        self._of_thread = threading.local()
        _opened.add(self)

    def forget_connections(self):
        """In a forked child, whose copies are the parent's."""
        for opened in (getattr(self._of_thread, "connection", None), self._server):
            if opened is not None:
                opened.close()
        self._of_thread, self._server = threading.local(), None

    def close(self):
        """Rank 0: ends the server."""
        if self._server is not None:
            self._server.close()

    def _ask(self, operation, *parts, timeout=None):
        """What rank 0 answers, byte strings."""
        seconds = (self.timeout if timeout is None else timeout).total_seconds()
        try:
            problem, *answer = self._asked([operation.encode(), *map(_as_bytes, parts)], time.monotonic() + seconds)
        except TimeoutError:
            keys = ", ".join(map(str, parts if operation in WAITS else parts[:1]))
            raise dist.DistStoreError(
                f"{operation} of the store of torch.distributed: no answer within {1000 * seconds:.0f} ms, keys: {keys}"
            ) from None
        except OSError as error:
            raise dist.DistNetworkError(
                f"{operation} of the store of torch.distributed: rank 0, which serves the store, does not answer: "
                f"{error}"
            ) from error
        if problem:
            raise dist.DistStoreError(f"{operation} of the store of torch.distributed: {problem.decode()}")
        return answer

    def _asked(self, parts, until):
        mine = self._of_thread
        connection, mine.connection = getattr(mine, "connection", None), None
        connection = connection or Dialed(self._address, self._secret, until)
        try:
            answer = connection.ask(parts, until)
        except BaseException:  # an answer that comes later would be taken for that to the next question
            connection.close()
            raise
        mine.connection = connection
        return answer

    def set(self, key, value):
        self._ask("set", key, value)

    def get(self, key):
        return self._ask("get", key)[0]

    def add(self, key, amount):
        return int(self._ask("add", key, amount)[0])

    def append(self, key, value):
        self._ask("append", key, value)

    def compare_set(self, key, expected_value, desired_value):
        return self._ask("compare_set", key, expected_value, desired_value)[0]

    def check(self, keys):
        return self._ask("check", *keys)[0] == b"1"

    def wait(self, keys, timeout=None):
        self._ask("wait", *keys, timeout=timeout)

    def multi_get(self, keys):
        return self._ask("get", *keys) if keys else []

    def multi_set(self, keys, values):
        self._ask("set", *(part for pair in zip(keys, values, strict=True) for part in pair))

    def delete_key(self, key):
        return self._ask("delete", key)[0] == b"1"

    def num_keys(self):
        return int(self._ask("count")[0])

    def list_keys(self):
        return [key.decode() for key in self._ask("list")]

    def has_extended_api(self):
        return True

    def clone(self):
        other = Store(self._address, self._secret)
        other.set_timeout(self.timeout)
        _kept[-1].append(other)
        return other

    deleteKey, getNumKeys = delete_key, num_keys  # the names by which a PrefixStore calls them


def _told(text):
    """The text of rank 0, on every rank."""
    blob = torch.zeros(TOLD_BYTES, dtype=torch.uint8, device="cpu")
    if text is not None:
        told = text.encode().ljust(TOLD_BYTES)
        blob = torch.frombuffer(bytearray(told), dtype=torch.uint8)
    broadcast_(blob, 0, name=NAME)
    return bytes(blob.tolist()).decode()


def meet_by_horo(timeout):
    """For a rank that horo.init() can place: yields (store, rank, size)."""
    _default.begin(None, None, lambda: None)
    topology = _default.session().topology
    is_one_host = topology.local_size == topology.size
    server, text = None, None
    if topology.rank == 0:
        server = Server(None if is_one_host else own_address())
        _opened.add(server)
        address = server.address.decode() if is_one_host else server.address
        text = json.dumps([address, server.secret.hex()])
    address, secret = json.loads(_told(text))
    store = Store(address.encode() if is_one_host else tuple(address), bytes.fromhex(secret), server)
    store.set_timeout(timeout)
    _kept.append([store])
    for old in _kept[:-2]:
        old[0].close()
    del _kept[:-2]
    yield store, topology.rank, topology.size


def own_address():
    """The address by which the other hosts reach this one."""
    host, _, port = (_default.session().setting("HORO_ADDR") or "127.0.0.1:1").rpartition(":")
    family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:  # connecting a datagram socket sends nothing: it asks the routing table
        probe.connect(address)
        return probe.getsockname()[0]


def _in_child():
    for one in list(_opened):
        one.forget_connections() if isinstance(one, Store) else one.close()


os.register_at_fork(after_in_child=_in_child)
