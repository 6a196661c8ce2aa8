"""A rank of `tools/soak learn`: `python learn_worker.py WAY PASSES`. It trains with a horo.elastic.State, and kills or
stops itself as LEARN_EVENTS says: {member: [[what, batch, place, microseconds, seconds]]}, by the number of the member.
A batch is counted from the first one of this process; with a divided optimizer, from the first one of the job.

It prints each batch that it takes before it is used, each round with the members that have contributed, each average of
buffers and each change of the members: what learn_oracle.py needs."""

import json
import os
import signal
import sys
import threading
import time

import torch

if os.environ.get("TEST_DEVICE") == "fake":
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests"))
    __import__("fake_devices").install()

import zero_places
from learn_model import BATCH, SAMPLES, SEED, WAYS, Training, factor_of, samples
from torch.utils.data import DataLoader, Dataset

import horo.torch as horo
from horo import _default
from horo.torch.elastic import statistics

STARTED = time.monotonic()
WAY, PASSES = WAYS[sys.argv[1]], int(sys.argv[2])
ME = int(os.environ["HORO_RANK"])  # whose events this process has
ENOUGH = int(os.environ.get("LEARN_ENOUGH", 0))  # with fewer ranks the others are slow, so that new ones can join
PAUSE_S = 0.03
WORKERS = int(os.environ.get("LEARN_WORKERS", 1))
FAULT = os.environ.get("LEARN_FAULT", "")  # planted, to show that the judge finds it


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def present_member():
    """The number of this rank, which is another one after an eviction."""
    return int(os.environ["HORO_RANK"])


def members():
    return ",".join(map(str, _default.session().world.members))


class Events:
    """The events of this process."""

    def __init__(self):
        self.left = json.loads(os.environ.get("LEARN_EVENTS", "{}")).get(str(ME), [])
        self.batches, self.is_last, self.step = 0, False, 0
        self.full_at = None  # the first step with ENOUGH ranks

    def at(self, place):
        """Runs the events of this place. Those of the place `last` come in one of the last batches of a pass; those of
        `full` so many batches after the first one with ENOUGH ranks."""
        self.batches += place == "batch"
        for event in list(self.left):
            what, batch, where, delay_us, seconds = event
            is_here = where == place or (where == "timer" and place == "batch")
            count = self.batches if WAY.divided is None else self.step
            if where == "last":
                is_here = place == "backward" and self.is_last
            elif where == "full":
                is_here, count = place == "batch" and self.full_at is not None, self.step - (self.full_at or 0)
            if is_here and count >= batch:
                self.left.remove(event)
                self._run(what, where, delay_us, seconds)

    def _run(self, what, where, delay_us, seconds):
        if what == "kill" and delay_us:
            kill = threading.Timer(delay_us / 1e6, self._kill, [where])
            kill.daemon = True
            kill.start()
        elif what == "kill":
            self._kill(where)
        else:
            self._stop(seconds)

    def _stop(self, seconds):
        """learn.py sends SIGSTOP to this process and to its stand-in, and later SIGCONT."""
        continues = []
        signal.signal(signal.SIGCONT, lambda *_: continues.append(True))
        say("stops", os.getpid(), seconds)
        while not continues:
            time.sleep(0.001)

    def _kill(self, where):
        say("kills", f"{where}@{self.step}")
        os.kill(os.getpid(), signal.SIGKILL)


class Watched(torch.autograd.Function):
    """Its backward is the first one."""

    @staticmethod
    def forward(_, loss):
        return loss.clone()

    @staticmethod
    def backward(_, gradient):
        events.at("backward")
        return gradient


class Data(Dataset):
    def __init__(self):
        self.values = samples()

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return index, self.values[index]


def average_aloud(tensors, name):
    grouped_allreduce_(tensors, name=name)
    say("mean", state.step, members())


def changed(change):
    say("change", change.step, members(), ",".join(map(str, change.joined)) or "-")
    events.at("change")


def end_round():
    """The gradients are reduced."""
    found = training.model.members.grad.nonzero().flatten().tolist()
    say("round", state.step, ",".join(map(str, found)), members())
    state.rounds, state.added = state.rounds + 1, 0
    training.update()
    events.at("after")
    if horo.size() < ENOUGH:
        time.sleep(PAUSE_S)


def train_batch(number, indices, x):
    events.is_last, events.step = sampler.steps_left() <= 2, state.step
    if events.full_at is None and horo.size() >= ENOUGH:
        events.full_at = state.step
    say("take", state.step, number, ",".join(map(str, indices.tolist())))
    events.at("batch")
    if state.added == 0:
        training.optimizer.zero_grad()
    loss = training.scaler.scale(training.model(x, present_member(), factor_of(state.rounds)))
    events.at("forward")
    Watched.apply(loss).backward()
    state.added += 1
    if state.added == WAY.passes:
        end_round()


@horo.elastic.run
def train(state):
    say("joined", round(1000 * (time.monotonic() - STARTED)))
    for number in state.passes(PASSES):
        for indices, x in state.batches(loader):
            train_batch(number, indices, x)
        if state.added:
            training.optimizer.synchronize()
            end_round()
        events.at("pass")


torch.set_num_threads(1)
events = Events()
events.at("joining")
horo.init()
training = Training(WAY, horo.SyncBatchNorm if WAY.is_sync else torch.nn.BatchNorm1d)
if os.environ.get("HORO_JOINS"):  # what it has does not matter
    with torch.no_grad():
        for tensor in (*training.model.parameters(), *training.averaged.parameters()):
            tensor.fill_(float("nan"))
options = dict(WAY.distributed)
if "compression" in options:
    options["compression"] = getattr(horo.Compression, options["compression"])
if "op" in options:
    options["op"] = getattr(horo, options["op"])
wrap = horo.DistributedOptimizer
if WAY.divided is not None:
    wrap, options = horo.zero.DistributedOptimizer, {**options, **WAY.divided}
training.optimizer = wrap(training.optimizer, named_parameters=training.model.named_parameters(), **options)
if WAY.divided is not None:
    zero_places.watch(training.optimizer, events.at)
sampler = horo.elastic.Sampler(SAMPLES, batch_size=BATCH, seed=SEED)
loader = DataLoader(Data(), batch_sampler=sampler, num_workers=WORKERS, persistent_workers=True, prefetch_factor=4)
grouped_allreduce_, statistics.grouped_allreduce_ = statistics.grouped_allreduce_, average_aloud
fields = {name: value for name, value in vars(training).items() if name != FAULT}
state = horo.elastic.State(**fields, sampler=sampler, rounds=0, added=0, buffers=WAY.buffers)
state.on_change(changed)
if folder := os.environ.get("LEARN_KEEP"):
    state.keep(folder, every_rounds=10, resume=False)
try:
    train(state)
    if WAY.divided is not None:
        training.optimizer.gather_state(None)
except horo.HoroError as error:
    if type(error).__name__ != "ShardLost":
        raise
    say("lost", error)
    sys.exit()
say("end", state.step, json.dumps(training.digests()))
