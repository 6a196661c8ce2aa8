"""horo.torch beyond plain reductions: more dtypes, alltoall, units, sparse tensors, codecs."""

import itertools

import claims
import numpy
import oracle
import torch
from claims import raises, same_bits, value

import horo.numpy
import horo.torch as hvd

ALL = ["uint16", "uint32", "uint64", "int16", "complex64", "complex128"]
SMALL = [torch.float8_e4m3fn, torch.float8_e5m2]


def of_all_ranks(of):
    return [of(rank) for rank in range(hvd.size())]


def more_dtypes_are_reduced():
    for name, op in itertools.product(ALL, oracle.OPS):
        if oracle.supports(name, op):
            parts = of_all_ranks(lambda rank: oracle.value(rank, name, (33,)))
            result = hvd.allreduce(torch.from_numpy(parts[hvd.rank()].copy()), op=op, name=name)
            assert result.dtype == getattr(torch, name)
            close = name.startswith("complex") and op == hvd.Product
            oracle.same(result.numpy(), oracle.reduced(parts, op), close)


def eight_bit_floats_are_summed_in_float32():
    for dtype, op in itertools.product(SMALL, [hvd.Average, hvd.Sum, hvd.Min, hvd.Max]):
        parts = of_all_ranks(lambda rank: value(rank, torch.float32, (500,)).to(dtype))
        expected = claims.reduced([part.float() for part in parts], op).to(dtype)
        result = hvd.allreduce(parts[hvd.rank()], op=op)
        assert result.dtype == dtype and torch.equal(result.float(), expected.float())
        gathered = hvd.allgather(parts[hvd.rank()])
        assert torch.equal(gathered.view(torch.uint8), torch.cat([part.view(torch.uint8) for part in parts]))


def conjugates_are_what_they_say():
    tensor = torch.from_numpy(oracle.value(hvd.rank(), "complex128", (9,)).copy())
    conjugate, imaginary = tensor.conj(), tensor.conj().imag
    assert conjugate.is_conj() and imaginary.is_neg()
    same_bits(hvd.allreduce(conjugate), hvd.allreduce(conjugate.resolve_conj()))
    same_bits(hvd.broadcast(imaginary, 1), hvd.broadcast(imaginary.resolve_neg(), 1))
    expected = hvd.allreduce(conjugate.resolve_conj(), op=hvd.Sum)
    hvd.allreduce_(conjugate, op=hvd.Sum)
    same_bits(conjugate.resolve_conj(), expected)
    same_bits(tensor, expected.conj().resolve_conj())
    single = tensor[:1].conj().imag
    assert single.is_neg() and single.is_contiguous()
    negated = single.resolve_neg()
    same_bits(hvd.broadcast(single, 1), hvd.broadcast(negated, 1))
    hvd.allreduce_(single, name="single", op=hvd.Sum)
    same_bits(single.resolve_neg(), hvd.allreduce(negated, op=hvd.Sum))


def all_to_all_returns_what_horovod_returns():
    size, me = hvd.size(), hvd.rank()
    splits = of_all_ranks(lambda rank: [(rank + 2 * to) % 3 for to in range(size)])
    parts = of_all_ranks(lambda rank: value(rank, torch.float32, (sum(splits[rank]), 2)))
    expected = torch.cat([part.split(split)[me] for part, split in zip(parts, splits)])
    for given in (splits[me], torch.tensor(splits[me], dtype=torch.int32)):
        output, received = hvd.alltoall(parts[me], given, name="a2a")
        same_bits(output, expected)
        assert received.dtype == torch.int32 and received.tolist() == [split[me] for split in splits]
    even = value(me, torch.bfloat16, (2 * size, 3))
    output = hvd.synchronize(hvd.alltoall_async(even))
    same_bits(output, torch.cat(of_all_ranks(lambda rank: value(rank, torch.bfloat16, (2 * size, 3))[2 * me :][:2])))


def units_are_reduced_together_or_not_at_all():
    shapes, dtypes = [(5,), (), (0, 2), (300, 3)], [torch.float32, torch.float64, torch.int64, torch.bfloat16]
    parts = of_all_ranks(lambda rank: [value(rank, dtype, shape) for shape, dtype in zip(shapes, dtypes)])
    totals = [claims.reduced(list(each), hvd.Sum) for each in zip(*parts)]
    for result, total in zip(hvd.grouped_allreduce(parts[hvd.rank()], op=hvd.Sum, name="unit"), totals):
        same_bits(result, total)
    mine = [part.clone() for part in parts[hvd.rank()]]
    assert hvd.grouped_allreduce_(mine, op=hvd.Sum)[0] is mine[0]
    for result, total in zip(mine, totals):
        same_bits(result, total)
    wrong = [torch.ones(2), torch.ones(2 + hvd.rank())]
    with raises(hvd.Mismatch, "wrong_2of2", "shape"):
        hvd.grouped_allreduce_(wrong, name="wrong", op=hvd.Sum)
    assert all((tensor == 1).all() for tensor in wrong)


