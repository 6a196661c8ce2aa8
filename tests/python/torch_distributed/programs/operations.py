"""Every operation of a process group under torch's names: each reduce operation and dtype, memory of any strides,
uneven parts, coalescing, objects, messages."""

import itertools
import warnings

import torch
import torch.distributed as dist
from claims_torch import check, equal, raises
from torch.distributed import ReduceOp

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64]
DTYPES = [*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2]
ARITHMETIC = [ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX]
BITS = {ReduceOp.BAND: torch.bitwise_and, ReduceOp.BOR: torch.bitwise_or, ReduceOp.BXOR: torch.bitwise_xor}
warnings.simplefilter("ignore", FutureWarning)


def me():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def value(rank, dtype=torch.float32, shape=(6,)):
    """The tensor of a rank: small whole numbers, which every dtype and order of summation computes exactly."""
    count = torch.Size(shape).numel()
    numbers = (torch.arange(count) * 3 + rank * 2) % 4 + 1
    return (numbers % 2 if dtype == torch.bool else numbers).to(dtype).reshape(shape)


def strided(tensor):
    """The same values, in memory that is not contiguous."""
    room = torch.zeros(*tensor.shape, 2, dtype=tensor.dtype)[..., 0]
    return room.copy_(tensor)


_FOLD = {
    ReduceOp.SUM: torch.add,
    ReduceOp.PRODUCT: torch.mul,
    ReduceOp.MIN: torch.minimum,
    ReduceOp.MAX: torch.maximum,
    **BITS,
}


def folded(op, dtype, shape=(6,)):
    """The reduction over all ranks, in one process."""
    wide = {torch.bool: torch.uint8}.get(dtype, torch.float64 if dtype.is_floating_point else dtype)
    if dtype in INTEGERS:
        wide = torch.int64
    total = value(0, dtype, shape).to(wide)
    for rank in range(1, size()):
        total = _FOLD[op](total, value(rank, dtype, shape).to(wide))
    return total.to(dtype)


def every_op_reduces_every_dtype():
    for dtype, op, make in itertools.product(DTYPES, ARITHMETIC, [torch.clone, strided]):
        if dtype.is_complex and op != ReduceOp.SUM:
            continue
        tensor = make(value(me(), dtype))
        dist.all_reduce(tensor, op=op)
        equal(tensor.to(dtype), folded(op, dtype))
    for dtype, op in itertools.product([*INTEGERS[:5], torch.bool], BITS):
        tensor = value(me(), dtype)
        dist.all_reduce(tensor, op=op)
        equal(tensor, folded(op, dtype))


def averages_and_factors():
    tensor = value(me())
    dist.all_reduce(tensor, op=ReduceOp.AVG)
    equal(tensor, folded(ReduceOp.SUM, torch.float32) / size())
    for factor in (0.5, torch.tensor(0.5)):
        tensor = value(me())
        dist.all_reduce(tensor, op=dist._make_nccl_premul_sum(factor))
        equal(tensor, folded(ReduceOp.SUM, torch.float32) / 2)
    with raises(ValueError, "average", "bool"):
        dist.all_reduce(torch.ones(2, dtype=torch.bool), op=ReduceOp.AVG)


def reduce_and_reduce_scatter():
    for root in range(size()):
        for make in (torch.clone, strided):
            tensor = make(value(me()))
            dist.reduce(tensor, root, op=ReduceOp.MAX)
            equal(tensor.contiguous(), folded(ReduceOp.MAX, torch.float32) if me() == root else value(me()))
    for op in [*ARITHMETIC, ReduceOp.AVG]:
        whole = torch.cat([value(me() + part) for part in range(size())])
        parts = [folded_part(op, part) for part in range(size())]
        output = torch.zeros(6)
        dist.reduce_scatter_single(output, whole, op=op)
        equal(output, parts[me()])
        output = strided(torch.zeros(6))
        dist.reduce_scatter(output, list(whole.split(6)), op=op)
        equal(output.contiguous(), parts[me()])
    pieces = [torch.full((part + 1,), float(me())) for part in range(size())]  # uneven
    output = torch.zeros(me() + 1)
    dist.reduce_scatter(output, pieces)
    equal(output, torch.full((me() + 1,), float(sum(range(size())))))
    pg = dist.group.WORLD
    for call in (pg._reduce_scatter_base, pg.reduce_scatter_single):
        output = torch.zeros(6)
        call(output, torch.cat([value(me() + part) for part in range(size())])).wait()
        equal(output, folded_part(ReduceOp.SUM, me()))


