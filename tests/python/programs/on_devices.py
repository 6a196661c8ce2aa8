"""Tensors of devices beside those of the CPU: equal bits, and what is refused."""

import os

import claims
import torch
from fake_devices import on_host

import horo.torch as hvd
from horo.torch import devices

FAKE = devices.places


def trained():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(30, 300), torch.nn.ReLU(), torch.nn.Linear(300, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), 0)
    torch.manual_seed(1 + hvd.rank())
    for _ in range(8):
        optimizer.zero_grad()
        model(torch.randn(8, 30)).square().mean().backward()
        optimizer.step()
    return torch.cat([param.detach().reshape(-1) for param in model.parameters()])


def a_trained_model_has_the_bits_of_the_cpu():
    asked = []
    stream_of = FAKE.stream_of
    FAKE.stream_of = lambda number: asked.append(number) or stream_of(number)
    on_device = trained()
    del FAKE.stream_of
    assert asked, "no gradient has taken the device path"
    assert torch.equal(on_device, on_host(trained))


def one_rank_on_the_cpu_is_a_mismatch_by_name():
    call = lambda: hvd.allreduce(torch.ones(3), name="weights")  # noqa: E731
    with claims.raises(hvd.Mismatch, "'weights'", "device cpu on rank 0", "device cuda on rank 1"):
        call() if hvd.rank() == 1 else on_host(call)


def results_of_unknown_sizes_arrive():
    rows = hvd.allgather(torch.full((hvd.rank() + 1, 2), float(hvd.rank())))
    assert rows.tolist() == [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]], rows
    received, splits = hvd.alltoall(torch.arange(4.0), splits=torch.tensor([1, 3]))
    assert splits.tolist() == ([1, 1] if hvd.rank() == 0 else [3, 3]), splits
    assert received.tolist() == ([0.0, 0.0] if hvd.rank() == 0 else [1.0, 2.0, 3.0] * 2), received


def a_sparse_sum_comes_back():
    mine = torch.sparse_coo_tensor([[hvd.rank()]], [2.0], (3,))
    total = hvd.synchronize(hvd.sparse_allreduce_async(mine, "sparse", hvd.Sum))
    assert total.to_dense().tolist() == [2.0, 2.0, 0.0]


def the_memory_of_a_result_that_is_copied_back_is_held():
    """The copy may be late on another stream than that of the memory."""
    held, tensor = [], torch.arange(6.0).view(2, 3).T
    FAKE.hold = lambda each: held.append(each.data_ptr())
    hvd.allreduce_(tensor, op=hvd.Sum)
    del FAKE.hold
    assert torch.equal(tensor, hvd.size() * torch.arange(6.0).view(2, 3).T)
    assert tensor.data_ptr() in held and len(set(held)) == 2, held


def a_missing_plug_in_is_told_with_its_setting():
    assert os.environ["HORO_CUDA_LIBRARY"]
    hvd.shutdown()
    hvd.init(settings={"HORO_CUDA_LIBRARY": "/nowhere/libhoro_cuda.so"})
    with claims.raises(ValueError, "there is no /nowhere/libhoro_cuda.so", "HORO_CUDA_LIBRARY"):
        hvd.allreduce(torch.ones(3), name="weights")


claims.check(
    a_trained_model_has_the_bits_of_the_cpu,
    one_rank_on_the_cpu_is_a_mismatch_by_name,
    results_of_unknown_sizes_arrive,
    a_sparse_sum_comes_back,
    the_memory_of_a_result_that_is_copied_back_is_held,
    a_missing_plug_in_is_told_with_its_setting,
)