def sparse_of(rank, shape=(10, 3)):
    """Rank 0 has no values; on other ranks indices occur twice."""
    rows = torch.arange(2 * rank) % 3 * rank
    return torch.sparse_coo_tensor(rows[None], value(rank, torch.float64, (2 * rank, 3)), shape, check_invariants=True)


def sparse_tensors_are_summed():
    dense = of_all_ranks(lambda rank: sparse_of(rank).to_dense())
    for op in (hvd.Sum, hvd.Average):
        handle = hvd.sparse_allreduce_async(sparse_of(hvd.rank()), name="sparse", op=op)
        result = handle() if op == hvd.Sum else hvd.synchronize(handle)
        assert result.layout is torch.sparse_coo and result.shape == (10, 3)
        torch.testing.assert_close(result.to_dense(), claims.reduced(dense, op))
    with raises(TypeError, "sparse_coo", "strided"):
        hvd.sparse_allreduce_async(torch.ones(2), name="dense", op=hvd.Sum)


def tensors_of_inference_mode_are_replaced_outside_of_it():
    with torch.inference_mode():
        table = value(hvd.rank(), torch.float32, (4, 6))
        strided, other, whole = table[:, ::2], table[:, 1::2].t(), value(hvd.rank(), torch.float32, (5,))
        lazy = value(hvd.rank(), torch.float32, (3, 2)).view(torch.complex64).conj()
        sparse = sparse_of(hvd.rank())
    tables = of_all_ranks(lambda rank: value(rank, torch.float32, (4, 6)))
    wholes = of_all_ranks(lambda rank: value(rank, torch.float32, (5,)))
    assert hvd.allreduce_(strided, name="strided", op=hvd.Sum) is strided and strided.is_inference()
    same_bits(strided.clone(), claims.reduced([part[:, ::2] for part in tables], hvd.Sum))
    hvd.grouped_allreduce_([other, whole], op=hvd.Sum)
    same_bits(whole.clone(), claims.reduced(wholes, hvd.Sum))
    same_bits(other.clone(), claims.reduced([part[:, 1::2].t() for part in tables], hvd.Sum))
    hvd.broadcast_(lazy, 1, name="lazy")
    same_bits(lazy.resolve_conj().clone(), value(1, torch.float32, (3, 2)).view(torch.complex64).conj().resolve_conj())
    hvd.broadcast_parameters({"strided": strided, "whole": whole}, root_rank=1)
    result = hvd.sparse_allreduce_async(sparse, "sparse of inference mode", hvd.Sum)()
    expected = claims.reduced(of_all_ranks(lambda rank: sparse_of(rank).to_dense()), hvd.Sum)
    torch.testing.assert_close(result.to_dense(), expected)
    if hvd.rank() < 2:
        hvd.send(strided, 1, "message") if hvd.rank() == 0 else hvd.recv(strided, 0, "message")


class Doubled(hvd.Compressor):
    """A compressor as in Horovod: it sends half of the bits of each number."""

    @staticmethod
    def compress(tensor):
        return tensor.to(torch.float32), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.to(ctx)


class Scaled(hvd.Compression.fp16):
    @classmethod
    def compress(cls, tensor):
        small, ctx = super().compress(tensor / 4)
        return small, ctx

    @classmethod
    def decompress(cls, tensor, ctx):
        return super().decompress(tensor, ctx) * 4


def conjugated_gradients_are_reduced_as_they_are():
    """Gradients of autograd may be any view of memory."""
    param = torch.nn.Parameter(torch.zeros(4, dtype=torch.complex128))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), [("complex", param)], op=hvd.Sum)
    param.grad = torch.from_numpy(oracle.value(hvd.rank(), "complex128", (4,))).conj()
    assert param.grad.is_conj()
    optimizer.step()
    parts = of_all_ranks(lambda rank: oracle.value(rank, "complex128", (4,)).conj())
    oracle.same(param.grad.resolve_conj().numpy(), oracle.reduced(parts, hvd.Sum))