def folded_part(op, part):
    """Part `part` of the reduction of what reduce_and_reduce_scatter() reduces."""
    values = [value(rank + part) for rank in range(size())]
    if op == ReduceOp.AVG:
        return sum(values) / size()
    total = values[0]
    for each in values[1:]:
        total = _FOLD[op](total, each)
    return total


def all_gathers():
    for dtype in DTYPES:
        outputs = [torch.zeros_like(value(0, dtype)) for _ in range(size())]
        dist.all_gather(outputs, value(me(), dtype))
        for rank, output in enumerate(outputs):
            equal(output.view(torch.uint8), value(rank, dtype).view(torch.uint8))
    room = torch.zeros(size() * 6)
    dist.all_gather(list(room.split(6)), value(me()))  # one piece of memory: written in place
    equal(room, torch.cat([value(rank) for rank in range(size())]))
    uneven = [torch.zeros(rank + 1, 2) for rank in range(size())]
    dist.all_gather(uneven, torch.full((me() + 1, 2), float(me())))
    for rank, output in enumerate(uneven):
        equal(output, torch.full((rank + 1, 2), float(rank)))
    pg = dist.group.WORLD
    for call in (pg._allgather_base, pg.all_gather_single):
        output = strided(torch.zeros(size(), 6))
        call(output, value(me())).wait()
        equal(output.contiguous(), torch.stack([value(rank) for rank in range(size())]))
    outputs = [[torch.zeros(6), torch.zeros(2)] for _ in range(size())]
    dist.all_gather_coalesced(outputs, [value(me()), value(me(), shape=(2,))])
    for rank, (first, second) in enumerate(outputs):
        equal(first, value(rank)), equal(second, value(rank, shape=(2,)))
    with raises(ValueError, "all_gather_single", "expected"):
        dist.all_gather_single(torch.zeros(5), value(me()))


def broadcast_gather_scatter():
    for root, dtype in itertools.product(range(size()), [torch.float32, torch.bool, torch.complex64]):
        tensor = strided(value(me(), dtype))
        dist.broadcast(tensor, root)
        equal(tensor.contiguous(), value(root, dtype))
        outputs = [torch.zeros(6, dtype=dtype) for _ in range(size())] if me() == root else None
        dist.gather(value(me(), dtype), outputs, root)
        for rank, output in enumerate(outputs or ()):
            equal(output, value(rank, dtype))
        inputs = [value(part, dtype) for part in range(size())] if me() == root else None
        output = strided(torch.zeros(6, dtype=dtype))
        dist.scatter(output, inputs, root)
        equal(output.contiguous(), value(me(), dtype))


def all_to_alls():
    whole = torch.cat([torch.full((2, 3), 10.0 * me() + part) for part in range(size())])
    expected = torch.cat([torch.full((2, 3), 10.0 * rank + me()) for rank in range(size())])
    output = strided(torch.zeros(2 * size(), 3))
    dist.all_to_all_single(output, whole)
    equal(output.contiguous(), expected)
    splits = [part + me() for part in range(size())]  # rank r sends r + p rows to rank p
    source = torch.cat([torch.full((rows, 2), 10.0 * me() + part) for part, rows in enumerate(splits)])
    arriving = [rank + me() for rank in range(size())]
    output = torch.zeros(sum(arriving), 2)
    dist.group.WORLD.alltoall_base(output, source, arriving, splits).wait()
    equal(output, torch.cat([torch.full((rows, 2), 10.0 * rank + me()) for rank, rows in enumerate(arriving)]))
    outputs = [torch.zeros(rank + me(), 2) for rank in range(size())]
    dist.all_to_all(outputs, list(source.split(splits)))
    for rank, output in enumerate(outputs):
        equal(output, torch.full((rank + me(), 2), 10.0 * rank + me()))
    with raises(ValueError, "splits", "expected"):
        dist.all_to_all_single(torch.zeros(4), torch.zeros(4), [9] * size(), [9] * size())


