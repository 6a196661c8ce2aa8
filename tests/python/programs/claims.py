"""claims_bare for programs with torch, and the expected results of reductions of torch tensors."""

import claims_bare
import torch
from claims_bare import raises  # noqa: F401

import horo.torch as hvd


def check(*claims, init=True):
    """claims_bare.check, with torch's generator in the same state before each claim."""
    torch.manual_seed(1)
    claims_bare.check(*claims, init=init)


def same_bits(a, b):
    """Equal in dtype, shape and every bit but a NaN's."""
    assert a.dtype == b.dtype, f"{a.dtype}, expected {b.dtype}"
    assert a.shape == b.shape, f"{a.shape}, expected {b.shape}"
    assert torch.equal(torch.isnan(a), torch.isnan(b))
    a, b = torch.nan_to_num(a), torch.nan_to_num(b)
    assert torch.equal(a, b), f"{a}, expected {b}"


def tree(parts, combine):
    """The canonical order over ranks 0..N-1: split at the largest power of two below N."""
    if len(parts) == 1:
        return parts[0]
    half = 1 << (len(parts) - 1).bit_length() - 1
    return combine(tree(parts[:half], combine), tree(parts[half:], combine))


_COMBINE = {
    hvd.Average: torch.add,
    hvd.Sum: torch.add,
    hvd.Min: torch.minimum,
    hvd.Max: torch.maximum,
    hvd.Product: torch.mul,
}
_BOOL = {hvd.Sum: torch.logical_or, hvd.Max: torch.logical_or}


def reduced(parts, op, prescale=1.0, postscale=1.0):
    """The exact result of all_reduce of these ranks' tensors."""
    dtype = parts[0].dtype
    if dtype == torch.bool:
        return tree(parts, _BOOL.get(op, torch.logical_and))
    if not dtype.is_floating_point and op == hvd.Average:
        return torch.div(sum(part.long() for part in parts), len(parts), rounding_mode="trunc").to(dtype)
    if not dtype.is_floating_point:
        return tree(parts, _COMBINE[op])
    wide = torch.float32 if dtype.itemsize < 4 else dtype
    total = tree([part.to(wide) * prescale for part in parts], _COMBINE[op])
    return (total / (len(parts) if op == hvd.Average else 1) * postscale).to(dtype)


def value(rank, dtype, shape, seed=0):
    """The tensor of a rank; every rank can compute it."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    bounds = torch.iinfo(dtype)
    low, high = max(bounds.min, -(1 << 40)), min(bounds.max, 1 << 40)
    return torch.randint(low, high, shape, generator=generator, dtype=torch.int64).to(dtype)
