"""Tensors that cannot be moved, and arguments that cannot be meant."""

import torch
from table import AGAIN, on_ranks

import horo.torch as hvd

SECTION = "Tensors"


@on_ranks(SECTION, "A complex tensor", do="Send `torch.view_as_real(tensor)`")
def complex_tensor():
    hvd.allreduce(torch.ones(2, dtype=torch.complex64), name="spectrum")


@on_ranks(SECTION, "A tensor on a device that horo does not know", do="Move it to the CPU first")
def tensor_on_meta():
    hvd.allreduce(torch.ones(2, device="meta"), name="weights")


@on_ranks(SECTION, "A sparse tensor", do="`tensor.to_dense()`, or `sparse=False` where it is made")
def sparse_tensor():
    hvd.allreduce(torch.eye(2).to_sparse(), name="embedding")


@on_ranks(SECTION, "Something that is no tensor", do="`torch.tensor(value)`, or `broadcast_object`, `allgather_object`")
def no_tensor():
    hvd.allreduce_async([1.0], name="loss")


@on_ranks(SECTION, "An average of bools", do="`op=horo.Max` is *or*, `op=horo.Min` is *and*")
def average_of_bools():
    hvd.allreduce(torch.ones(2, dtype=torch.bool), name="mask")


@on_ranks(
    SECTION,
    "A scalar in `allgather`",
    do="`tensor.reshape(1)`",
    changing=((r"rank \d tried", "rank <rank> tried"),),
)
def gathered_scalar():
    hvd.allgather(torch.tensor(1.0), name="loss")


@on_ranks(SECTION, "A name that is in flight already", do="`synchronize` the first, or name them differently")
def name_in_flight():
    handle = hvd.allreduce_async(torch.ones(2), name="twice")
    try:
        hvd.allreduce_async(torch.ones(2), name="twice")
    finally:
        hvd.synchronize(handle)


@on_ranks("init and shutdown", "A call before `init()`", do="Call `horo.init()` first", session=AGAIN)
def call_before_init():
    hvd.shutdown()
    hvd.allreduce(torch.ones(1))
