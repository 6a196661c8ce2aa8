"""Saves what a plain and a divided optimizer have after some steps, on this number of ranks, and loads what other
numbers of ranks have saved, into both. Prints the number of ranks that has saved, and the sha256 of the state that was
loaded, and of parameters and state after two more steps. All ranks have equal batches.

Arguments: a folder, the names to load."""

import os
import sys

import torch
from zero_models import Odd, batches, sha_of, sha_of_state, train, two_groups, wrapped

import horo
import horo.torch as hvd

FOLDER, *OTHERS = sys.argv[1:]
torch.set_num_threads(1)
hvd.init()


def made(kind):
    model = Odd().add_empty()
    return model, wrapped(kind, torch.optim.AdamW(two_groups(model), lr=0.01), model)


def gathered(kind, optimizer):
    if kind == "zero":
        optimizer.gather_state(None)
    return optimizer.state_dict()


def go_on(kind, model, optimizer, source):
    state = sha_of_state(gathered(kind, optimizer))
    train(model, optimizer, batches(0, 2, seed=5))
    after = sha_of(model), sha_of_state(gathered(kind, optimizer))
    if hvd.rank() == 0:
        print("loaded", source, kind, state, *after, flush=True)


for kind in ("plain", "zero"):
    model, optimizer = made(kind)
    train(model, optimizer, batches(0, 4))
    name = f"{FOLDER}/{kind}{hvd.size()}"
    horo.checkpoint.save(name, {"model": model, "optimizer": optimizer}).wait()
    content = {"model": model.state_dict(), "optimizer": gathered(kind, optimizer)}
    if hvd.rank() == 0:
        torch.save(content, f"{name}.pt")
    go_on(kind, model, optimizer, "itself")
hvd.barrier()
for name in OTHERS:
    for kind in ("plain", "zero"):
        model, optimizer = made(kind)
        content = torch.load(f"{FOLDER}/{name}.pt")
        model.load_state_dict(content["model"])
        if hvd.rank() == 0:
            optimizer.load_state_dict(content["optimizer"])
        hvd.broadcast_optimizer_state(optimizer, 0)
        go_on(kind, model, optimizer, name[-1])
        model, optimizer = made(kind)
        horo.checkpoint.load(os.path.join(FOLDER, name), {"model": model, "optimizer": optimizer})
        assert kind == "plain" or not optimizer.state, "each rank has its part alone"
        go_on(kind, model, optimizer, name[-1])
hvd.shutdown()
