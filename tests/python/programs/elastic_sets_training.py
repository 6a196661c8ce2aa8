"""Ranks 0, 1, 3 and 4 of five train in a process set with shrinks=True; rank 1 dies in a hook of backward, rank 4 in
step(), and rank 2, which is no member, in between. Each rank computes the parameters itself, with the same bits.

    elastic_sets_training.py plain|views|groups
"""

import os
import signal
import sys

import numpy
import torch

import horo.torch as hvd

torch.set_num_threads(1)
hvd.init()
ID, STEPS, RATE = hvd.rank(), 9, 0.5
SIZES = (3, 1000, 70_000)
OPTIONS = {"plain": {}, "views": {"gradient_as_bucket_view": True}, "groups": {"num_groups": 2}}[sys.argv[1]]
step, changes = 0, []


def members_of(step):
    """The contributors, by their ranks at the start."""
    return (0, 1, 3, 4) if step < 3 else (0, 3, 4) if step < 6 else (0, 3)


def gradients_of(member, step):
    generator = numpy.random.default_rng((member, step))
    return [generator.standard_normal(size, dtype=numpy.float32) for size in SIZES]


def tree(parts):
    """The sum in canonical order: of the halves, the first of which is the largest power of two below the count."""
    if len(parts) == 1:
        return parts[0]
    half = 1 << (len(parts) - 1).bit_length() - 1
    return tree(parts[:half]) + tree(parts[half:])


def kill_myself(*_):
    os.kill(os.getpid(), signal.SIGKILL)


part = hvd.add_process_set([0, 1, 3, 4], shrinks=True)
parameters = [torch.nn.Parameter(torch.zeros(size)) for size in SIZES]
named = [(f"p{i}", parameter) for i, parameter in enumerate(parameters)]
hvd.on_change(lambda change: changes.append((step, change.lost, part.ranks)))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, RATE), named, process_set=part, **OPTIONS)
parameters[1].register_hook(lambda _: kill_myself() if step == 3 and ID == 1 else None)
optimizer.register_step_pre_hook(lambda *_: kill_myself() if step == 5 and ID == 4 else None)
expected = [numpy.zeros(size, dtype=numpy.float32) for size in SIZES]
for step in range(STEPS):
    if part.included():
        optimizer.zero_grad()
        mine = [torch.from_numpy(gradient) for gradient in gradients_of(ID, step)]
        sum((parameter * gradient).sum() for parameter, gradient in zip(parameters, mine)).backward()
        optimizer.step()
        members = members_of(step)
        parts = [gradients_of(member, step) for member in members]
        for value, parameter, *each in zip(expected, parameters, *parts):
            value -= numpy.float32(RATE) * (tree(each) / numpy.float32(len(members)))
            assert value.tobytes() == parameter.detach().numpy().tobytes(), (step, members)
    if step == 4 and ID == 2:
        kill_myself()
    hvd.barrier()
if part.included():
    assert part.ranks == [0, 1] and part.size() == 2
    assert [(lost, ranks) for _, lost, ranks in changes] == [
        ((1,), [0, 2, 3]),
        ((1,), [0, 1, 2]),
        ((2,), [0, 1]),
    ], changes
    print("rank", ID, "has the bits of the oracle", flush=True)
hvd.shutdown()