def compression_is_a_codec_or_the_users_own():
    parts = of_all_ranks(lambda rank: value(rank, torch.float64, (1000,)))
    exact = claims.reduced(parts, hvd.Sum)
    names = [(name, getattr(hvd.Compression, name)) for name in ("fp16", "bf16", "fp8", "int8")]
    for name, compression in [*names, ("doubled", Doubled), ("scaled", Scaled)]:
        result = hvd.allreduce(parts[hvd.rank()], op=hvd.Sum, compression=compression, name=f"by {name}")
        assert result.dtype == torch.float64 and not torch.equal(result, exact)
        assert (result - exact).abs().max() < 0.15 * exact.abs().max(), name
        same_bits(hvd.broadcast(result, 0), result)
        pair = hvd.grouped_allreduce([parts[hvd.rank()]] * 2, op=hvd.Sum, compression=compression, name=f"of {name}")
        assert all((each - exact).abs().max() < 0.15 * exact.abs().max() for each in pair)
    result = hvd.reducescatter(parts[hvd.rank()], op=hvd.Sum, compression=hvd.Compression.bf16)
    expected = exact.tensor_split(hvd.size())[hvd.rank()]
    assert result.dtype == torch.float64 and (result - expected).abs().max() < 0.05 * exact.abs().max()
    with raises(ValueError, "compression='zip'", "fp16"):
        hvd.allreduce(parts[0], compression="zip")
    with raises(ValueError, "int8", "for allreduce"):
        hvd.reducescatter(parts[0], compression=hvd.Compression.int8)


def operations_of_the_users_own_get_tensors():
    def larger(accumulator, other):
        accumulator.copy_(torch.where(other.abs() > accumulator.abs(), other, accumulator))

    op = hvd.register_op("larger", larger)
    parts = of_all_ranks(lambda rank: value(rank, torch.bfloat16, (100,)))
    result = hvd.allreduce(parts[hvd.rank()], op=op)
    assert torch.equal(result.abs(), torch.stack(parts).abs().max(0).values)


def messages_and_roots():
    me, size = hvd.rank(), hvd.size()
    sent = hvd.send_async(torch.full((3,), float(me)), (me + 1) % size, name="around")
    assert (hvd.recv(torch.empty(3), (me - 1) % size, name="around") == (me - 1) % size).all()
    assert hvd.synchronize(sent) is None
    assert (hvd.gather(torch.full((me,), me), 1) is None) == (me != 1)
    same_bits(hvd.scatter(torch.arange(7) if me == 2 else torch.arange(0), 2), torch.arange(7).tensor_split(size)[me])
    total = hvd.reduce(torch.tensor([1.0 + me]), 0, op=hvd.Product)
    assert total is None or (me == 0 and total.item() == 6.0)


def numpy_takes_and_gives_torch_tensors():
    tensor = value(hvd.rank(), torch.float32, (6,))
    result = torch.from_dlpack(horo.numpy.allreduce(tensor))
    same_bits(result, hvd.allreduce(tensor))
    expected = hvd.allreduce(tensor, op=hvd.Sum)
    assert horo.numpy.allreduce_(tensor, op=hvd.Sum) is tensor
    same_bits(tensor, expected)
    assert isinstance(horo.numpy.allgather(torch.ones(2, 2)), numpy.ndarray)
    with raises(ValueError, "NumPy cannot take this Tensor"):
        horo.numpy.allreduce(torch.ones(2, requires_grad=True))
    try:
        import ml_dtypes  # noqa: F401
    except ImportError:
        with raises(ValueError, "NumPy cannot take"):
            horo.numpy.allreduce(torch.ones(2, dtype=torch.bfloat16))


def objects_travel_within_a_set():
    pair = hvd.add_process_set([0, 2])
    if pair.included():
        assert hvd.allgather_object(hvd.rank(), process_set=pair) == [0, 2]
        assert hvd.broadcast_object(hvd.rank(), 2, process_set=pair) == 2
    hvd.remove_process_set(pair)


claims.check(
    more_dtypes_are_reduced,
    eight_bit_floats_are_summed_in_float32,
    conjugates_are_what_they_say,
    all_to_all_returns_what_horovod_returns,
    units_are_reduced_together_or_not_at_all,
    sparse_tensors_are_summed,
    tensors_of_inference_mode_are_replaced_outside_of_it,
    conjugated_gradients_are_reduced_as_they_are,
    compression_is_a_codec_or_the_users_own,
    operations_of_the_users_own_get_tensors,
    messages_and_roots,
    numpy_takes_and_gives_torch_tensors,
    objects_travel_within_a_set,
)
