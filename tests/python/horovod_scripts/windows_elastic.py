"""A recurrent net on windows of a text: TorchState of a model, an optimizer, a scheduler and an ElasticSampler, which
records batches; losses are averaged and gradients clipped. The function logs each HostsUpdatedInterrupt itself. With
--kill workers kill themselves in a step; an epoch does not end before others have taken their places."""

import argparse
import hashlib
import os
import signal
import time

import torch

import horovod.torch as hvd
from horovod.common.exceptions import HostsUpdatedInterrupt

WINDOWS, BATCH = 90, 3
TEXT = ("the quick brown fox jumps over the lazy dog and the cat watches the fox jump " * 7).strip()
SYMBOLS = sorted(set(TEXT))
CODES = torch.tensor([SYMBOLS.index(c) for c in TEXT])

parser = argparse.ArgumentParser()
parser.add_argument("--kill", type=int, nargs=2, action="append", metavar=("WORKER", "STEP"), default=[])
parser.add_argument("--workers", type=int, default=3)
parser.add_argument("--epochs", type=int, default=4)
args = parser.parse_args()


class Windows(torch.utils.data.Dataset):
    def __len__(self):
        return WINDOWS

    def __getitem__(self, index):
        return index, CODES[5 * index : 5 * index + 9]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(len(SYMBOLS), 8)
        self.cell = torch.nn.GRU(8, 16, batch_first=True)
        self.out = torch.nn.Linear(16, len(SYMBOLS))

    def forward(self, x):
        return self.out(self.cell(self.embedding(x))[0])


def step_of(window):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
    if [worker, state.steps] in args.kill:
        os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    with optimizer.skip_synchronize():
        optimizer.step()
    return loss.detach()


def train_epoch(state):
    for batch, (indices, window) in enumerate(loader):
        loss = step_of(window)
        state.sampler.record_batch(batch, BATCH)
        print("used", state.epoch, *indices.tolist(), flush=True)
        state.steps += 1
        state.losses = [*state.losses, hvd.allreduce(loss, name="loss").item()]
        state.commit() if state.steps % 4 == 0 else state.check_host_updates()
    while hvd.size() < args.workers:
        time.sleep(0.02)
        state.check_host_updates()


@hvd.elastic.run
def train(state):
    try:
        for state.epoch in range(state.epoch, args.epochs):
            train_epoch(state)
            state.schedule.step()
            state.sampler.set_epoch(state.epoch + 1)
    except HostsUpdatedInterrupt as interrupt:
        interrupts.append(interrupt.skip_sync)
        raise


hvd.init()
torch.set_num_threads(1)
worker, interrupts, sizes = int(os.environ["HORO_RANK"]), [], []
torch.manual_seed(7 + worker)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
sampler = hvd.elastic.ElasticSampler(Windows(), shuffle=True, seed=3)
loader = torch.utils.data.DataLoader(Windows(), batch_size=BATCH, sampler=sampler)
state = hvd.elastic.TorchState(
    model=model, optimizer=optimizer, sampler=sampler, schedule=schedule, epoch=0, steps=0, losses=[]
)
state.register_reset_callbacks([lambda: sizes.append(hvd.size())])
train(state)
momenta = [entry["exp_avg"] for entry in optimizer.state_dict()["state"].values()]
content = b"".join(one.numpy().tobytes() for one in (*model.state_dict().values(), *momenta))
digest = hashlib.sha256(content + repr((state.losses, schedule.get_last_lr())).encode()).hexdigest()[:16]
print(f"end {hvd.size()} workers, {state.steps} steps, {digest}, loss {state.losses[-1]:.3f}")
print(f"resets {sizes}")
