"""Ranks make calls of all kinds in each step (every_call.py), and train two optimizers; some are killed, and others
join. Each result is compared with numpy. Arguments: "horovod" or "state", and the deaths as member:step:kind, of a
function of every_call.KINDS before which the rank dies."""

import hashlib
import os
import signal
import sys

import every_call
import torch

import horo.torch as horo
import horovod.torch as hvd

KIND, DEATHS = sys.argv[1], sys.argv[2:]
ME, SIZE, STEPS, WAITS = every_call.ME, 3, 7, (2, 4, 6)  # steps before which the ranks wait for one that joins

torch.set_num_threads(1)
horo.init()
torch.manual_seed(5 + ME)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), hvd.SyncBatchNorm(4), torch.nn.Linear(4, 1)).double()
other = torch.nn.Linear(3, 1).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer = horo.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
summed = torch.optim.Adam(other.parameters(), lr=0.1)
summed = horo.DistributedOptimizer(summed, named_parameters=other.named_parameters(prefix="other"), op=horo.Sum)
horo.broadcast_parameters({**model.state_dict(), **other.state_dict(prefix="other.")}, root_rank=0)
members, pair = [], None


def train(x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    summed.zero_grad()
    (other(x).square().mean() + other(-x).abs().mean()).backward()
    summed.step()


def digest():
    tensors = (*model.state_dict().values(), *other.state_dict().values())
    return hashlib.sha256(b"".join(one.numpy().tobytes() for one in tensors)).hexdigest()[:16]


def make_calls(step):
    every_call.step = step
    for calls in every_call.KINDS:
        if f"{ME}:{step}:{calls.__name__}" in DEATHS:
            print(f"dies {step} {calls.__name__}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        before = tuple(members)
        for found, expected in calls(before):
            wanted = [expected(ids) for ids in (before, tuple(members))]
            assert any(every_call.agrees(found, one) for one in wanted), (calls.__name__, step, found, wanted)
    if pair is not None and pair.included():
        ids = [members[rank] for rank in pair.ranks]
        found = horo.allgather(every_call.mine(ME + 1), process_set=pair)
        assert every_call.agrees(found, every_call.rows_of(ids, lambda one: one + 1)), (found, ids)
    train(every_call.mine(4 + ME, 3) / 50)
    assert len(set(horo.allgather_object((digest(), step)))) == 1


def keep_members(change):
    if not change.joined:  # else new ones are asked for at the border
        members[:] = [one for rank, one in enumerate(members) if rank not in change.lost]


def check_members():
    assert len(members) == horo.size() and members[horo.rank()] == ME and members == sorted(members), members


horo.on_change(keep_members)
if KIND == "horovod":
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, other=other, summed=summed, step=0)

    @hvd.elastic.run
    def run(state):
        members[:] = hvd.allgather_object(ME)
        check_members()
        while state.step < STEPS:
            while state.step in WAITS and hvd.size() < SIZE:
                state.check_host_updates()
            make_calls(state.step)
            state.step += 1
            state.commit() if state.step % 2 else state.check_host_updates()

else:
    if "HORO_JOINS" not in os.environ:  # made before others join, which are no members
        pair = horo.add_process_set([0, 1], shrinks=True)
    sampler = horo.elastic.Sampler(1000, batch_size=1, seed=3)
    loader = torch.utils.data.DataLoader(range(1000), batch_sampler=sampler)
    fields = {"model": model, "optimizer": optimizer, "other": other, "summed": summed}
    state = horo.elastic.State(sampler=sampler, done=0, ids=list(range(SIZE)), **fields)
    members[:] = state.ids

    @state.on_change
    def follow(change):
        state.ids = sorted({*state.ids, *change.joined} - {*change.lost})
        members[:] = state.ids
        check_members()

    @horo.elastic.run
    def run(state):
        for number in state.passes(100):
            for _ in state.batches(loader):
                if state.done in WAITS and horo.size() < SIZE:
                    train(every_call.mine(4 + ME, 3) / 50)
                    continue
                make_calls(state.done)
                state.done += 1
                if state.done == STEPS:
                    return


run(state)
print("end", digest(), members)
