"""Six ranks train by elastic.run. One dies when it gives its state to the others, and then one in each epoch, in three
ways. Prints what each rank did.

Sample i is a point x_i; the loss is the mean of |theta - x_i|^2 / 2. The gradient of `weights` has the ids of those
that contributed.
"""

import os
import signal

import torch
from torch import nn
from torch.utils.data import DataLoader

import horovod.torch as hvd

SAMPLES, BATCH, EPOCHS = 60, 2, 3
POINTS = torch.randn(SAMPLES, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(7))

torch.set_num_threads(1)
hvd.init()
ID = hvd.rank() - 1  # that of the rank which never trains is -1
pair = hvd.add_process_set([3, 5])  # of the ids 2 and 4
calls, changes, committed = [], [], {}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.theta = nn.Parameter(torch.full((3,), float(ID), dtype=torch.float64))  # those of id 0 are zeros
        self.weights = nn.Parameter(torch.zeros(5, dtype=torch.float64))

    def forward(self, numbers):
        return ((self.theta - POINTS[numbers]) ** 2).sum(1).mean() / 2 + self.weights[ID]


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def values():
    momentum = [entry["momentum_buffer"] for entry in optimizer.state_dict()["state"].values()]
    return [each.detach().clone() for each in (*model.parameters(), *momentum)] + [list(state.history)]


def same(found, expected):
    tensors = zip(found[:-1], expected[:-1], strict=True)
    return found[-1] == expected[-1] and all(torch.equal(a, b) for a, b in tensors)


def end_of_batch(index):
    """What happens between a step and its commit."""
    if ID == 3 and len(state.history) == 3:
        die()  # the others learn of it by this commit
    if state.epoch == 1 and hvd.size() == 4:
        if index == 2:
            return False  # the next step begins without a commit
        if index == 3:
            if ID == 0:
                die()
            hvd.broadcast(torch.zeros(1), root_rank=0)
    if state.epoch == 2 and hvd.size() == 3 and index == 1 and pair.included():
        if ID == 4:
            die()
        hvd.broadcast(torch.zeros(1), root_rank=pair.ranks[1], process_set=pair)
    return True


@hvd.elastic.run
def train(state, word):
    assert word == "word"
    calls.append((state.epoch, hvd.size(), len(state.history)))
    if committed and len(calls) > 2:  # the others died outside of a round: all have gone back
        assert same(values(), committed["last"]), (values(), committed["last"])
        assert model.theta.grad is None or not model.theta.grad.any()
    for state.epoch in range(state.epoch, EPOCHS):
        for index, numbers in enumerate(loader):
            optimizer.zero_grad()
            print("batch", ID, state.epoch, len(state.history), *numbers.tolist(), flush=True)
            model(numbers).backward()
            state.history.append((state.epoch, model.weights.grad.nonzero().flatten().tolist()))
            optimizer.step()
            sampler.record_batch(index, BATCH)
            if end_of_batch(index):
                committed["next"] = values()
                try:
                    state.commit()
                finally:  # an interrupt comes after the save, and a loss before it
                    if same([*values()[:-1], state._saved_state["history"]], committed["next"]):
                        committed["last"] = committed["next"]
        sampler.set_epoch(state.epoch + 1)
    return "done"


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), gradient_as_bucket_view=True)
sampler = hvd.elastic.ElasticSampler(range(SAMPLES), seed=3)
loader = DataLoader(range(SAMPLES), batch_size=BATCH, sampler=sampler)
state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, history=[])
state.register_reset_callbacks([lambda: changes.append((hvd.size(), sampler.num_replicas, len(sampler)))])
if ID == -1:
    state._handlers["optimizer"].sync = die  # the others have got its model by then
assert train(state, "word") == "done"

# A loss that all have gone back for is raised: the set cannot be used any more.
again = hvd.elastic.run(lambda state: hvd.allreduce(torch.ones(1), process_set=pair))
if ID == 2:
    try:
        again(state)
        raise AssertionError("a set that has lost a member was used")
    except hvd.HorovodInternalError as error:
        assert "has lost a member" in str(error), error
else:
    hvd.elastic.run(lambda state: None)(state)
print("end", ID, calls, changes, state.history, model.theta.tolist(), sep="|", flush=True)
assert len(set(map(str, hvd.allgather_object([each.tolist() for each in values()[:-1]])))) == 1
