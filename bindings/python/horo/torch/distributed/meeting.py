"""The session of the default group: the process's own, or one whose ranks meet through the group's store.

The store is open to every process that reaches it. So ranks of one host meet on loopback, and ranks of several hosts
need HORO_KEY_FILE. With HORO_TRUST_STORE=1 the job key travels through the store: every process that reads the store
can then join the job.
"""

import json
import os
import secrets
import time

from horo import _default
from horo.torch.store import gather

KEY_BYTES = 32
LIMIT = "the timeout of init_process_group"


def join_world(store, rank, size, timeout_s):
    """The session of this rank of the world, and whether it was started here."""
    session = _default.current()
    if session is not None:
        _check(session.topology, rank, size, "horo.init() was called before, in a world")
        return session, False
    if "HORO_RANK" in os.environ and size > 1:
        _default.begin(None, {}, lambda: None)
        _check(_default.session().topology, rank, size, "HORO_RANK and HORO_SIZE describe a world")
    else:
        _default.begin(*settings_among(store, rank, size, timeout_s), lambda: None)
    return _default.session(), True


def settings_among(store, rank, size, timeout_s):
    """(exchange, HORO_* of this rank) for ranks that meet through a store."""
    if size == 1:
        return None, {"HORO_RANK": 0, "HORO_SIZE": 1}
    meeting = _Meeting(store, rank, size, timeout_s)
    return meeting.exchange, meeting.settings()


def agree(store, place, value, timeout_s):
    """The JSON values of all ranks that meet through a store, by rank. place: (rank, size) of this one."""
    return [json.loads(text) for text in _Meeting(store, *place, timeout_s).gather("value", json.dumps(value))]


def _check(topology, rank, size, what):
    if (topology.rank, topology.size) != (rank, size):
        raise ValueError(
            f"{what} in which this process is rank {topology.rank} of {topology.size}; in the process group it is rank "
            f"{rank} of {size}. Expected the same in both"
        )


def host_id():
    """Equal for processes that share a kernel and a network: HORO_HOST_ID, or the boot and the network namespace."""
    given = os.environ.get("HORO_HOST_ID")
    if given:
        return given
    with open("/proc/sys/kernel/random/boot_id") as file:
        return f"{file.read().strip()}/{os.stat('/proc/self/ns/net').st_ino}"


class _Meeting:
    """The ranks of one start, in a store. Every rank starts equally often, so the starts have numbers."""

    def __init__(self, store, rank, size, timeout_s):
        self._store, self._rank, self._size = store, rank, size
        self._until = time.monotonic() + timeout_s
        self._prefix = f"horo/{store.add(f'horo/starts/{rank}', 1)}"

    def gather(self, what, text):
        """The texts of all ranks."""
        keys = [f"{self._prefix}/{what}/{rank}" for rank in range(self._size)]
        self._store.set(keys[self._rank], text)
        return [value.decode() for value in gather(self._store, keys, self._until, LIMIT)]

    def settings(self):
        """HORO_* of this rank."""
        offer = secrets.token_hex(8) if self._rank == 0 else ""
        told = [text.split(" ", 1) for text in self.gather("host", f"{offer or '-'} {host_id()}")]
        hosts = [host for _, host in told]
        mine = [rank for rank, host in enumerate(hosts) if host == hosts[self._rank]]
        chosen = {"HORO_RANK": self._rank, "HORO_SIZE": self._size, "HORO_JOB": f"torch-{told[0][0]}"}
        chosen |= {"HORO_LOCAL_RANK": mine.index(self._rank), "HORO_LOCAL_SIZE": len(mine)}
        has_key = "HORO_KEY_FILE" in os.environ or "HORO_KEY_FD" in os.environ
        if len(mine) < self._size and not has_key:
            chosen["HORO_KEY_FD"] = self._key_through_store(hosts)
        return chosen

    def _key_through_store(self, hosts):
        """A descriptor with the job key, which rank 0 has put into the store."""
        if os.environ.get("HORO_TRUST_STORE") != "1":
            raise ValueError(
                f"the process group has ranks on {len(set(hosts))} hosts, whose connections need a job key, and its "
                "store is open to every process that reaches it: set HORO_KEY_FILE=a file of 32 random bytes, mode "
                "0600, with the same content on every host. HORO_TRUST_STORE=1 sends a key through the store instead: "
                "then every process that reads the store can join the job"
            )
        key = f"{self._prefix}/key"
        if self._rank == 0:
            self._store.set(key, secrets.token_bytes(KEY_BYTES).hex())
        descriptor = os.memfd_create("horo-key")
        os.write(descriptor, bytes.fromhex(gather(self._store, [key], self._until, LIMIT)[0].decode()))
        return descriptor

    def exchange(self, call, mine):
        """See horo._exchange.foreign."""
        del call
        blobs = [bytes.fromhex(text) for text in self.gather("address", mine.hex())]
        self._store.set(f"{self._prefix}/read/{self._rank}", "1")
        if self._rank == 0:  # the store may end with rank 0
            gather(self._store, [f"{self._prefix}/read/{rank}" for rank in range(self._size)], self._until, LIMIT)
        return blobs
