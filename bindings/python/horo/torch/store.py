"""init() for PyTorch: ranks that torchrun started on several hosts find each other through its store.

The store is a key-value server that anybody who reaches its port can read and write. So it carries addresses alone: who
answers there has to prove that it holds the job key, which is the user's (HORO_KEY_FILE).
"""

import datetime
import os
import time

import torch.distributed

from horo import _sets
from horo.errors import PeerLost

SLICE_S = 1  # the longest that a thread does not look whether the others are there


def init(comm=None, process_sets=None, *, settings=None):
    """horo.init(), which see; under torchrun on several hosts, its store (MASTER_ADDR, MASTER_PORT) is used."""
    _sets.init_with(exchange_over_store, comm, process_sets, settings)


def _open_store(call, timeout_s):
    """torchrun's agent has the server as a rule; where it says that it has not, rank 0 does."""
    if not torch.distributed.is_available():
        raise ValueError("this PyTorch was built without torch.distributed: set HORO_ADDR and HORO_KEY_FILE")
    agent_has_it = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return torch.distributed.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=call.rank == 0 and not agent_has_it,
        timeout=datetime.timedelta(seconds=timeout_s),
        wait_for_workers=False,
        multi_tenant=True,
    )


def _gather(store, keys, until):
    """The values of the keys; PeerLost, naming the ranks whose keys have not come."""
    missing = list(enumerate(keys))
    while missing:
        left = until - time.monotonic()
        if left <= 0:
            ranks = [rank for rank, _ in missing]
            names = "rank " + str(ranks[0]) if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))
            raise PeerLost(f"{names} did not come to torchrun's store in time (HORO_START_TIMEOUT_MS)", ranks[0])
        try:
            store.wait([missing[0][1]], datetime.timedelta(seconds=min(left, SLICE_S)))
        except RuntimeError:  # torch.distributed.DistStoreError is one: not yet
            pass
        missing = [(rank, key) for rank, key in missing if not store.check([key])]
    return [store.get(key) for key in keys]


def exchange_over_store(call, mine):
    """An all-gather of one blob per rank. No key is used twice: not by a restart of the ranks, nor by a later init."""
    until = time.monotonic() + call.timeout_ms / 1000
    try:
        store = _open_store(call, call.timeout_ms / 1000)
        run = f"horo/{os.environ.get('TORCHELASTIC_RUN_ID', '')}/{call.size}/{call.start}"
        number = store.add(f"{run}/starts/{call.rank}", 1)
        keys = [f"{run}/{number}/{rank}" for rank in range(call.size)]
        store.set(keys[call.rank], mine.hex())
        blobs = [bytes.fromhex(value.decode()) for value in _gather(store, keys, until)]
        store.set(f"{keys[call.rank]}/read", "1")
        if call.rank == 0:  # whose end may be the store's
            _gather(store, [f"{key}/read" for key in keys], until)
        return blobs
    except RuntimeError as error:
        if isinstance(error, PeerLost):
            raise
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise PeerLost(f"rank {call.rank} lost torchrun's store at {where}: {error}", -1) from error
