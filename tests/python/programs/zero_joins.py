"""Ranks with a divided optimizer die, and others join in their place in the middle of a pass. After each step all have
the bits and the state of an optimizer that is not divided and gets the same gradients.

Arguments: deaths as number:step."""

import os
import signal
import sys
import time

import torch
from torch.utils.data import DataLoader
from zero_models import divided_state_bytes, sha, sha_of_state

import horo
import horo.torch as hvd

DEATHS = sys.argv[1:]
SAMPLES, PASSES = 120, 4
torch.set_num_threads(1)
hvd.init()
ID = hvd.rank() if "HORO_JOINS" not in os.environ else None
torch.manual_seed(2)
model = torch.nn.Sequential(torch.nn.Linear(6, 300), torch.nn.Tanh(), torch.nn.Linear(300, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
optimizer = horo.zero.DistributedOptimizer(optimizer, model.named_parameters())
data = torch.randn(SAMPLES, 6, generator=torch.Generator().manual_seed(3))
sampler = horo.elastic.Sampler(SAMPLES, batch_size=2, seed=3)
loader = DataLoader(data, batch_sampler=sampler)
state = horo.elastic.State(model=model, optimizer=optimizer, scheduler=scheduler, sampler=sampler, sizes=[])
oracle = [param.detach().clone().requires_grad_() for param in model.parameters()]
alone = torch.optim.AdamW(oracle, lr=0.01)
alone_too = torch.optim.lr_scheduler.StepLR(alone, 10)


def compare():
    """The state after this step, on all ranks; on one that was there from the start it is that of the oracle."""
    optimizer.gather_state(None)
    mine = sha(model.parameters()), sha_of_state({"param_groups": [], "state": optimizer.state_dict()["state"]})
    assert set(hvd.allgather_object(mine)) == {mine}
    if ID is not None:
        assert mine == (sha(oracle), sha_of_state({"param_groups": [], "state": alone.state_dict()["state"]}))
    elements = sum(-(-param.numel() // 256) * 256 for param in oracle)  # blocks are dealt
    copies = 1 if hvd.size() == 1 else 2
    assert divided_state_bytes(optimizer) <= 8 * copies * (elements / hvd.size() + 256)


@horo.elastic.run
def train(state):
    for _ in state.passes(PASSES):
        for batch in state.batches(loader):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            for one, param in zip(oracle, model.parameters()):
                one.grad = param.grad.clone()
            if f"{ID}:{state.step}" in DEATHS:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.step()
            alone.step()
            scheduler.step()
            alone_too.step()
            state.sizes = [*state.sizes, hvd.size()]
            compare()
            time.sleep(0.3 if hvd.size() < 3 else 0)  # room for processes that start


train(state)
if hvd.rank() == 0:
    print("end", state.sizes, flush=True)
