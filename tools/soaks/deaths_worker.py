"""The ranks of tools/soak deaths, forked from one process that has imported torch. For each line of JSON on its input
it runs one job, kills or stops a rank, and prints how all ranks ended.
"""

import datetime
import json
import os
import random
import select
import signal
import sys
import time

import fsspec.core  # noqa: F401  these two take a second in DCP and DDP; no rank is to spend it after a death
import torch
import torch._dynamo
import torch.distributed as dist
import torch.onnx
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import horo
import horo.torch.distributed

WIDTH, LAYERS, ROWS = 64, 6, 8
TEXT_MAX = 1500  # characters of an event, which a pipe carries whole
START_S = 120  # for the start of a job
SLACK_S = 30  # for a busy machine, until a rank counts as hanging
SOON_S = 0.1  # half of the deaths come that early, while the model is made
LATE_S = 0.4
EXIT_CODES = {"uncaught": 1, "destroy": 0, "exit": 3}


def model():
    torch.manual_seed(5)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def training(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step(_):
        optimizer.zero_grad()
        net(torch.randn(ROWS, WIDTH)).pow(2).mean().backward()
        optimizer.step()

    return step


def ddp(_):
    return training(DistributedDataParallel(model(), bucket_cap_mb=0.02))


def sharded():
    net = model()
    for layer in net:
        fully_shard(layer)
    return fully_shard(net)


def fsdp2(_):
    return training(sharded())


def dcp(folder):
    net = sharded()

    def step(turn):
        place, state = os.path.join(folder, str(turn)), {"model": net.state_dict()}
        checkpoint.save(state, checkpoint_id=place)
        if turn % 4 == 3:
            checkpoint.load(state, checkpoint_id=place)

    return step


def wait(_):
    """Works of all kinds in flight at a time."""
    tensors = [torch.ones(1 << (4 + 2 * number)) for number in range(6)]
    gathered = [torch.ones(64) for _ in range(dist.get_world_size())]

    def step(_):
        works = [dist.all_reduce(tensor, dist.ReduceOp.MAX, async_op=True) for tensor in tensors]
        works.append(dist.all_gather(gathered, tensors[1], async_op=True))
        works.append(dist.broadcast(tensors[0], 1, async_op=True))
        for work in works:
            work.wait()

    return step


KINDS = {"ddp": ddp, "fsdp2": fsdp2, "dcp": dcp, "wait": wait}


def chain_of(error):
    """The exception and what has caused it."""
    found = []
    while error is not None:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


class Rank:
    """One forked rank: trains until another rank is lost, and writes events to a pipe."""

    def __init__(self, job, rank, pipe):
        self._job, self._rank, self._pipe = job, rank, pipe

    def _say(self, event, **what):
        line = {"rank": self._rank, "event": event, "at": time.monotonic()} | what
        os.write(self._pipe, json.dumps(line).encode() + b"\n")

    def run(self):
        job = self._job
        method = "env://" if job["address"] else f"file://{job['folder']}/store"
        os.environ.update(RANK=str(self._rank), WORLD_SIZE=str(job["size"]), LOCAL_RANK=str(self._rank))
        if job["address"]:
            os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = job["address"].split(":")
        timeout = datetime.timedelta(seconds=START_S)
        dist.init_process_group("horo", method, timeout, job["size"], self._rank)
        self._say("group")
        try:
            step = KINDS[job["kind"]](job["folder"])
            for turn in range(1 << 30):
                step(turn)
                self._say("step") if turn == 0 else None
        except Exception as error:
            chain = chain_of(error)
            lost = next((each.origin for each in chain if isinstance(each, horo.PeerLost)), None)
            text = " / ".join(f"{type(each).__name__}: {each}" for each in chain)
            self._say("raised", text=text[:TEXT_MAX], origin=lost)
            if job["ending"] == "uncaught":
                raise
        if job["ending"] == "destroy":
            dist.destroy_process_group()
        sys.exit(EXIT_CODES[job["ending"]])


class Deaths:
    """The ranks of one job."""

    def __init__(self, order):
        self._order = order
        self._read, self._write = os.pipe()
        self._buffer = b""
        self.events = {rank: {} for rank in range(order["size"])}
        self.pids, self.codes = [], {}

    def fork(self):
        """The rank that this process is from now on, or None in the parent."""
        for rank in range(self._order["size"]):
            pid = os.fork()
            if pid == 0:
                os.close(self._read)
                file = os.open(f"{self._order['folder']}/output{rank}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
                for stream in (1, 2):
                    os.dup2(file, stream)
                return Rank(self._order, rank, self._write)
            self.pids.append(pid)
        return None

    def _advance(self):
        """Takes in what ranks have written, and those that have ended."""
        if select.select([self._read], [], [], 0.005)[0]:
            *lines, self._buffer = (self._buffer + os.read(self._read, 1 << 16)).split(b"\n")
            for line in map(json.loads, lines):
                self.events[line["rank"]][line["event"]] = line
        for rank, pid in enumerate(self.pids):
            if rank not in self.codes:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    self.codes[rank] = os.waitstatus_to_exitcode(status)

    def _until(self, condition, seconds):
        """Whether the condition comes true in this time."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            self._advance()
        return True

    def strike(self):
        """Runs the job; returns the time of the signal, or None if the job has failed before it."""
        order, chance = self._order, random.Random(self._order["seed"])
        others = [rank for rank in range(order["size"]) if rank != order["victim"]]
        before = "group" if chance.random() < 0.5 else "step"
        if not self._until(lambda: self.codes or all(before in each for each in self.events.values()), START_S):
            return None
        if self.codes:
            return None
        time.sleep(chance.uniform(0, SOON_S if before == "group" else LATE_S))
        struck = time.monotonic()
        os.kill(self.pids[order["victim"]], order["signal"])
        self._until(lambda: all(rank in self.codes for rank in others), order["deadline_s"] + SLACK_S)
        if order["signal"] == signal.SIGSTOP:
            os.kill(self.pids[order["victim"]], signal.SIGCONT)
        self._until(lambda: len(self.codes) == order["size"], order["deadline_s"] + SLACK_S)
        self._advance()
        return struck

    def end(self):
        for rank, pid in enumerate(self.pids):
            if rank not in self.codes:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        os.close(self._read)
        os.close(self._write)


def main():
    """Returns in each rank, as the function that this process runs from then on."""
    for line in sys.stdin:
        job = Deaths(json.loads(line))
        try:
            rank = job.fork()
            if rank is not None:
                return rank.run
            struck = job.strike()
        finally:
            if os.getpid() == PARENT:
                job.end()
        events = [job.events[rank] for rank in sorted(job.events)]
        codes = [job.codes.get(rank) for rank in range(len(events))]
        print(json.dumps({"struck": struck, "codes": codes, "events": events}), flush=True)
    return None


PARENT = os.getpid()
rank_run = main()
if rank_run is not None:
    rank_run()  # here, so that its end is that of an ordinary script
