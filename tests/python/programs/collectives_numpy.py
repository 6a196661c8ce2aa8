"""Every collective of horo.numpy, in all its forms, on every dtype, against plain NumPy."""

import itertools

import claims_bare
import numpy
from claims_bare import raises
from oracle import DTYPES, OPS, of_all_ranks, reduced, same, supports, value

import horo.numpy as hvd

SHAPES = [(), (5,), (0, 3), (7, 3), (3000,)]


def mine(dtype, shape, seed=0):
    return value(hvd.rank(), dtype, shape, seed)


def all_of(dtype, shape, seed=0):
    return of_all_ranks(lambda rank: value(rank, dtype, shape, seed))


def all_reduce_is_right_for_every_dtype_and_op():
    cases = [case for case in itertools.product(DTYPES, OPS, SHAPES) if supports(*case[:2])]
    handles = [hvd.allreduce_async(mine(dtype, shape), name=f"{dtype}{op}{shape}", op=op) for dtype, op, shape in cases]
    for handle, (dtype, op, shape) in zip(handles, cases):
        close = numpy.dtype(dtype).kind == "c" and op == hvd.Product
        same(hvd.synchronize(handle), reduced(all_of(dtype, shape), op), close)


def what_is_not_defined_is_refused():
    for dtype, op in itertools.product(DTYPES, OPS):
        if not supports(dtype, op):
            with raises(ValueError, "not defined", dtype):
                hvd.allreduce(mine(dtype, (2,)), op=op)


def results_take_the_place_of_their_input():
    array = mine("float32", (6, 8))
    part = array[:, ::2]
    expected = reduced([each[:, ::2] for each in all_of("float32", (6, 8))], hvd.Sum)
    assert hvd.allreduce_(part, op=hvd.Sum) is part
    same(part, expected)
    same(array[:, 1::2], mine("float32", (6, 8))[:, 1::2])
    pair = [mine("float64", (3,)), mine("int32", (2, 2), 1)]
    hvd.grouped_allreduce_(pair, op=hvd.Max)
    same(pair[0], reduced(all_of("float64", (3,)), hvd.Max))
    same(pair[1], reduced(all_of("int32", (2, 2), 1), hvd.Max))
    root = mine("float16", (4,))
    assert hvd.broadcast_(root, 1) is root
    same(root, value(1, "float16", (4,)))


def unaligned_and_strided_memory_is_taken():
    raw = numpy.zeros(4 * 5 + 1, "uint8")
    array = raw[1:].view("float32")
    array[:] = mine("float32", (5,))
    assert not array.flags.aligned
    same(hvd.allreduce(array, op=hvd.Sum), reduced(all_of("float32", (5,)), hvd.Sum))
    hvd.allreduce_(array, op=hvd.Sum)
    same(numpy.array(array), reduced(all_of("float32", (5,)), hvd.Sum))
    same(hvd.allreduce(mine("float32", (4, 6)).T, op=hvd.Sum), reduced(all_of("float32", (4, 6)), hvd.Sum).T)


def rows(seed, rank):
    """Uneven row counts; some ranks have no rows."""
    return (rank * (seed + 1)) % 4


def gathers_join_uneven_rows():
    for seed, dtype in enumerate(DTYPES):
        parts = of_all_ranks(lambda rank: value(rank, dtype, (rows(seed, rank), 2), seed))
        same(hvd.allgather(parts[hvd.rank()]), numpy.concatenate(parts))
        root = seed % hvd.size()
        gathered = hvd.gather(parts[hvd.rank()], root)
        if hvd.rank() == root:
            same(gathered, numpy.concatenate(parts))
        else:
            assert gathered is None
    first, second = (of_all_ranks(lambda rank: value(rank, "float32", (rank, 2), seed)) for seed in (8, 9))
    results = hvd.grouped_allgather([first[hvd.rank()], second[hvd.rank()]], name="pair")
    same(results[0], numpy.concatenate(first))
    same(results[1], numpy.concatenate(second))


