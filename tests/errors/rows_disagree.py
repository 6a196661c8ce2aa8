"""Ranks that submit one tensor with different properties."""

import torch
from table import on_ranks

import horo.torch as hvd

SECTION = "Ranks that disagree"


@on_ranks(SECTION, "Another shape", do="Pad to one shape, or use `allgather`, whose first dimension may differ")
def another_shape():
    hvd.allreduce(torch.ones(2 + hvd.rank()), name="weights")


@on_ranks(SECTION, "Another dtype", do="Convert before the call; use mixed precision on all ranks or on none")
def another_dtype():
    hvd.allreduce(torch.ones(2, dtype=torch.float32 if hvd.rank() else torch.int32), name="bias")


@on_ranks(SECTION, "Another op", do="Pass the same `op` on all ranks")
def another_op():
    hvd.allreduce(torch.ones(2), name="scale", op=hvd.Max if hvd.rank() else hvd.Sum)


@on_ranks(SECTION, "Another collective", do="Give the two calls different names, or make the same call on all ranks")
def another_collective():
    hvd.allreduce(torch.ones(2), name="kind") if hvd.rank() else hvd.broadcast(torch.ones(2), 0, name="kind")


@on_ranks(SECTION, "Another root", do="Pass the same `root_rank` on all ranks")
def another_root():
    hvd.broadcast(torch.ones(2), hvd.rank() % 2, name="rooted")


@on_ranks(
    SECTION,
    "Another factor",
    do="Pass the same factors on all ranks; scale the tensor before the call if they must differ",
)
def another_factor():
    hvd.allreduce(torch.ones(2), name="scaled", prescale_factor=1.0 + hvd.rank())


@on_ranks(SECTION, "Rows of different lengths in `allgather`", do="Only the first dimension may differ")
def rows_of_different_lengths():
    hvd.allgather(torch.ones(2, 2 + hvd.rank()), name="rows")


@on_ranks(SECTION, "Another priority", do="Pass the same `priority` on all ranks")
def another_priority():
    hvd.synchronize(hvd.allreduce_async(torch.ones(2), name="urgent", priority=hvd.rank()))
