"""One rank of tools/soak bits: runs the schedules of its argument and prints a line of JSON for each.

A tensor's values depend on its rank, number and step, never on the schedule. The tensors are submitted by NumPy over
the C ABI, or by torch, where the hooks of a DistributedOptimizer submit the gradients.
"""

import collections
import functools
import hashlib
import json
import random
import sys
import time

import numpy

import horo
from horo import _default, _native
from horo._specs import Spec

# dtype's number: the NumPy type of its memory. NumPy has no bfloat16.
HELD = {
    _native.FLOAT32: numpy.float32,
    _native.FLOAT64: numpy.float64,
    _native.FLOAT16: numpy.float16,
    _native.BFLOAT16: numpy.uint16,
    _native.INT32: numpy.int32,
}
Tensor = collections.namedtuple("Tensor", "name kind op dtype rows")
COLUMNS = 3


def _tensors():
    """Gradients of many sizes, mostly of one dtype so that they share buckets, and one tensor per other collective."""
    some = random.Random(1)
    dtypes = [_native.FLOAT32] * 16 + [_native.FLOAT16, _native.BFLOAT16] * 3 + [_native.FLOAT64] * 2
    for i, dtype in enumerate(dtypes):
        rows = int(20 ** (1 + 2.2 * some.random()) / COLUMNS)
        yield Tensor(f"gradient{i}", _native.ALL_REDUCE, _native.AVERAGE, dtype, rows)
    yield Tensor("count", _native.ALL_REDUCE, _native.SUM, _native.INT32, 100)
    yield Tensor("scattered", _native.REDUCE_SCATTER, _native.SUM, _native.FLOAT32, 101)
    yield Tensor("gathered", _native.ALL_GATHER, _native.SUM, _native.FLOAT32, 7)
    yield Tensor("sent", _native.BROADCAST, _native.SUM, _native.FLOAT64, 50)


TENSORS = list(_tensors())


def is_gradient(tensor):
    return tensor.name.startswith("gradient")


@functools.cache
def values(rank, number, step):
    """Numbers of very different magnitudes, so that their sum depends on the order."""
    tensor = TENSORS[number]
    generator = numpy.random.default_rng([rank, number, step])
    rows = tensor.rows + (rank if tensor.kind == _native.ALL_GATHER else 0)
    raw = generator.standard_normal((rows, COLUMNS)) * 10.0 ** generator.integers(-3, 4, (rows, COLUMNS))
    if tensor.dtype == _native.BFLOAT16:
        return (raw.astype(numpy.float32).view(numpy.uint32) >> 16).astype(numpy.uint16)
    return raw.astype(HELD[tensor.dtype])


class Schedule:
    """The order and the pauses of this rank's submits, random and determined by the seed."""

    def __init__(self, seed, number, rank):
        self.chance = random.Random(f"{seed}/{number}/{rank}")

    def order(self):
        return self.chance.sample(range(len(TENSORS)), len(TENSORS))

    def pause(self):
        if self.chance.random() < 0.3:
            time.sleep(self.chance.uniform(0, 0.0015))


def priorities_of(chance):
    """The priority of each tensor, the same on all ranks; in half of the schedules all priorities are equal."""
    if chance.random() < 0.5:
        return [0] * len(TENSORS)
    return [chance.randint(-3, 3) for _ in TENSORS]


class NumPyRank:
    """Submits arrays by address."""

    def __init__(self, order, priorities):
        self.order = _native.ORDERS[order]
        self.priorities = dict(zip(TENSORS, priorities, strict=True))
        self.session = _default.session()

    def step(self, number, schedule):
        """Runs one step; returns the results by number of the tensor."""
        works, results = {}, {}
        for i in schedule.order():
            schedule.pause()
            mine = values(horo.rank(), i, number)
            in_place = schedule.chance.random() < 0.5 and TENSORS[i].kind in (_native.ALL_REDUCE, _native.BROADCAST)
            source = mine.copy() if in_place else mine
            results[i] = source if in_place else self._output(TENSORS[i], mine)
            works[i] = self._submit(TENSORS[i], source, results[i])
        self.session.wait(list(works.values()))
        for i in [i for i, result in results.items() if result is None]:
            results[i] = self._gathered(works[i])
        self.session.release(works.values())
        self.session.step_end()
        return results

    def _submit(self, tensor, source, output):
        order = self.order if tensor.kind == _native.ALL_REDUCE else 0
        stepwise = int(is_gradient(tensor))
        spec = Spec(tensor.name, tensor.kind, tensor.op, tensor.dtype, source.shape, order, 0, stepwise)
        spec = spec._replace(priority=self.priorities[tensor])
        address = None if output is None else output.ctypes.data
        return self.session.submit(spec, source.ctypes.data, address, (source, output))

    def _output(self, tensor, mine):
        if tensor.kind == _native.ALL_GATHER:
            return None
        rows, size, rank = len(mine), horo.size(), horo.rank()
        if tensor.kind == _native.REDUCE_SCATTER:
            rows = rows // size + (rank < rows % size)
        return numpy.empty((rows, COLUMNS), mine.dtype)

    def _gathered(self, work):
        result = self.session.result(work)
        return numpy.frombuffer((_native.ctypes.c_char * result.bytes).from_address(result.data), numpy.uint8).copy()


