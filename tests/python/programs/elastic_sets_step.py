"""Ranks 0 and 1 of three train in a process set; rank 1 dies between backward() and step(). The round is complete, so
step() of rank 0 applies it, although the set is lost by then; the next backward() raises PeerLost.

    elastic_sets_step.py plain|views|priority
"""

import os
import signal
import sys
import time

import torch

import horo.torch as hvd

torch.set_num_threads(1)
hvd.init()
OPTIONS = {"plain": {}, "views": {"gradient_as_bucket_view": True}, "priority": {"priority": "forward"}}[sys.argv[1]]
ID, LAST = hvd.rank(), 4
changes = []
hvd.on_change(changes.append)
part = hvd.add_process_set([0, 1])
model = torch.nn.Linear(3, 1, bias=False)
torch.nn.init.zeros_(model.weight)
optimizer = torch.optim.SGD(model.parameters(), 1.0)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), process_set=part, **OPTIONS)


def backward():
    optimizer.zero_grad()
    model(torch.full((3,), float(ID + 1))).backward()


def await_change():
    deadline = time.monotonic() + 20
    while not changes:
        assert time.monotonic() < deadline, "the loss of rank 1 is not seen"
        time.sleep(0.01)
        hvd.barrier()


for step in range(LAST + 1 if part.included() else 0):
    backward()
    if step == LAST and ID == 1:
        time.sleep(0.2)  # rank 0 has returned from backward()
        os.kill(os.getpid(), signal.SIGKILL)
    if step == LAST:
        await_change()
    optimizer.step()
    assert model.weight.tolist() == [[-1.5 * (step + 1)] * 3], (step, model.weight)
if ID == 0:
    try:
        backward()
        raise SystemExit("backward() of a lost set does not raise")
    except hvd.PeerLost as error:
        assert "process set 1 has lost a member: rank 1" in str(error), error
    print("the last round is applied", flush=True)
else:
    await_change()
hvd.shutdown()
