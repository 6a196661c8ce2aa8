"""Ranks 2 and 3 of four get the tensors of ranks 0 and 1; then a rank with another shape is
refused. Argument: MiB of the large tensor, whose times are printed."""

import sys

import torch

import horo.torch as horo
from horo import _default
from horo.elastic import transfer
from horo.elastic.buffers import buffer_of

horo.init()
rank, session = horo.rank(), _default.session()
has_state = rank < 2
generator = torch.Generator().manual_seed(5)


def tensors_of(megabytes):
    shapes = {"small": (3,), "none": (0, 4), "bytes": (1 << 18,), "large": (megabytes << 18,), "scalar": ()}
    values = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    values["half"] = values["bytes"].bfloat16()
    values["transposed"] = torch.randn(5, 7, generator=generator).t()
    mine = {name: value if has_state else torch.zeros_like(value) for name, value in values.items()}
    return values, mine


def give(mine):
    buffers = [buffer_of(name, value) for name, value in mine.items()]
    moved = transfer.transfer(session, buffers, has_state)
    for buffer in buffers if not has_state else ():
        buffer.finish()
    return moved


values, mine = tensors_of(int(sys.argv[1]))
moved = give(mine)
assert all(torch.equal(mine[name], values[name]) for name in values), rank
assert moved.is_complete, moved
if not has_state:
    print(moved.text, flush=True)

mine["large"] = mine["large"] if has_state else mine["large"][:-1]
try:
    give(mine)
    assert has_state
except ValueError as error:
    assert f"rank {rank}: the state of this rank differs" in str(error) and "large is float32[" in str(error), error
    horo.shutdown()
    sys.exit()
except horo.HoroError:  # in a static job the others cannot go on without the refused ranks
    assert has_state
