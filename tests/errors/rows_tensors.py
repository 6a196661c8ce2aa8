"""Unsupported tensors and invalid arguments."""

import torch
from table import AGAIN, on_ranks

import horo
import horo.torch as hvd
from horo._specs import CustomOp

SECTION = "Tensors"


@on_ranks(SECTION, "A dtype that horo does not have", do="Convert it first; `torch.view_as_real` of complex numbers")
def unknown_dtype():
    hvd.allreduce(torch.zeros(2, dtype=torch.complex32), name="spectrum")


@on_ranks(SECTION, "The maximum of complex numbers", do="Reduce `tensor.abs()`, or sum")
def largest_of_complex_numbers():
    hvd.allreduce(torch.ones(2, dtype=torch.complex64), name="spectrum", op=hvd.Max)


@on_ranks(SECTION, "A tensor on an unsupported device", do="Move it to the CPU first")
def tensor_on_meta():
    hvd.allreduce(torch.ones(2, device="meta"), name="weights")


@on_ranks(SECTION, "A sparse tensor", do="`sparse_allreduce_async`, or `tensor.to_dense()`")
def sparse_tensor():
    hvd.allreduce(torch.eye(2).to_sparse(), name="embedding")


@on_ranks(
    SECTION, "An argument that is not a tensor", do="`torch.tensor(value)`, or `broadcast_object`, `allgather_object`"
)
def no_tensor():
    hvd.allreduce_async([1.0], name="loss")


@on_ranks(SECTION, "An average of bools", do="`op=horo.Max` is *or*, `op=horo.Min` is *and*")
def average_of_bools():
    hvd.allreduce(torch.ones(2, dtype=torch.bool), name="mask")


@on_ranks(SECTION, "A factor with a user's operation", do="Scale the tensor, or scale in the operation")
def scaled_operation():
    def keep(accumulator, value, dtype):
        """Keeps the lower rank's value."""

    hvd.allreduce(torch.ones(2), name="weights", op=horo.register_op("keep", keep), prescale_factor=0.5)


@on_ranks(
    SECTION,
    "A scalar in `allgather`",
    do="`tensor.reshape(1)`",
    changing=((r"rank \d tried", "rank <rank> tried"),),
)
def gathered_scalar():
    hvd.allgather(torch.tensor(1.0), name="loss")


@on_ranks(SECTION, "`splits` without one entry per member", do="Pass as many as the process set has ranks")
def too_few_splits():
    hvd.alltoall(torch.ones(2), splits=[2])


@on_ranks(SECTION, "`splits` with more rows than the tensor", do="Their sum is at most the first dimension")
def too_large_splits():
    hvd.alltoall(torch.ones(2), splits=[2, 2])


@on_ranks(SECTION, "`alltoall` of rows that cannot be dealt evenly", do="Pass `splits`")
def uneven_rows():
    hvd.alltoall(torch.ones(3))


@on_ranks(SECTION, "A codec in `reducescatter`", do="`Compression.fp16` and `bf16` convert the tensor instead")
def codec_in_reducescatter():
    hvd.reducescatter(torch.ones(2), compression=hvd.Compression.int8)


@on_ranks(
    SECTION, "A unit with a tensor that differs", do="Pass the same list on all ranks; none of its tensors was reduced"
)
def unit_that_differs():
    hvd.grouped_allreduce([torch.ones(2), torch.ones(2 + hvd.rank())], name="unit")


@on_ranks(SECTION, "A name that is already in flight", do="`synchronize` the first, or name them differently")
def name_in_flight():
    handle = hvd.allreduce_async(torch.ones(2), name="twice")
    try:
        hvd.allreduce_async(torch.ones(2), name="twice")
    finally:
        hvd.synchronize(handle)


@on_ranks(SECTION, "An operation that was not registered", do="`register_op` on all ranks, after each `init`")
def unknown_operation():
    hvd.allreduce(torch.ones(2), name="weights", op=CustomOp("largest"))


@on_ranks("init and shutdown", "A call before `init()`", do="Call `horo.init()` first", session=AGAIN)
def call_before_init():
    hvd.shutdown()
    hvd.allreduce(torch.ones(1))


@on_ranks(SECTION, "A priority that is not an integer of 32 bits", do="Pass an integer; greater values run first")
def priority_that_is_no_number():
    hvd.allreduce_async(torch.ones(2), name="urgent", priority=0.5)


@on_ranks(
    SECTION,
    "An `op` that is a number of another library, or true",
    do="`op=horo.Sum`, or `torch.distributed.ReduceOp.SUM`",
)
def op_that_is_true():
    hvd.allreduce(torch.ones(2), name="weights", op=True)


@on_ranks(SECTION, "An operation in the place of `average`", do="`op=horo.Sum`, by keyword")
def op_as_average():
    hvd.allreduce(torch.ones(2), hvd.Sum)


@on_ranks(SECTION, "A factor that is a tensor", do="`factor.item()`")
def factor_that_is_a_tensor():
    hvd.allreduce(torch.ones(2), name="weights", prescale_factor=torch.tensor(0.5))


@on_ranks(SECTION, "A name with a NUL", do="Another name")
def name_with_a_nul():
    hvd.allreduce(torch.ones(2), name="weights\0first")


@on_ranks(SECTION, "The derivative of an Adasum", do="`tensor.detach()`; or an operation that has a derivative")
def derivative_of_adasum():
    hvd.allreduce(torch.ones(2, requires_grad=True), name="weights", op=hvd.Adasum).sum().backward()


@on_ranks("Ranks that disagree", "Metrics with other keys", do="The same keys on all ranks, in any order")
def other_metrics():
    hvd.metric_average({"loss": 1.0, "accuracy": 0.5} if hvd.rank() else {"loss": 1.0})
