"""Counts how often each sample was used, in a State that is kept: words name=value. Counts are sums over ranks, so
they do not depend on the number of ranks. folder; every: steps between two saves, or every_s; at: from this step on
all ranks die, when there are `least` checkpoints, or in it the one of number `dies`; slow: seconds of a step;
resume=no; strict=yes."""

import os
import signal
import sys
import time

import numpy

import horo.numpy as horo
from horo import _default, elastic

SAMPLES, PASSES = 103, 3
words = dict(word.split("=", 1) for word in sys.argv[1:])
horo.init()


class Loader:
    """What State.batches() needs of a DataLoader."""

    def __init__(self, sampler):
        self.batch_sampler = sampler

    def __iter__(self):
        return iter(self.batch_sampler)


sampler = elastic.Sampler(SAMPLES, batch_size=int(words.get("batch", 2)), seed=1)
counts, bulk = numpy.zeros(SAMPLES, numpy.int64), numpy.zeros(int(words.get("bulk", 1)), numpy.float32)
state = elastic.State(counts=counts, bulk=bulk, sampler=sampler, log=[])
options = {"every_s": float(words["every_s"])} if "every_s" in words else {"every_rounds": int(words.get("every", 2))}
state.keep(words["folder"], **options, resume="resume" not in words, strict="strict" in words)


def end_alone(step):
    """This rank dies in the step, before it has contributed."""
    if str(step) == words.get("at") and words.get("dies") == str(_default.session().world.members[horo.rank()]):
        os.kill(os.getpid(), signal.SIGKILL)


def end_together(step):
    """All ranks die, when there are enough checkpoints."""
    if "at" in words and "dies" not in words and step >= int(words["at"]):
        saved = [name for name in os.listdir(words["folder"]) if name.startswith("step-")]
        if len(saved) >= int(words.get("least", 1)):
            os.kill(os.getpid(), signal.SIGKILL)


@elastic.run
def train(state):
    for _ in state.passes(PASSES):
        for indices in state.batches(Loader(sampler)):
            if state.step == 3:
                print("runs", flush=True)
            end_alone(state.step)
            mine = numpy.zeros(SAMPLES, numpy.int64)
            numpy.add.at(mine, indices, 1)
            state.counts += horo.allreduce(mine, name="counts", op=horo.Sum)
            state.bulk += 1
            state.log = [*state.log[-3:], state.step]
            time.sleep(float(words.get("slow", 0)))
            end_together(state.step)


train(state)
wrong = int(numpy.abs(state.counts - PASSES).sum())
print("end", state.step, wrong, float(state.bulk.min()), float(state.bulk.max()), state.log, flush=True)
if state.last_error:
    print("last error", state.last_error, flush=True)
