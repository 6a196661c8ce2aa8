"""Functions that consist of several collectives, and a rank that dies between two of them:

    elastic_parts.py CALL world|set|apart VICTIM STARTED

The victim kills itself when it has started so many collectives of the call, and the last of them has ended; "end":
after the call. The root is rank 1. The set has ranks 0 to 3 of five, and shrinks. apart: the set has ranks 1 to 3 of
four, and rank 0 has died when its members begin the call.
"""

import os
import signal
import sys

import torch

import horo.torch as hvd
from horo._session import Session

torch.set_num_threads(1)
CALL, WHERE, VICTIM, STARTED = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
hvd.init()
ID = hvd.rank()
SETS = {"set": [0, 1, 2, 3], "apart": [1, 2, 3]}
part = hvd.add_process_set(SETS[WHERE], shrinks=True) if WHERE in SETS else hvd.global_process_set
works = None  # of the call
told = []


def submit_or_die(session, *arguments, submit=Session.submit, **options):
    if works is not None and ID == VICTIM and str(len(works)) == STARTED:
        while works and not session.has_ended(works[-1]):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    work = submit(session, *arguments, **options)
    if works is not None:
        works.append(work)
    return work


Session.submit = submit_or_die
hvd.on_change(lambda change: told.append((change.lost, len(works))))


def parameters(where):
    """Three tensors."""
    tensors = [torch.full((size,), float(ID)) for size in (1, 100, 50_000)]
    hvd.broadcast_parameters(tensors, 1, process_set=where)
    values = {tensor.unique().item() for tensor in tensors}
    assert len(values) == 1, values
    return int(values.pop())


def thing(where):
    """An object whose length depends on the rank."""
    found = hvd.broadcast_object([ID] * 10 ** (ID + 1), 1, "thing", where)
    assert found == [found[0]] * 10 ** (found[0] + 1)
    return found[0]


def state(where):
    """An optimizer's state: its size, its outline, and a tensor for each of the moments and steps."""
    layer = torch.nn.Linear(ID + 2, 1)
    optimizer = torch.optim.Adam(layer.parameters(), lr=ID + 1.0)
    for _ in range(ID + 1):
        optimizer.zero_grad()
        layer(torch.ones(ID + 2)).sum().backward()
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, 1, process_set=where)
    of = int(optimizer.param_groups[0]["lr"]) - 1
    entries = optimizer.state_dict()["state"].values()
    assert {entry["step"].item() for entry in entries} == {of + 1.0}
    assert [entry["exp_avg"].numel() for entry in entries] == [of + 2, 1]
    assert all(entry["exp_avg"].unique().numel() == 1 for entry in entries)
    return of


def objects(where):
    found = hvd.allgather_object("x" * (10 * ID + 1), "objects", where)
    return "".join(str((len(text) - 1) // 10) for text in found)


def sparse(where):
    mine = torch.sparse_coo_tensor([[ID, 5]], [1.0, 2.0**ID], (6,))
    dense = hvd.sparse_allreduce_async(mine, "sparse", hvd.Sum, where)().to_dense().tolist()
    ids = [rank for rank in range(4) if int(dense[5]) >> rank & 1]
    assert dense[:5] == [float(rank in ids) for rank in range(5)], dense
    return "".join(map(str, ids))


calls = {"parameters": parameters, "thing": thing, "state": state, "objects": objects, "sparse": sparse}
pids = hvd.allgather_object(os.getpid())
if WHERE == "apart" and ID == VICTIM:
    os.kill(os.getpid(), signal.SIGKILL)
while WHERE == "apart" and os.path.exists(f"/proc/{pids[VICTIM]}"):
    pass
if part.included():
    works = []
    print("found", calls[CALL](part), flush=True)
    assert told in ([], [((VICTIM,), len(works))]), (told, len(works))  # at the end of the call
    if ID == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
works = []
hvd.barrier()
if part.included():
    print("after", calls[CALL](part), part.size(), flush=True)
hvd.barrier()
