"""Every collective of device tensors against the same one of CPU tensors: the bytes are equal. Sums in the fast order
are near."""

import itertools

import place
import torch
from comparing import Comparisons, fast_sum_is_near

import horo.torch as hvd
from horo.torch.arrays import DTYPES

OF_BITS = (hvd.BitAnd, hvd.BitOr, hvd.BitXor)
OPS = (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product, *OF_BITS)
SIZES = (1, 3, 64, 1_000, 33_333)
done = Comparisons()


def is_defined(op, dtype):
    """Whether horo has the operation for the type: docs/types.md."""
    if dtype.is_complex:
        return op in (hvd.Average, hvd.Sum, hvd.Product)
    return op not in OF_BITS if dtype.is_floating_point else dtype is not torch.bool or op != hvd.Average


def kind_of(dtype):
    """Types of one kind have the same operations."""
    if dtype.is_complex or dtype is torch.bool:
        return "complex" if dtype.is_complex else "bool"
    return "float" if dtype.is_floating_point else "integer"


def values(dtype, count, seed=0):
    """Random bits of a rank, NaN and infinities among them; a bool has 0 and 1."""
    generator = torch.Generator().manual_seed(1000 * seed + hvd.rank())
    if dtype is torch.bool:
        return torch.rand(count, generator=generator) < 0.5
    raw = torch.randint(0, 256, (count * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return raw.view(dtype)


def reductions(dtype):
    for op, count in itertools.product(OPS, SIZES):
        if is_defined(op, dtype):
            tensor = values(dtype, count)
            call = hvd.allreduce
            done.compare(dtype, f"allreduce {dtype} op {op} of {count}", lambda x, op=op: call(x, op=op), tensor)
    rows, root = values(dtype, 3 * (2 * hvd.size() + 1)).view(-1, 3), hvd.size() - 1
    for op in OPS:
        if is_defined(op, dtype):
            done.compare(dtype, f"reduce {dtype} op {op}", lambda x, op=op: hvd.reduce(x, root, op=op), rows)
    for op in (hvd.Average, hvd.Sum):
        if is_defined(op, dtype):
            done.compare(dtype, f"reducescatter {dtype} op {op}", lambda x, op=op: hvd.reducescatter(x, op=op), rows)


def uneven_alltoall(count):
    """Each rank sends other numbers of rows to the others, and some to itself."""
    rank, ranks = hvd.rank(), range(hvd.size())

    def rows(sender, receiver):
        return count * ((sender + 2 * receiver) % 3)

    def call(tensor):
        result, received = hvd.alltoall(tensor, [rows(rank, other) for other in ranks])
        if received.tolist() != [rows(other, rank) for other in ranks]:
            raise ValueError(f"{received.tolist()} rows are told to have come")
        return result

    return call, sum(rows(rank, other) for other in ranks)


def ring(tensor):
    """What the rank before sends."""
    rank, size, result = hvd.rank(), hvd.size(), torch.empty_like(tensor)
    sent = hvd.send_async(tensor, (rank + 1) % size, name="ring")
    hvd.recv(result, (rank - 1) % size, name="ring")
    hvd.synchronize(sent)
    return result


def moves(dtype):
    rank, size = hvd.rank(), hvd.size()
    for count in (4, 1_000):
        rows = values(dtype, 3 * (count + rank)).view(-1, 3)
        even = values(dtype, 3 * size * count).view(-1, 3)
        splits = [count * size - count // 2 * (size - 1), *[count // 2] * (size - 1)]
        exchange, needed = uneven_alltoall(count)
        calls = {
            "allgather": (hvd.allgather, rows),
            "gather": (lambda x: hvd.gather(x, 0), rows),
            "broadcast": (lambda x: hvd.broadcast(x, size - 1), even),
            "broadcast_": (lambda x: hvd.broadcast_(x, 0), even),
            "alltoall": (hvd.alltoall, even),
            "alltoall of other sizes": (exchange, values(dtype, 3 * needed).view(-1, 3)),
            "scatter": (lambda x, splits=splits: hvd.scatter(x, size - 1, splits), even),
        }
        if size > 1:
            calls["messages"] = ring, even
        for name, (call, tensor) in calls.items():
            done.compare(dtype, f"{name} {dtype} {count}", call, tensor)


def others():
    generator = torch.Generator().manual_seed(hvd.rank())
    for codec in (hvd.Compression.fp16, hvd.Compression.bf16, hvd.Compression.fp8, hvd.Compression.int8):
        tensor = torch.randn(10_001, generator=generator)
        call = hvd.allreduce
        done.compare("other", f"{codec}", lambda x, one=codec: call(x, op=hvd.Sum, compression=one), tensor)
    done.compare("other", "adasum", lambda x: hvd.allreduce(x, op=hvd.Adasum), torch.randn(999, generator=generator))
    tensor = torch.randn(40, 30, generator=generator)
    done.compare("other", "a transposed tensor", lambda x: hvd.allreduce(x.t(), op=hvd.Sum), tensor)
    done.compare("other", "in place", lambda x: hvd.allreduce_(x, op=hvd.Sum), torch.randn(77, generator=generator))
    group = [torch.randn(count, generator=generator) for count in (1, 10, 1_000)]
    done.compare("other", "a group", lambda *x: torch.cat(hvd.grouped_allreduce(list(x), op=hvd.Sum)), *group)
    for op, dtype in itertools.product((hvd.Sum, hvd.Max), (torch.int32, torch.int64, torch.uint8)):
        call = hvd.allreduce
        what, tensor = f"fast {dtype} op {op}", values(dtype, 5_000)
        done.compare("other", what, lambda x, op=op: call(x, op=op, order="fast"), tensor)
    for dtype, count in itertools.product((torch.float16, torch.bfloat16, torch.float32, torch.float64), SIZES):
        tensor = torch.randn(count, generator=generator).to(dtype)
        done.check("fast", f"a fast sum {dtype} of {count}", fast_sum_is_near(tensor))


place.start()
for dtype in DTYPES:
    reductions(dtype)
    moves(dtype)
others()
counts, wrong = done.of_all_ranks()
of_kinds = {}
for key, count in counts.items():
    of_kinds.setdefault(kind_of(key) if isinstance(key, torch.dtype) else key, set()).add(count)
place.tell(
    checked=sum(counts.values()),
    types=len(DTYPES),
    compared={kind: sorted(found) for kind, found in of_kinds.items()},  # how many of each type of the kind
    wrong=wrong[:20],
    wrong_in_all=len(wrong),
)
hvd.shutdown()
