"""init() for PyTorch: ranks that torchrun started on several hosts exchange addresses through torchrun's store.

The store is a key-value server that any process with access to its port can read and write. Only addresses are stored
there: a peer at such an address has to prove that it holds the job key (HORO_KEY_FILE).
"""

import datetime
import os
import time

import torch.distributed

from horo import _sets
from horo.errors import PeerLost

SLICE_S = 1  # the longest time between two checks for the other ranks' keys


def init(comm=None, process_sets=None, *, settings=None):
    """See horo.init(). Under torchrun on several hosts, its store (MASTER_ADDR, MASTER_PORT) is used."""
    _sets.init_with(exchange_over_store, comm, process_sets, settings)


def _open_store(call, timeout_s):
    """Opens the store. Its server runs in torchrun's agent or, without TORCHELASTIC_USE_AGENT_STORE, in rank 0."""
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


def gather(store, keys, until, limit="HORO_START_TIMEOUT_MS"):
    """The values of the keys. Raises PeerLost with the ranks whose keys are missing at the deadline, which `limit`
    sets."""
    missing = list(enumerate(keys))
    while missing:
        left = until - time.monotonic()
        if left <= 0:
            ranks = [rank for rank, _ in missing]
            names = "rank " + str(ranks[0]) if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))
            raise PeerLost(f"{names} did not register in the store in time ({limit})", ranks[0])
        try:
            store.wait([missing[0][1]], datetime.timedelta(seconds=min(left, SLICE_S)))
        except RuntimeError:  # the timeout, torch.distributed.DistStoreError, is a RuntimeError
            pass
        missing = [(rank, key) for rank, key in missing if not store.check([key])]
    return [store.get(key) for key in keys]


def exchange_over_store(call, mine):
    """An all-gather of one blob per rank. A restart of the ranks and a later init use other keys."""
    until = time.monotonic() + call.timeout_ms / 1000
    try:
        store = _open_store(call, call.timeout_ms / 1000)
        run = f"horo/{os.environ.get('TORCHELASTIC_RUN_ID', '')}/{call.size}/{call.start}"
        number = store.add(f"{run}/starts/{call.rank}", 1)
        keys = [f"{run}/{number}/{rank}" for rank in range(call.size)]
        store.set(keys[call.rank], mine.hex())
        blobs = [bytes.fromhex(value.decode()) for value in gather(store, keys, until)]
        store.set(f"{keys[call.rank]}/read", "1")
        if call.rank == 0:  # the store may end with rank 0
            gather(store, [f"{key}/read" for key in keys], until)
        return blobs
    except RuntimeError as error:
        if isinstance(error, PeerLost):
            raise
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise PeerLost(f"rank {call.rank} lost torchrun's store at {where}: {error}", -1) from error
