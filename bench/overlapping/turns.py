"""The turns of one rank: the step of each contestant, and the transfer alone."""

import hashlib
import time

import torch
from overlapping import layers
from training import machine

import horo.torch as hvd

WARM_TURNS = 6  # until plans are known
PATIENCE_S = 2  # the longest wait for an idle machine before a round
CONTESTANTS = {
    "fifo-barrier": {},
    "priority-barrier": {"priority": "forward"},
    "fifo": {"cross_barrier": True},
    "priority": {"priority": "forward", "cross_barrier": True},
}


class Contestant:
    def __init__(self, name, options):
        self.crosses = CONTESTANTS[name].get("cross_barrier", False)
        self._model = layers.model_of(options.layers, options.elements)
        named = [(f"{name}.{key}", param) for key, param in self._model.named_parameters()]
        sgd = torch.optim.SGD(self._model.parameters(), lr=1 / 1024)
        self._optimizer = hvd.DistributedOptimizer(sgd, named, **CONTESTANTS[name])
        self._turns = 0

    def turn(self, forward_s, backward_s):
        """Returns seconds. "backward" is the duration of the layers' backward. The others are counted from its end,
        before loss.backward() returns: "reduced" until all gradients are reduced (None where step() does not wait),
        "first" until the first layer of the next forward begins, "forward" until the last layer ends."""
        model, optimizer = self._model, self._optimizer
        layers.pace(model, 0.0, backward_s)
        self._turns += 1
        layers.set_gradients(model, self._turns, hvd.rank())
        optimizer.zero_grad()
        x = torch.zeros(1, requires_grad=True)
        loss = model(x).sum()
        layers.pace(model, forward_s, backward_s)
        hvd.barrier()
        begin = time.perf_counter()
        loss.backward()
        end = model[0].ended
        reduced = None
        if self.crosses:
            optimizer.step()
        else:
            optimizer.synchronize()
            reduced = time.perf_counter() - end
            with optimizer.skip_synchronize():
                optimizer.step()
        model(x)
        done = time.perf_counter()
        optimizer.synchronize() if self.crosses else None
        first = model[0].began
        return {"backward": end - begin, "reduced": reduced, "first": first - end, "forward": done - end}

    def sha256(self):
        sha = hashlib.sha256()
        for layer in self._model:
            sha.update(layer.weight.detach().numpy().tobytes())
        return sha.hexdigest()


class Transfer:
    """Reduces all gradients at once, without computing."""

    def __init__(self, options):
        self._tensors = [torch.ones(options.elements) for _ in range(options.layers)]

    def turn(self):
        hvd.barrier()
        begin = time.perf_counter()
        handles = [hvd.allreduce_async_(t, name=f"alone.{i}") for i, t in enumerate(self._tensors)]
        for handle in handles:
            hvd.synchronize(handle)
        return time.perf_counter() - begin


def slowest(turn):
    """The maximum over ranks of each value."""
    values = torch.tensor([-1.0 if value is None else value for value in turn.values()], dtype=torch.float64)
    values = hvd.allreduce(values, op=hvd.Max, name="slowest").tolist()
    return {key: None if value < 0 else value for key, value in zip(turn, values)}


def wait_until_quiet():
    """Waits for a quiet machine on rank 0, while the other ranks sleep; returns 1 on rank 0 if it is quiet, else 0."""
    quiet = hvd.rank() == 0 and machine.wait_until_quiet(PATIENCE_S)
    hvd.barrier()
    return int(quiet)


def play(options):
    """Plays all rounds. Returns the seconds of all turns, {backward_ms: {"transfer": [...], contestant: {"backward":
    [...], ...}}}; for each round, whether the machine was quiet; and whether all parameters are equal at the end.
    The first contestant changes with each round."""
    field = {name: Contestant(name, options) for name in CONTESTANTS}
    transfer = Transfer(options)
    for _ in range(WARM_TURNS):
        for one in field.values():
            one.turn(0.0, 0.01)
    transfer.turn()
    names, cases, quiet = list(field), {}, []
    for number in range(options.rounds):
        quiet.append(wait_until_quiet())
        for backward_ms in options.backward_ms:
            case = cases.setdefault(backward_ms, {"transfer": [], **{name: {} for name in names}})
            case["transfer"].append(slowest({"transfer": transfer.turn()})["transfer"])
            for i in range(len(names)):
                name = names[(number + i) % len(names)]
                found = slowest(field[name].turn(options.forward_ms / 1000, backward_ms / 1000))
                for key, value in found.items():
                    case[name].setdefault(key, []).append(value)
    digests = {sha for one in field.values() for sha in hvd.allgather_object(one.sha256())}
    return cases, quiet, len(digests) == 1