def splits_of(seed, rank):
    """Row counts from a rank to each member; some counts are zero, and some ranks send no rows."""
    return [(seed + rank * 3 + to * to) % 4 * (rank != seed % hvd.size()) for to in range(hvd.size())]


def all_to_all_sends_each_member_its_rows():
    for seed, dtype in enumerate(DTYPES):
        splits = of_all_ranks(lambda rank: splits_of(seed, rank))
        parts = of_all_ranks(lambda rank: value(rank, dtype, (sum(splits[rank]), 3), seed))
        cut = [numpy.split(part, numpy.cumsum(split)[:-1]) for part, split in zip(parts, splits)]
        output, received = hvd.alltoall(parts[hvd.rank()], splits[hvd.rank()], name=f"a2a{seed % 2}")
        same(output, numpy.concatenate([pieces[hvd.rank()] for pieces in cut]))
        assert received.tolist() == [split[hvd.rank()] for split in splits]
    parts = all_of("int64", (2 * hvd.size(), 2))
    same(hvd.alltoall(parts[hvd.rank()]), numpy.concatenate([part[2 * hvd.rank() :][:2] for part in parts]))


def scatter_deals_the_roots_rows():
    for seed, dtype in enumerate(DTYPES):
        root, splits = seed % hvd.size(), splits_of(seed, seed + 1)
        whole = value(0, dtype, (sum(splits), 3), seed)
        given = whole if hvd.rank() == root else numpy.empty((0, 3), dtype)
        got = hvd.scatter(given, root, splits if hvd.rank() == root else None, name=f"dealt{seed % 2}")
        same(got, numpy.split(whole, numpy.cumsum(splits)[:-1])[hvd.rank()])
    whole = value(0, "float32", (7, 2))
    same(hvd.scatter(whole, 0), numpy.array_split(whole, hvd.size())[hvd.rank()])


def broadcast_and_reduce_have_a_root():
    for root, dtype in itertools.product(range(hvd.size()), DTYPES):
        same(hvd.broadcast(mine(dtype, (3, 2)), root), value(root, dtype, (3, 2)))
        total = hvd.reduce(mine(dtype, (3, 2)), root, op=hvd.Sum)
        if hvd.rank() == root:
            same(total, reduced(all_of(dtype, (3, 2)), hvd.Sum))
        else:
            assert total is None


def reduce_scatter_gives_the_first_ranks_one_row_more():
    for dtype, count in itertools.product(["float64", "float16", "int32"], [0, 1, 7, 12]):
        total = numpy.array_split(reduced(all_of(dtype, (count, 5)), hvd.Sum), hvd.size())[hvd.rank()]
        same(hvd.reducescatter(mine(dtype, (count, 5)), op=hvd.Sum), total)
        for result in hvd.grouped_reducescatter([mine(dtype, (count, 5))] * 2, op=hvd.Sum):
            same(result, total)


def messages_go_between_two_ranks():
    """All pairs at the same time, submitted in different orders, under names that pairs share."""
    me, handles = hvd.rank(), []
    others = [rank for rank in range(hvd.size()) if rank != me]
    for tag, other in itertools.product(range(3), others if me % 2 else others[::-1]):
        array = numpy.zeros(4, "float64")
        handles.append((hvd.recv_async(array, other, name=f"tag{tag}"), array, 10 * other + tag))
        handles.append((hvd.send_async(numpy.full(4, 10.0 * me + tag), other, name=f"tag{tag}"), None, None))
    for handle, array, expected in handles[:: 1 if me % 2 else -1]:
        got = hvd.synchronize(handle)
        assert (got is None) if array is None else (got is array and (array == expected).all()), (array, expected)


def a_ring_of_unnamed_messages_does_not_hang():
    size, token = hvd.size(), numpy.array([hvd.rank()])
    for _ in range(5):
        sent = hvd.send_async(token, (hvd.rank() + 1) % size)
        token = hvd.recv(numpy.empty_like(token), (hvd.rank() - 1) % size)
        hvd.synchronize(sent)
    assert token[0] == (hvd.rank() - 5) % size


