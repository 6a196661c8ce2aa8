"""hvd.elastic.run with a divided optimizer. Prints digests of what a TorchState saves, before the first step and after
each commit, of a restored state and of the parameters at the end: those of plain horo.

Arguments: plain or zero; the member that dies in the fourth batch, in an elastic job, or none."""

import copy
import os
import signal
import sys

import torch
from zero_models import Odd, batches, sha_of, sha_of_state, train, two_groups, wrapped

import horo
import horo.torch as hvd
from horo.torch import elastic

KIND, DIES = sys.argv[1], sys.argv[2:]
torch.set_num_threads(1)
hvd.init()
ME = horo.members()[hvd.rank()]
digests = []


def plain():
    model = Odd().add_empty()
    return model, torch.optim.AdamW(two_groups(model), lr=0.01)


def earlier():
    """The state_dict() of an earlier job."""
    model, optimizer = plain()
    for param in model.parameters():
        param.grad = torch.full_like(param, 0.125)
    optimizer.step()
    return optimizer.state_dict()


def whole(optimizer):
    if KIND == "zero":
        optimizer.gather_state(None)
    return sha_of_state(optimizer.state_dict())


model, optimizer = plain()
optimizer = wrapped(KIND, optimizer, model)
if hvd.rank() == 0:
    optimizer.load_state_dict(earlier())
hvd.broadcast_optimizer_state(optimizer, 0)
state = elastic.TorchState(model=model, optimizer=optimizer, batch=0)


@elastic.run
def function(state):
    digests.append(sha_of_state(state._handlers["optimizer"]._saved))
    while state.batch < 6:
        if state.batch == 3 and DIES == [str(ME)]:
            os.kill(os.getpid(), signal.SIGKILL)
        train(model, optimizer, batches(state.batch, 1))
        state.batch += 1
        if state.batch % 2 == 0:
            if state.batch == 4 and KIND == "zero":
                optimizer.gather_state(0)  # of one rank alone
            state.commit()
            digests.append(sha_of_state(state._handlers["optimizer"]._saved))


function(state)
assert digests[0] == sha_of_state(earlier()), "not the state of the earlier job"
before = copy.deepcopy(state._handlers["optimizer"]._saved)
train(model, optimizer, batches(6, 1))
state.restore()
digests.append(whole(optimizer))
assert digests[-1] == digests[-2] == sha_of_state(before)
train(model, optimizer, batches(6, 2))
state.sync()
state.save()
digests.append(sha_of_state(state._handlers["optimizer"]._saved))
train(model, optimizer, batches(8, 1))
digests.append(sha_of(model))
print("digests", *digests, flush=True)
hvd.shutdown()
