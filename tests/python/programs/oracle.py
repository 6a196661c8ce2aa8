"""The expected results of collectives in plain NumPy: the values of every rank, and their canonical reduction."""

import numpy

import horo.numpy as hvd

FLOATS = ["float64", "float32", "float16"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
COMPLEX = ["complex64", "complex128"]
DTYPES = [*FLOATS, *INTEGERS, "bool", *COMPLEX]
ARITHMETIC = [hvd.Average, hvd.Sum, hvd.Product]
OPS = [*ARITHMETIC, hvd.Min, hvd.Max, hvd.BitAnd, hvd.BitOr, hvd.BitXor]

_COMBINE = {
    hvd.Average: numpy.add,
    hvd.Sum: numpy.add,
    hvd.Product: numpy.multiply,
    hvd.Min: numpy.minimum,
    hvd.Max: numpy.maximum,
    hvd.BitAnd: numpy.bitwise_and,
    hvd.BitOr: numpy.bitwise_or,
    hvd.BitXor: numpy.bitwise_xor,
}
_LOGICAL = {hvd.Sum: numpy.logical_or, hvd.Product: numpy.logical_and}


def value(rank, dtype, shape, seed=0):
    """The array of a rank; every rank can compute it."""
    generator = numpy.random.default_rng(1000 * seed + rank)
    kind = numpy.dtype(dtype).kind
    if kind == "c":
        return (generator.standard_normal(shape) + 1j * generator.standard_normal(shape)).astype(dtype)
    if kind == "f":
        return numpy.asarray(generator.standard_normal(shape)).astype(dtype)
    if kind == "b":
        return numpy.asarray(generator.random(shape) < 0.5)
    bounds = numpy.iinfo(dtype)
    return numpy.asarray(generator.integers(max(bounds.min, -(1 << 40)), min(bounds.max, 1 << 40), shape, dtype=dtype))


def supports(dtype, op):
    kind = numpy.dtype(dtype).kind
    if op in (hvd.BitAnd, hvd.BitOr, hvd.BitXor):
        return kind in "iub"
    return not (kind == "b" and op == hvd.Average) and not (kind == "c" and op not in ARITHMETIC)


def tree(parts, combine):
    """The canonical order over ids 0..N-1: split at the largest power of two below N."""
    if len(parts) == 1:
        return parts[0]
    half = 1 << (len(parts) - 1).bit_length() - 1
    return combine(tree(parts[:half], combine), tree(parts[half:], combine))


def reduced(parts, op):
    """The reduction of these arrays."""
    dtype = parts[0].dtype
    combine = _COMBINE[op]
    if dtype.kind == "b":
        return tree(parts, _LOGICAL.get(op, combine))
    if dtype.kind in "iu" and op == hvd.Average:
        total = sum(part.astype("int64") for part in parts)
        return (numpy.sign(total) * (abs(total) // len(parts))).astype(dtype)
    wide = [part.astype("float32") if dtype == "float16" else part for part in parts]
    total = tree(wide, combine)
    if op != hvd.Average:
        return total.astype(dtype)
    if dtype.kind == "c":  # divides both parts; NumPy's division of complex numbers also multiplies
        mean = numpy.empty_like(total)
        mean.real, mean.imag = (part / part.dtype.type(len(parts)) for part in (total.real, total.imag))
        return mean
    return (total / len(parts)).astype(dtype)


def same(a, b, close=False):
    """Equal in dtype, shape and bits; close: to a few units in the last place."""
    assert isinstance(a, numpy.ndarray), type(a)
    assert a.dtype == b.dtype, f"{a.dtype}, expected {b.dtype}"
    assert a.shape == b.shape, f"{a.shape}, expected {b.shape}"
    if close:
        numpy.testing.assert_allclose(a, b, rtol=8 * numpy.finfo(a.dtype).eps)
    else:
        numpy.testing.assert_array_equal(a, b)


def of_all_ranks(of):
    return [of(rank) for rank in range(hvd.size())]
