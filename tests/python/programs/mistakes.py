"""A wrong call raises an error that names the ranks and their values, on the ranks that it affects."""

import claims
import torch
from claims import raises

import horo.torch as hvd


def everything_still_works():
    assert hvd.allreduce(torch.tensor([2.0]), name="after", op=hvd.Sum).item() == 2.0 * hvd.size()


def a_call_before_init_is_refused():
    with raises(ValueError, "has not been initialized", "horo.init()"):
        hvd.rank()
    assert not hvd.mpi_built() and not hvd.nccl_built()
    train = hvd.elastic.run(lambda state: None)
    for call in (
        *(hvd.is_homogeneous, hvd.mpi_threads_supported),
        lambda: train(hvd.elastic.TorchState(epoch=0)),
        lambda: hvd.elastic.ElasticSampler([1]),
    ):
        with raises(ValueError, "has not been initialized"):
            call()
    with raises(ValueError, "has not been initialized"):
        hvd.allreduce(torch.ones(1))
    assert not hvd.is_initialized()
    hvd.init()


def a_different_shape_fails_on_every_rank():
    with raises(hvd.Mismatch, "weights", "shape", "rank 0", "rank 1"):
        hvd.allreduce(torch.ones(2 + hvd.rank()), name="weights")
    everything_still_works()


def a_different_dtype_fails_on_every_rank():
    dtype = torch.float32 if hvd.rank() else torch.int32
    with raises(hvd.Mismatch, "bias", "int32", "float32"):
        hvd.allreduce(torch.ones(2, dtype=dtype), name="bias")
    everything_still_works()


def a_different_op_fails_on_every_rank():
    with raises(hvd.Mismatch, "scale", "max", "sum"):
        hvd.allreduce(torch.ones(2), name="scale", op=hvd.Max if hvd.rank() else hvd.Sum)
    everything_still_works()


def a_different_kind_fails_on_every_rank():
    with raises(hvd.Mismatch, "kind", "all_reduce", "broadcast"):
        hvd.allreduce(torch.ones(2), name="kind") if hvd.rank() else hvd.broadcast(torch.ones(2), 0, name="kind")
    everything_still_works()


def a_different_root_fails_on_every_rank():
    with raises(hvd.Mismatch, "rooted", "root"):
        hvd.broadcast(torch.ones(2), hvd.rank() % 2, name="rooted")
    everything_still_works()


def a_mismatch_leaves_the_tensor_untouched():
    tensor = torch.full((2 + hvd.rank(),), 5.0)
    with raises(hvd.Mismatch):
        hvd.allreduce_(tensor, name="untouched")
    assert (tensor == 5.0).all()


def rows_that_differ_beyond_the_first_dimension_fail():
    with raises(hvd.Mismatch, "rows"):
        hvd.allgather(torch.ones(2, 2 + hvd.rank()), name="rows")
    everything_still_works()


def a_name_in_flight_is_refused():
    handle = hvd.allreduce_async(torch.ones(2), name="twice") if hvd.rank() == 0 else None
    if hvd.rank() == 0:
        with raises(ValueError, "twice"):
            hvd.allreduce_async(torch.ones(2), name="twice")
    hvd.barrier()
    hvd.synchronize(handle) if handle else hvd.allreduce(torch.ones(2), name="twice")
    everything_still_works()


def unsupported_tensors_are_refused():
    with raises(ValueError, "complex32", "float32", "bfloat16", "complex64"):
        hvd.allreduce(torch.zeros(2, dtype=torch.complex32))
    with raises(ValueError, "complex64", "max"):
        hvd.allreduce(torch.ones(2, dtype=torch.complex64), op=hvd.Max)
    with raises(TypeError, "torch.Tensor", "list"):
        hvd.allreduce_async([1.0])
    with raises(NotImplementedError, "not yet", "meta"):
        hvd.allreduce(torch.ones(2, device="meta"))
    with raises(NotImplementedError, "not yet", "sparse", "sparse_allreduce_async"):
        hvd.allreduce(torch.eye(2).to_sparse())
    with raises(RuntimeError, "rank-zero"):
        hvd.allgather(torch.tensor(1.0))
    for call in (hvd.reducescatter, hvd.alltoall, lambda tensor: hvd.gather(tensor, 0)):
        with raises(RuntimeError, "rank-zero"):
            call(torch.tensor(1.0))
    with raises(ValueError, "average", "bool"):
        hvd.allreduce(torch.ones(2, dtype=torch.bool))


def wrong_arguments_are_refused():
    with raises(ValueError, "supersedes average"):
        hvd.allreduce(torch.ones(2), average=True, op=hvd.Sum)
    with raises(ValueError, "op=17"):
        hvd.allreduce(torch.ones(2), op=17)
    with raises(ValueError, "Average or Sum"):
        hvd.reducescatter(torch.ones(2), op=hvd.Max)
    with raises(ValueError, "order='slow'"):
        hvd.allreduce(torch.ones(2), order="slow")
    with raises(ValueError, "root"):
        hvd.broadcast(torch.ones(2), root_rank=hvd.size())
    with raises(ValueError, "invalid params"):
        hvd.broadcast_parameters(3, 0)
    with raises(ValueError, "epoch", "int"):
        hvd.broadcast_parameters({"epoch": 3}, 0)
    with raises(ValueError, "LBFGS"):
        hvd.broadcast_optimizer_state(torch.optim.LBFGS([torch.ones(1)]), 0)
    with raises(ValueError, "not created"):
        hvd.poll(123456789)


def features_of_horovods_build_are_absent():
    absent = "mpi_enabled mpi_built gloo_enabled gloo_built ddl_built ccl_built rocm_built".split()
    assert all(getattr(hvd, name)() is False for name in [*absent, "mpi_threads_supported"])
    assert hvd.is_homogeneous() is True


def features_of_later_versions_raise_not_implemented():
    later = [
        lambda: hvd.ProcessSet(object()),
        lambda: hvd.init(comm=[0]),
    ]
    for call in later:
        with raises(NotImplementedError, "not yet"):
            call()
    everything_still_works()


claims.check(
    a_call_before_init_is_refused,
    a_different_shape_fails_on_every_rank,
    a_different_dtype_fails_on_every_rank,
    a_different_op_fails_on_every_rank,
    a_different_kind_fails_on_every_rank,
    a_different_root_fails_on_every_rank,
    a_mismatch_leaves_the_tensor_untouched,
    rows_that_differ_beyond_the_first_dimension_fail,
    a_name_in_flight_is_refused,
    unsupported_tensors_are_refused,
    wrong_arguments_are_refused,
    features_of_horovods_build_are_absent,
    features_of_later_versions_raise_not_implemented,
    init=False,
)