def coalescing_and_batches():
    first, second = value(me()), value(me(), shape=(2, 2))
    dist.all_reduce_coalesced([first, second])
    equal(first, folded(ReduceOp.SUM, torch.float32)), equal(second, folded(ReduceOp.SUM, torch.float32, (2, 2)))
    for device in (None, torch.device("cpu")):
        tensors = [value(me() + each) for each in range(3)]
        with dist.distributed_c10d._coalescing_manager(device=device, async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        for each, tensor in enumerate(tensors):
            equal(tensor, folded_part(ReduceOp.SUM, each))
    outputs = [torch.zeros(size() * 6) for _ in range(2)]
    with dist.distributed_c10d._coalescing_manager(async_ops=False):
        for output in outputs:
            dist.all_gather_single(output, value(me()))
    for output in outputs:
        equal(output, torch.cat([value(rank) for rank in range(size())]))
    outputs = [torch.zeros(6) for _ in range(2)]
    with dist.distributed_c10d._coalescing_manager(async_ops=False):
        for output in outputs:
            dist.reduce_scatter_single(output, torch.cat([value(me() + part) for part in range(size())]))
    for output in outputs:
        equal(output, folded_part(ReduceOp.SUM, me()))
    right, left = (me() + 1) % size(), (me() - 1) % size()
    received = torch.zeros(6)
    batch = [dist.P2POp(dist.isend, value(me()), right), dist.P2POp(dist.irecv, received, left)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    equal(received, value(left))


def objects():
    gathered = [None] * size()
    dist.all_gather_object(gathered, {"rank": me(), "text": "x" * me()})
    assert gathered == [{"rank": rank, "text": "x" * rank} for rank in range(size())]
    told = [{"a": 1}, "b"] if me() == 0 else [None, None]
    dist.broadcast_object_list(told, 0)
    assert told == [{"a": 1}, "b"]
    at_root = [None] * size() if me() == 1 else None
    dist.gather_object(me(), at_root, 1)
    assert at_root in (None, list(range(size())))
    mine = [None]
    dist.scatter_object_list(mine, list(range(size())) if me() == 0 else None, 0)
    assert mine == [me()]


def messages():
    right, left = (me() + 1) % size(), (me() - 1) % size()
    many = 20  # more than the names that a kind has
    sends = [dist.isend(torch.full((3,), float(10 * me() + number)), right, tag=number % 2) for number in range(many)]
    arrived = [strided(torch.zeros(3)) for _ in range(many)]
    receives = [dist.irecv(tensor, left, tag=number % 2) for number, tensor in enumerate(arrived)]
    for work in sends + receives:
        work.wait()
    for number, tensor in enumerate(arrived):
        equal(tensor.contiguous(), torch.full((3,), float(10 * left + number)))
    assert receives[0].source_rank() == left


def messages_from_any_source():
    turns = 3
    if me() == 0:
        found = {source: [] for source in range(1, size())}
        for _ in range(turns * (size() - 1)):  # a source may be ahead of another one, and has an order of its own
            tensor = torch.zeros(2)
            last = dist.recv(tensor)
            found[last].append(tensor)
        for source, tensors in found.items():
            equal(torch.stack(tensors), torch.arange(source, source + turns).float().repeat(2, 1).T)
    else:
        for turn in range(turns):
            dist.send(torch.full((2,), float(me() + turn)), 0)
    dist.barrier()
    if me() == 0:
        tensor = torch.zeros(2)
        for source in reversed(range(1, size())):  # the receives that are still posted serve these
            if source != last:
                with raises(ValueError, "expected receives of one size"):
                    dist.recv(torch.zeros(3), source)
            dist.recv(tensor, source)
            equal(tensor, torch.full((2,), 7.0 * source))
    else:
        dist.send(torch.full((2,), 7.0 * me()), 0)


def empty_tensors_and_barriers():
    dist.all_reduce(torch.zeros(0))
    dist.broadcast(torch.zeros(0), 0)
    dist.all_gather([torch.zeros(0, 3) for _ in range(size())], torch.zeros(0, 3))
    for _ in range(3):
        dist.barrier()
    work = dist.barrier(async_op=True)
    work.wait()
    assert work.is_completed() and work.is_success() and work.exception() is None
    dist.group.WORLD.monitored_barrier()


def what_cannot_be_sent_is_refused_by_name():
    meta = torch.zeros(3, device="meta")
    with raises(NotImplementedError, "not yet", "all_reduce", "meta", "CPU"):
        dist.all_reduce(meta)
    with raises(NotImplementedError, "sparse"):
        dist.all_reduce(torch.eye(2).to_sparse())
    with raises(ValueError, "list of 1 tensors", f"each of {size()} ranks"):
        dist.group.WORLD.allgather([[torch.zeros(3)]], [torch.zeros(3)])
    with raises(ValueError, "itself"):
        dist.group.WORLD.send([torch.zeros(1)], me(), 0)
    dist.barrier()


check(
    every_op_reduces_every_dtype,
    averages_and_factors,
    reduce_and_reduce_scatter,
    all_gathers,
    broadcast_gather_scatter,
    all_to_alls,
    coalescing_and_batches,
    objects,
    messages,
    messages_from_any_source,
    empty_tensors_and_barriers,
    what_cannot_be_sent_is_refused_by_name,
)
