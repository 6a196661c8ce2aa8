"""Tensors in memory that the ranks of a host map."""

import math

import torch

from horo import _default
from horo._arguments import whole
from horo._sets import global_process_set, number_of
from horo.torch.arrays import DTYPES


def empty(*shape, dtype=None, process_set=global_process_set):
    """A tensor in memory that the collectives of the process set read and write fastest; its values are not set. As
    torch.empty(): a shape, or its numbers. A forked child must not touch it. It lasts as long as a tensor of it does,
    also after shutdown()."""
    if len(shape) == 1 and not isinstance(shape[0], int):
        shape = tuple(shape[0])
    shape = tuple(whole(size, f"horo.empty: shape={shape!r}: a size", "a number of at least 0", 0) for size in shape)
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if dtype not in DTYPES:
        raise ValueError(f"horo.empty: dtype={dtype!r}; expected one of {', '.join(map(str, DTYPES))}")
    number, nbytes = number_of(process_set), math.prod(shape) * dtype.itemsize
    session = _default.session()
    if nbytes == 0:
        return torch.empty(shape, dtype=dtype, device="cpu")
    return torch.frombuffer(session.allocate(nbytes, number), dtype=dtype).view(shape)
