"""Adasum of NumPy arrays against the recursion in float64, over process sets of 2 to all ranks of the world."""

import claims_bare
import numpy as np
from claims_bare import raises

import horo.numpy as hvd

SHAPES = [(1,), (3, 5), (4001,), ()]


def combine(a, b):
    ab, aa, bb = np.vdot(a, b), np.vdot(a, a), np.vdot(b, b)
    return (1 - ab / (2 * aa)) * a + (1 - ab / (2 * bb)) * b


def recursion(values, ids=None):
    """The canonical tree over ids 0 to N - 1, or these: split at the highest bit in which they differ."""
    if len(values) == 1:
        return values[0]
    ids = list(range(len(values))) if ids is None else ids
    bit = 1 << (ids[0] ^ ids[-1]).bit_length() - 1
    half = sum(not id & bit for id in ids)
    return combine(recursion(values[:half], ids[:half]), recursion(values[half:], ids[half:]))


def values_of(rank, seed=0):
    random = np.random.default_rng(100 * rank + seed)
    return [random.normal(size=shape) for shape in SHAPES]


def expected(ranks, ids=None):
    return [recursion([np.asarray(values_of(rank)[i]) for rank in ranks], ids) for i in range(len(SHAPES))]


def sets_of_every_size_equal_the_recursion():
    for size in range(2, hvd.size() + 1):
        ranks = list(range(size))[::-1] if size % 2 else list(range(hvd.size()))[-size:]
        part = hvd.add_process_set(ranks) if size < hvd.size() else hvd.global_process_set
        if part.included():
            found = hvd.grouped_allreduce(values_of(hvd.rank()), op=hvd.Adasum, process_set=part)
            for one, exact in zip(found, expected(sorted(ranks))):
                assert np.allclose(one, exact, rtol=0, atol=1e-10), abs(one - exact).max()
        if size < hvd.size():
            hvd.remove_process_set(part)


def ranks_that_joined_have_no_value():
    if hvd.rank() != 1:
        found = hvd.allreduce(values_of(hvd.rank())[1], op=hvd.Adasum)
        others = [rank for rank in range(hvd.size()) if rank != 1]
        exact = expected(others, others)[1]
        assert np.allclose(found, exact, rtol=0, atol=1e-10)
    hvd.join()


def types_and_collectives_without_it_are_refused_by_name():
    with raises(ValueError, "counts", "adasum is not defined for int64"):
        hvd.allreduce(np.ones(2, np.int64), name="counts", op=hvd.Adasum)
    with raises(ValueError, "expected Average or Sum"):
        hvd.reducescatter(np.ones(2), op=hvd.Adasum)
    with raises(ValueError, "only an all_reduce can have the operation adasum"):
        hvd.reduce(np.ones(2), 0, op=hvd.Adasum)
    with raises(ValueError, "not for adasum of float32"):
        hvd.allreduce(np.ones(2, np.float32), op=hvd.Adasum, compression=hvd.Compression.int8)


def ranks_that_disagree_fail():
    with raises(hvd.Mismatch, "sum on rank 0", "adasum on ranks 1-"):
        hvd.allreduce(np.ones(2), name="w", op=hvd.Adasum if hvd.rank() else hvd.Sum)


if __name__ == "__main__":
    claims_bare.check(
        sets_of_every_size_equal_the_recursion,
        ranks_that_joined_have_no_value,
        types_and_collectives_without_it_are_refused_by_name,
        ranks_that_disagree_fail,
    )
