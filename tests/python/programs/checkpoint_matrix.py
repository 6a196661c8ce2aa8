"""Saves on n ranks and loads on m, n and m in 1 to the number of processes: all fields have equal bits, buffers are
those of rank 0, or means where n is even, and the rest of the pass has the samples that were not used. FOLDER,
ADDRESSES: an address per job."""

import hashlib
import os
import pathlib
import time

import torch
from elastic_stand_in import settings_of
from torch import nn
from torch.utils.data import DataLoader

import horo.torch as horo
from horo.elastic import sharded

ME, MOST = int(os.environ["HORO_RANK"]), int(os.environ["HORO_SIZE"])
FOLDER, ADDRESSES = pathlib.Path(os.environ["FOLDER"]), os.environ["ADDRESSES"].split()
SAMPLES, BATCH, STEPS, PARTS = 97, 2, 3, 11
torch.set_num_threads(1)


class InParts:
    """Each rank has some rows of a table, and some blocks of rows of another."""

    def __init__(self, rank, size):
        cut = [PARTS * one // size for one in range(size + 1)]
        self.rows = [(cut[rank], cut[rank + 1])]
        self.blocks = [(one, one + 1) for one in range(rank, PARTS, size)]
        self.table, self.dealt = self._of(self.rows), self._of(self.blocks)

    @staticmethod
    def _of(intervals):
        rows = [one for interval in intervals for one in range(*interval)]
        return torch.full((len(rows), 3), -1.0, dtype=torch.float64)

    def fill(self):
        for tensor, intervals in ((self.table, self.rows), (self.dealt, self.blocks)):
            rows = [one for interval in intervals for one in range(*interval)]
            tensor.copy_(torch.tensor(rows, dtype=torch.float64).reshape(-1, 1) + torch.tensor([0.0, 0.25, 0.5]))

    def check(self):
        before = self.table.clone(), self.dealt.clone()
        self.fill()
        assert all(map(torch.equal, before, (self.table, self.dealt)))

    def horo_state(self):
        yield "table", self.table, sharded((PARTS, 3), self.rows)
        yield "dealt", self.dealt, sharded((PARTS, 3), self.blocks)


class Job:
    """The objects of a script, which begin with other values in each process."""

    def __init__(self, rank, size):
        torch.manual_seed(100 * ME + size)
        self.model = nn.Sequential(nn.Linear(6, 7), nn.BatchNorm1d(7), nn.Linear(7, 7), nn.ReLU(), nn.Linear(7, 1))
        self.model[2].bias = self.model[0].bias  # one parameter in two places
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=300)
        averages = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        self.averaged = torch.optim.swa_utils.AveragedModel(self.model, multi_avg_fn=averages)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
        named = ((f"{address} {one}", param) for one, param in self.model.named_parameters())  # of this job
        self.optimizer = horo.DistributedOptimizer(optimizer, named_parameters=named)
        self.sampler = horo.elastic.Sampler(SAMPLES, batch_size=BATCH, seed=3)
        self.own = InParts(rank, size)
        self.half = torch.randn(5, 2).bfloat16()[:, ::2]  # with strides
        fields = ("model", "optimizer", "schedule", "averaged", "scaler", "sampler", "own", "half")
        fields = {one: getattr(self, one) for one in fields}
        self.state = horo.elastic.State(**fields, best=0.0, notes=[], seed=False, buffers=None if size % 2 else "mean")

    def train(self, rank):
        horo.broadcast_parameters(self.model.state_dict(), root_rank=0)
        self.model[1].running_mean.fill_(rank)
        self.half.fill_(1.5)
        self.own.fill()
        loader = DataLoader(range(SAMPLES), batch_sampler=self.sampler)
        used = []

        @horo.elastic.run
        def steps(state):
            for _ in state.passes(1):
                for indices in state.batches(loader):
                    used.extend(indices.tolist())
                    self.step(torch.sin(torch.outer(indices + 1.0, torch.arange(1.0, 7.0))))
                    if state.step == STEPS:
                        self.save()
                        return

        steps(self.state)
        return used

    def step(self, x):
        self.optimizer.zero_grad()
        self.scaler.scale(self.model(x).square().mean()).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        self.averaged.update_parameters(self.model)
        self.state.best, self.state.notes = 0.1 * self.state.step, [*self.state.notes, (self.state.step, "step")]

    def save(self):
        self.state._settle()  # as at a border
        before = horo.allgather_object(self.statistics())
        horo.checkpoint.save(FOLDER / name(), self.state).wait()
        after = horo.allgather_object(self.statistics())
        if horo.size() % 2:
            assert after == before
        else:
            assert len(set(after)) == 1 and len(set(before)) == horo.size()

    def statistics(self):
        return str(self.model[1].running_mean.tolist())

    def digest(self):
        """Of all but what each rank has alone."""
        digest = hashlib.sha256()
        moments = self.optimizer.state_dict()["state"]
        tensors = [*self.model.parameters(), *self.averaged.parameters(), self.half]
        tensors += [moments[number][name] for number in sorted(moments) for name in sorted(moments[number])]
        for tensor in tensors:
            digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        small = (self.schedule.state_dict(), self.scaler.state_dict(), self.sampler.state_dict())
        group = {name: value for name, value in self.optimizer.param_groups[0].items() if name != "params"}
        digest.update(repr((small, group, self.state.best, self.state.notes, self.state.step)).encode())
        return digest.hexdigest()