class Foreign:
    """An array of another library, which shares its memory only through DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def dlpack_goes_both_ways():
    array = mine("float32", (5, 2))
    result = hvd.allreduce(Foreign(array), op=hvd.Sum)
    same(numpy.from_dlpack(result), reduced(all_of("float32", (5, 2)), hvd.Sum))
    foreign = Foreign(array)
    assert hvd.allreduce_(foreign, op=hvd.Sum) is foreign
    same(array, reduced(all_of("float32", (5, 2)), hvd.Sum))


def short_floats_come_from_ml_dtypes():
    try:
        import ml_dtypes
    except ImportError:
        with raises(ValueError, "not supported", "ml_dtypes"):
            hvd.allreduce(numpy.zeros(2, "float32,float32"))
        return
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        parts = [part.astype(dtype) for part in all_of("float32", (300,))]
        expected = reduced([part.astype("float32") for part in parts], hvd.Sum).astype(dtype)
        same(hvd.allreduce(parts[hvd.rank()], op=hvd.Sum), expected)


def other_objects_than_arrays_are_refused():
    with raises(ValueError, "mask"):
        hvd.allreduce(numpy.ma.masked_array(numpy.ones(2), [True, False]))
    with raises(TypeError, "__dlpack__", "list"):
        hvd.allreduce([1.0])
    with raises(ValueError, "not supported", ">f4", "float32"):
        hvd.allreduce(numpy.ones(2, ">f4"))
    with raises(ValueError, "cannot be written"):
        hvd.allreduce_(numpy.frombuffer(b"12345678", "int64"), name="constant")
    with raises(ValueError, "share memory"):
        shared = numpy.lib.stride_tricks.as_strided(numpy.ones(1), (4,), (0,))
        hvd.allreduce_(shared)
    with raises(ValueError, "number of workers"):
        hvd.alltoall(numpy.ones(3), [1])
    with raises(ValueError, "greater than the first dimension"):
        hvd.alltoall(numpy.ones(3), [4] + [0] * (hvd.size() - 1))
    with raises(ValueError, "integer"):
        hvd.alltoall(numpy.ones(3), [0.5] * hvd.size())
    with raises(ValueError, "even multiple"):
        hvd.alltoall(numpy.ones(hvd.size() + 1))
    with raises(ValueError, "root_rank=99"):
        hvd.gather(numpy.ones(3), 99)
    with raises(ValueError, "for allreduce"):
        hvd.reducescatter(numpy.ones(3), compression=hvd.Compression.int8)


class Copying:
    """An object of which NumPy makes a copy."""

    def __init__(self):
        self.values = [1.0, 2.0]

    def __array__(self, dtype=None, copy=None):
        return numpy.array(self.values, dtype)


class Sharing(Copying):
    def __init__(self):
        self.values = numpy.ones(2)

    def __array__(self, dtype=None, copy=None):
        return self.values[:]


def copies_are_refused_in_place():
    for copied in (numpy.float64(3.0), numpy.int32(3), Copying()):
        with raises(ValueError, "the form that makes a new array", type(copied).__name__):
            hvd.allreduce_(copied)
        with raises(ValueError, "the form that makes a new array"):
            hvd.broadcast_(copied, 0)
        same(hvd.allreduce(copied, op=hvd.Sum), numpy.asarray(copied) * hvd.size())
    shared = Sharing()
    assert hvd.allreduce_(shared, op=hvd.Sum) is shared
    same(shared.values, numpy.ones(2) * hvd.size())
    hvd.allreduce_(numpy.ones((0, 3)))


def codecs_work_on_the_wire():
    array = mine("float32", (1000,))
    exact = reduced(all_of("float32", (1000,)), hvd.Sum)
    for codec, error in (("fp16", 2e-3), ("bf16", 2e-2), ("fp8", 0.15), ("int8", 0.06)):
        result = hvd.allreduce(array, op=hvd.Sum, compression=getattr(hvd.Compression, codec), name=f"coded {codec}")
        assert abs(result - exact).max() <= error * abs(exact).max(), codec
        assert (result != exact).any(), codec
        same(hvd.broadcast(result, 0), result)
    ones = numpy.ones(3, "int32")
    same(hvd.allreduce(ones, compression=hvd.Compression.fp16, op=hvd.Sum), ones * hvd.size())


class Halved:
    """A codec that sends the upper half of every number."""

    block = 1

    def wire_bytes(self, count):
        return 2 * count

    def encode(self, values, residual, wire):
        assert residual is None
        numpy.frombuffer(wire, "uint16")[:] = numpy.frombuffer(values, "uint32") >> 16

    def decode(self, wire, values):
        numpy.frombuffer(values, "uint32")[:] = numpy.frombuffer(wire, "uint16").astype("uint32") << 16


def users_codecs_and_operations():
    halved = hvd.register_codec("halved", Halved())
    ones = numpy.ones(300, "float32")
    same(hvd.allreduce(ones, op=hvd.Sum, compression=halved), ones * hvd.size())

    def hypotenuse(accumulator, value):
        accumulator[:] = numpy.sqrt(accumulator * accumulator + value * value)

    op = hvd.register_op("hypotenuse", hypotenuse)
    array = mine("float64", (1000,))
    expected = numpy.sqrt(sum(part * part for part in all_of("float64", (1000,))))
    numpy.testing.assert_allclose(hvd.allreduce(array, op=op), expected, rtol=1e-12)

    lengths = set()

    def whole(accumulator, value):
        lengths.add(len(accumulator))
        accumulator += value.sum()

    op = hvd.register_op("whole", whole, whole=True)
    hvd.grouped_allreduce([numpy.ones(1000, "float32"), numpy.ones(10, "float32")], op=op, name="wholes")
    everywhere = hvd.allgather(numpy.array(sorted(lengths), "int64"))
    assert set(everywhere.tolist()) == {10, 1000}, everywhere
    with raises(ValueError, "unregistered"):
        hvd.allreduce(array, op=type(op)("unregistered"))


def a_unit_fails_as_a_whole():
    parts = [numpy.ones(2), numpy.ones(3 + hvd.rank()), numpy.ones(4)]
    with raises(hvd.Mismatch, "unit_2of3", "shape"):
        hvd.grouped_allreduce_(parts, name="unit", op=hvd.Sum)
    assert all((part == 1).all() for part in parts)
    assert hvd.grouped_allreduce([]) == []
    hvd.grouped_allreduce_(parts[::2], name="unit", op=hvd.Sum)
    assert all((part == hvd.size()).all() for part in parts[::2])


def handles_may_be_dropped_in_flight():
    from horo import _default

    for i in range(20):
        hvd.allgather_async(numpy.ones((hvd.rank(), 2)), name=f"dropped{i}")
        hvd.grouped_allreduce_async([numpy.ones(100), numpy.ones(7)], name=f"dropped unit{i}")
        hvd.alltoall_async(numpy.ones(hvd.size()), name=f"dropped a2a{i}")
    for _ in range(3):
        hvd.barrier()
        hvd.allreduce(numpy.ones(1))
    assert len(_default.session().kept) < 60


claims_bare.check(
    all_reduce_is_right_for_every_dtype_and_op,
    what_is_not_defined_is_refused,
    results_take_the_place_of_their_input,
    unaligned_and_strided_memory_is_taken,
    gathers_join_uneven_rows,
    all_to_all_sends_each_member_its_rows,
    scatter_deals_the_roots_rows,
    broadcast_and_reduce_have_a_root,
    reduce_scatter_gives_the_first_ranks_one_row_more,
    messages_go_between_two_ranks,
    a_ring_of_unnamed_messages_does_not_hang,
    dlpack_goes_both_ways,
    short_floats_come_from_ml_dtypes,
    other_objects_than_arrays_are_refused,
    copies_are_refused_in_place,
    codecs_work_on_the_wire,
    users_codecs_and_operations,
    a_unit_fails_as_a_whole,
    handles_may_be_dropped_in_flight,
)
