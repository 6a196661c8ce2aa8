"""Every collective of device tensors against the same one of CPU tensors: the bytes are equal."""

import itertools

import place
import torch
from place import DEVICE, bytes_of, on_host

import horo.torch as hvd
from horo.torch.arrays import DTYPES

OPS = (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product, hvd.BitAnd, hvd.BitOr, hvd.BitXor)
SIZES = (1, 3, 64, 1_000, 33_333)
checked, wrong = 0, []


def values(dtype, count, seed=0):
    """Random bits of a rank, NaN and infinities among them; a bool has 0 and 1."""
    generator = torch.Generator().manual_seed(1000 * seed + hvd.rank())
    if dtype is torch.bool:
        return torch.rand(count, generator=generator) < 0.5
    raw = torch.randint(0, 256, (count * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return raw.view(dtype)


def compare(what, call, *tensors):
    """call(tensors on a device) against call(tensors on the CPU)."""
    global checked
    try:
        expected = on_host(lambda: call(*[each.clone() for each in tensors]))
    except (ValueError, RuntimeError, NotImplementedError):
        return  # not defined for the type
    found = call(*[each.to(DEVICE, copy=True) for each in tensors])
    torch.testing.assert_close(found.shape, expected.shape)
    checked += 1
    if found.device.type != DEVICE.type or bytes_of(found) != bytes_of(expected):
        wrong.append(what)


def all_reduces():
    for (dtype, _), op, count in itertools.product(DTYPES.items(), OPS, SIZES):
        tensor = values(dtype, count)
        compare(f"allreduce {dtype} op {op} of {count}", lambda x, op=op: hvd.allreduce(x, op=op), tensor)
    for codec in (hvd.Compression.fp16, hvd.Compression.bf16, hvd.Compression.fp8, hvd.Compression.int8):
        tensor = torch.randn(10_001, generator=torch.Generator().manual_seed(hvd.rank()))
        compare(f"{codec}", lambda x, codec=codec: hvd.allreduce(x, op=hvd.Sum, compression=codec), tensor)
    compare("adasum", lambda x: hvd.allreduce(x, op=hvd.Adasum), torch.randn(999))
    compare("fast", lambda x: hvd.allreduce(x, op=hvd.Max, order="fast"), values(torch.int32, 5_000))


def others():
    rank, size = hvd.rank(), hvd.size()
    for (dtype, _), count in itertools.product(DTYPES.items(), (4, 1_000)):
        rows = values(dtype, 3 * (count + rank)).view(-1, 3)
        even = values(dtype, 3 * size * count).view(-1, 3)
        compare(f"allgather {dtype} {count}", hvd.allgather, rows)
        compare(f"broadcast {dtype} {count}", lambda x: hvd.broadcast(x, size - 1), even)
        compare(f"broadcast_ {dtype} {count}", lambda x: hvd.broadcast_(x, 0), even)
        compare(f"alltoall {dtype} {count}", hvd.alltoall, even)
        compare(f"reducescatter {dtype} {count}", lambda x: hvd.reducescatter(x, op=hvd.Max), even)
    compare("a transposed tensor", lambda x: hvd.allreduce(x.t(), op=hvd.Sum), torch.randn(40, 30))
    compare("in place", lambda x: hvd.allreduce_(x, op=hvd.Sum), torch.randn(77))
    unit = [torch.randn(count) for count in (1, 10, 1_000)]
    compare("a group", lambda *x: torch.cat(hvd.grouped_allreduce(list(x), op=hvd.Sum)), *unit)


place.start()
all_reduces()
others()
place.tell(checked=checked, wrong=wrong[:20], wrong_in_all=len(wrong))
hvd.shutdown()