def name():
    """Of the checkpoint of the present job."""
    return f"of-{horo.size()}" if horo.size() > 1 or ME == 0 else f"alone-{ME}"


def save(size):
    job = Job(horo.rank(), size)
    used = job.train(horo.rank())
    first = horo.broadcast_object(job.statistics(), 0)
    everything = horo.allgather_object((job.digest() + first.replace(" ", ""), sorted(used)))
    assert len({digest for digest, _ in everything}) == 1, everything
    if horo.rank() == 0:
        text = f"{everything[0][0]} {sorted(one for _, some in everything for one in some)}"
        (FOLDER / f"{name()}.tmp").write_text(text)
        os.rename(FOLDER / f"{name()}.tmp", FOLDER / f"{name()}.txt")


def load(size, saved):
    path = FOLDER / f"of-{saved}.txt"
    while not path.exists():
        time.sleep(0.01)
    digest, used = path.read_text().split(" ", 1)
    job = Job(horo.rank(), size)
    numbers = horo.checkpoint.load(FOLDER / f"of-{saved}", job.state)
    assert numbers["best"] == job.state.best == 0.1 * STEPS
    assert job.digest() + job.statistics().replace(" ", "") == digest, (size, saved)
    assert job.model[2].bias is job.model[0].bias
    assert torch.equal(job.model[1].num_batches_tracked, torch.tensor(STEPS))
    job.own.check()
    left = []

    @horo.elastic.run
    def rest(state):
        for _ in state.passes(1):
            left.extend(
                one
                for batch in state.batches(DataLoader(range(SAMPLES), batch_sampler=job.sampler))
                for one in batch.tolist()
            )

    rest(job.state)
    left = [one for some in horo.allgather_object(left) for one in some]
    assert sorted(left + eval(used)) == list(range(SAMPLES)), (size, saved, left)  # noqa: S307


jobs = [(save, (n,)) for n in range(1, MOST + 1)]
jobs += [(load, (m, n)) for n in range(1, MOST + 1) for m in range(1, MOST + 1)]
for (function, (size, *more)), address in zip(jobs, ADDRESSES, strict=True):
    # The others do the same alone: processes of one job have made equally many optimizers.
    rank, size = (ME, size) if ME < size else (0, 1)
    horo.init(settings=settings_of(rank, size, address))
    function(size, *more)
    horo.shutdown()
print("end")
