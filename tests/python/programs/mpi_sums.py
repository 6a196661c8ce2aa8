"""Sums that MPI computes (HORO_ALGORITHMS=all_reduce=mpi, order="fast"), against numpy; prints by what they went."""

import sys

import numpy

import horo.numpy as hvd

hvd.init()
rank, size = hvd.rank(), hvd.size()
# Integers that overflow: they wrap, by whomever they are added.
for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"):
    most = numpy.iinfo(dtype).max
    mine = numpy.full(1000, most - rank, dtype)
    expected = sum(most - one for one in range(size)) % (1 << 8 * mine.itemsize)
    expected = numpy.array([expected], numpy.uint64).astype(mine.dtype)[0]
    found = hvd.allreduce(mine, op=hvd.Sum, name=f"sum {dtype}", order="fast")
    assert (found == expected).all(), (dtype, found[0], expected)
    found = hvd.allreduce(mine, op=hvd.Max, name=f"max {dtype}", order="fast")
    assert (found == most).all(), (dtype, found[0])
# Sums, products and averages with factors; more than one message's worth.
for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-13), ("complex64", 1e-5), ("complex128", 1e-13)):
    for count in (1, 1000, 300_001):
        values = [numpy.random.default_rng(one).uniform(0.5, 1.5, count).astype(dtype) for one in range(size)]
        for op, expected in ((hvd.Sum, 6 * sum(values)), (hvd.Average, 6 * sum(values) / size)):
            factors = {"prescale_factor": 2.0, "postscale_factor": 3.0}
            name = f"{dtype} {count} {op}"
            found = hvd.allreduce(values[rank], op=op, name=name, order="fast", **factors)
            assert found.dtype == values[rank].dtype
            numpy.testing.assert_allclose(found, expected, rtol=tolerance)
        found = hvd.allreduce(values[rank], op=hvd.Product, name=f"{dtype} {count} product", order="fast")
        numpy.testing.assert_allclose(found, numpy.prod(values, axis=0), rtol=tolerance)
        alike = hvd.allgather(found[-1:], name=f"{dtype} {count} alike")
        assert (alike == alike[0]).all()
# A NaN is not lost in a maximum, and the canonical order is nobody's choice but horo's.
some = numpy.array([numpy.nan if rank == 0 else 1.0, rank], "float32")
found = hvd.allreduce(some, op=hvd.Max, name="nan", order="fast")
assert numpy.isnan(found[0]) and found[1] == size - 1
assert (hvd.allreduce(numpy.ones(5), op=hvd.Sum, name="canonical") == size).all()
mine = [entry for entry in hvd.counters()["collectives"] if entry["kind"] == "all_reduce"]
counted = {entry["algorithm"]: entry["count"] for entry in mine}
print("by", sorted(counted), "mpi", counted.get("mpi", 0), flush=True)
hvd.shutdown()
sys.exit(0)
