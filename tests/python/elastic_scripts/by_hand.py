# A State of the user's own, whose save(), restore() and sync() are written by hand with calls that have no names; its
# reset callback averages something and commits. The update is by hand, too.
import copy
import os
import time

import torch

import horovod.torch as hvd

STEPS, WORKERS = 12, 3


class Own(hvd.elastic.State):
    def __init__(self, **values):
        self.values = values
        super().__init__(bcast_object=hvd.broadcast_object, get_rank=hvd.rank)

    def save(self):
        self.saved = copy.deepcopy(self.values)

    def restore(self):
        self.values = copy.deepcopy(self.saved)

    def sync(self):
        for tensor in self.values["weights"]:
            hvd.broadcast_(tensor, 0)
        handles = [hvd.broadcast_async_(tensor, 0) for tensor in self.values["velocity"]]
        self.values["step"] = hvd.broadcast_object(self.values["step"], 0)
        self.values["seen"] = max(hvd.allgather_object(self.values["seen"]), key=len)
        for handle in handles:
            hvd.synchronize(handle)
        hvd.barrier()
        numbers = hvd.allgather(torch.tensor([self.values["origin"]]))
        self.values["origin"] = numbers[0].item()
        self.save()


def check(values):
    origin, step = values["origin"], values["step"]
    for tensor in values["weights"]:
        assert tensor.tolist() == [origin - step * (step + 1) / 2] * 4, values
    for tensor in values["velocity"]:
        assert tensor.tolist() == [step + origin / 4] * 4, values
    assert values["seen"] == list(range(step)), values


@hvd.elastic.run
def train(state):
    assert len(set(hvd.allgather_object((state.values["origin"], state.values["step"])))) == 1
    while state.values["step"] < STEPS:
        check(state.values)
        values = state.values
        one = hvd.allreduce(torch.ones(4))
        for weights, velocity in zip(values["weights"], values["velocity"]):
            velocity += one
            weights -= velocity - values["origin"] / 4
        values["seen"].append(values["step"])
        values["step"] += 1
        if values["step"] in (3, 6, 9):
            while hvd.size() < WORKERS:
                time.sleep(0.01)
                state.check_host_updates()
        state.commit()


def on_reset():
    factors.append(hvd.allreduce(torch.ones(1), op=hvd.Sum).item())
    state.commit()


hvd.init()
worker, factors = int(os.environ["HORO_RANK"]), []
state = Own(
    weights=[torch.full((4,), float(worker)) for _ in range(3)],
    velocity=[torch.full((4,), worker / 4) for _ in range(3)],
    step=0,
    seen=[],
    origin=worker,
)
state.register_reset_callbacks([on_reset])
train(state)
check(state.values)
assert all(factor >= 1 for factor in factors), factors
print("end", state.values["step"], state.values["origin"], state.values["weights"][0].tolist(), state._commits)
