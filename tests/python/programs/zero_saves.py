"""Ranks of an elastic job save a divided optimizer. One dies when the rows of the state are dealt, and before they are
written. The others save all of it, which a plain optimizer loads.

Arguments: a folder."""

import os
import signal
import sys

import torch
from zero_models import Odd, batches, sha_of_state, train, two_groups, wrapped

import horo
import horo.torch as hvd
from horo.checkpoint import content

torch.set_num_threads(1)
hvd.init()
tensors = content.Content.tensors


def made(kind):
    model = Odd().add_empty()
    return model, wrapped(kind, torch.optim.AdamW(two_groups(model), lr=0.01), model)


def dying(self):
    if hvd.rank() == 1 and hvd.size() == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return tensors(self)


model, optimizer = made("zero")
train(model, optimizer, batches(0, 3))
optimizer.gather_state(None)
expected = sha_of_state(optimizer.state_dict())
content.Content.tensors = dying
horo.checkpoint.save(sys.argv[1], {"model": model, "optimizer": optimizer}).wait()
model, optimizer = made("plain")
horo.checkpoint.load(sys.argv[1], {"model": model, "optimizer": optimizer})
assert sha_of_state(optimizer.state_dict()) == expected
print("end", hvd.size(), flush=True)