def _act_in_backward(torch):
    """A function (value, action) that returns the value; its backward calls the action."""

    class Act(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value, action):
            ctx.action = action
            return value.clone()

        @staticmethod
        def backward(ctx, gradient):
            ctx.action()
            return gradient, None

    return Act.apply


class TorchRank:
    """The optimizer's hooks submit the gradients, horo.torch the other tensors."""

    def __init__(self, order, priorities):
        import torch

        import horo.torch as hvd

        self.torch, self.hvd, self.order = torch, hvd, order
        self._act = _act_in_backward(torch)
        self.priorities = dict(zip(TENSORS, priorities, strict=True))
        self.params = {
            i: torch.nn.Parameter(self._tensor(i, 0).clone()) for i, t in enumerate(TENSORS) if is_gradient(t)
        }
        named = [(TENSORS[i].name, param) for i, param in self.params.items()]
        modes = {"order": order, "priority": "forward" if any(priorities) else None}
        self.optimizer = hvd.DistributedOptimizer(torch.optim.SGD(self.params.values()), named, **modes)

    def _tensor(self, number, step):
        array = self.torch.from_numpy(values(horo.rank(), number, step).copy())
        return array.view(self.torch.bfloat16) if TENSORS[number].dtype == _native.BFLOAT16 else array

    def step(self, number, schedule):
        """One backward reaches the parameters, and submits the other tensors, in the order of the schedule."""
        handles = {}
        self.optimizer.zero_grad()
        total = self.torch.zeros((), dtype=self.torch.float64, requires_grad=True)

        def act(i, mine):
            schedule.pause()
            if i not in self.params:
                handles[i] = self._submit(TENSORS[i], mine)

        for i in reversed(schedule.order()):  # autograd begins with the youngest node
            mine = self._tensor(i, number)
            if i in self.params:
                total = total + (self.params[i] * mine).sum().double()  # its gradient is bitwise equal to mine
            total = self._act(total, lambda i=i, mine=mine: act(i, mine))
        total.backward()
        results = {i: self.hvd.synchronize(handle) for i, handle in handles.items()}
        results.update({i: param.grad for i, param in self.params.items()})
        return {i: result.contiguous().view(self.torch.uint8).numpy() for i, result in results.items()}

    def _submit(self, tensor, mine):
        if tensor.kind == _native.ALL_REDUCE:
            priority = self.priorities[tensor]
            return self.hvd.allreduce_async(mine, name=tensor.name, op=tensor.op, order=self.order, priority=priority)
        if tensor.kind == _native.REDUCE_SCATTER:
            return self.hvd.reducescatter_async(mine, name=tensor.name, op=tensor.op)
        if tensor.kind == _native.ALL_GATHER:
            return self.hvd.allgather_async(mine, name=tensor.name)
        return self.hvd.broadcast_async(mine, 0, name=tensor.name)


def run(task, number, bucket_bytes):
    shared = random.Random(f"{task['seed']}/{task['order']}/{number}")
    horo.init(settings={"HORO_BUCKET_BYTES": bucket_bytes, "HORO_CREDIT_BYTES": int(2 ** shared.uniform(0, 24))})
    worker = (TorchRank if task["torch"] else NumPyRank)(task["order"], priorities_of(shared))
    schedule = Schedule(task["seed"], f"{task['order']}/{number}", horo.rank())
    alike, own = hashlib.sha256(), hashlib.sha256()
    for step in range(task["steps"]):
        results = worker.step(step, schedule)
        for i, tensor in enumerate(TENSORS):
            (own if tensor.kind == _native.REDUCE_SCATTER else alike).update(results[i].tobytes())
    counted = horo.counters()
    horo.shutdown()
    return {"alike": alike.hexdigest(), "own": own.hexdigest(), "compositions": counted["bucket_compositions"]}


def main():
    task = json.loads(sys.argv[1])
    for number, bucket_bytes in enumerate(task["bucket_bytes"]):
        print(json.dumps(run(task, number, bucket_bytes)), flush=True)


if __name__ == "__main__":
    main()
