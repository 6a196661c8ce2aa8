"""Ranks train with an optimizer, plain or divided, and die at named places. Rank 0 prints the sha256 of the parameters.

Arguments: "plain" or "zero", then deaths as number:place:step, and "early" for a gather of the state before step 0, as
step -1. Places: "backward", "between" (before the update),
"updated", and, of the divided optimizer, "before" or "after" with a word of its gathers: before-step, after-rescue,
before-objects. Under plain horo such a rank dies after its step: it has contributed in both."""

import collections
import os
import signal
import sys

import torch
from zero_models import Odd, batches, loss_of, sha_of, two_groups, wrapped

import horo.torch as hvd
from horo.torch.sharding import layout

STEPS = 8
KIND, *DEATHS = sys.argv[1:]
layout.CHUNK_BYTES = 4000  # several in a step: before-step is before the first one, after-step after it
torch.set_num_threads(1)
hvd.init()
ID = hvd.rank()
step, calls = 0, collections.Counter()


def die_if(*places):
    if any(f"{ID}:{place}:{step}" in DEATHS for place in places):
        os.kill(os.getpid(), signal.SIGKILL)


def dying(call, word=None):
    """The call, with places before and after it."""

    def called(*args, **options):
        name = word or args[1]
        calls[name] += 1
        die_if(f"before-{name}")
        result = call(*args, **options)
        die_if(f"after-{name}")
        return result

    return called


model = Odd().add_empty()
optimizer = wrapped(KIND, torch.optim.AdamW(two_groups(model), lr=0.01), model)
hvd.broadcast_parameters(model.state_dict(), 0)
model.down.weight.register_hook(lambda _: die_if("backward"))
optimizer.register_step_pre_hook(lambda *_: die_if("between"))
if KIND == "zero":
    gather, update = optimizer._zero.gather, optimizer._zero.update
    gather.tensors, gather.objects = dying(gather.tensors), dying(gather.objects, "objects")
    optimizer._zero.update = lambda step: (update(step), die_if("updated"))
else:
    later = [place for death in DEATHS for _, place, _ in [death.split(":")] if place not in ("backward", "between")]
    optimizer.register_step_post_hook(lambda *_: die_if(*later))
if "early" in sys.argv:
    step = -1
    optimizer.gather_state()  # before all ranks have a layout
for step, words in enumerate(batches(ID, STEPS)):
    optimizer.zero_grad()
    loss_of(model, words).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    try:
        optimizer.step()
    except hvd.HoroError as error:
        assert type(error).__name__ == "ShardLost", error
        print("lost", str(error), flush=True)
        sys.exit()
if KIND == "zero":
    assert calls["step"] > 3 * STEPS, "the gathers are in chunks"
    trained = [param.detach().clone() for param in model.parameters()]
    if hvd.rank() == 1:  # parameters of another kind, such as an average, are there for a while
        model.load_state_dict({name: value * 0 for name, value in model.state_dict().items()})
    optimizer.gather_state()
    if hvd.rank() != 1:
        assert all(map(torch.equal, trained, model.parameters())), "a gather of state writes no parameter"
    for param, value in zip(model.parameters(), trained):
        param.data.copy_(value)
    if hvd.rank() == 0:
        assert all(entry["step"].item() == STEPS for entry in optimizer.state_dict()["state"].values())
digest = sha_of(model)
if hvd.rank() == 0:
    print("end", digest, flush=True)
