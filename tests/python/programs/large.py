"""A tensor of more than 2^31 elements: all of them are reduced, also those with an index of more than 32 bits."""

import claims
import torch

import horo.torch as hvd

ELEMENTS = 2**31 + 7
PIECE = 1 << 28


def every_element_is_summed():
    tensor = torch.full((ELEMENTS,), 3 + hvd.rank(), dtype=torch.uint8)
    expected = sum(3 + rank for rank in range(hvd.size()))
    marks = [0, 2**31 - 1, 2**31, ELEMENTS - 1]
    tensor[marks] = 50
    hvd.allreduce_(tensor, name="large", op=hvd.Sum)
    assert tensor[marks].tolist() == [50 * hvd.size()] * len(marks)
    tensor[marks] = expected
    assert all(bool((piece == expected).all()) for piece in tensor.split(PIECE))


claims.check(every_element_is_summed)
