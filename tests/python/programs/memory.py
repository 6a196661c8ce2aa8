"""Tensors whose memory is freed, replaced, resized, strided or read-only."""

import claims
import torch
from claims import raises

import horo.torch as hvd

MOVED = ("in flight", "resized or replaced")


def held_back(name, call):
    """Runs call() while the tensor is in flight: rank 1 submits it after rank 0 has run call()."""
    if hvd.rank() == 0:
        handle = hvd.allreduce_async_(tensor := torch.ones(1000), name=name, op=hvd.Sum)
        call(tensor)
    hvd.barrier()
    if hvd.rank() == 1:
        handle = hvd.allreduce_async_(torch.ones(1000), name=name, op=hvd.Sum)
    return handle


def synchronize(handle, *parts):
    """Synchronizes; rank 0, which made the mistake, expects an error whose text has these parts."""
    if hvd.rank() == 0:
        with raises(hvd.HoroError, "rank 0", *parts):
            hvd.synchronize(handle)
    else:
        assert (hvd.synchronize(handle) == hvd.size()).all()
    assert hvd.allreduce(torch.ones(1), name="after", op=hvd.Sum).item() == hvd.size()


def a_tensor_without_references_is_still_sent():
    handles = []
    for i in range(50):
        tensor = torch.full((1000,), float(i))
        handles.append(hvd.allreduce_async(tensor, name=f"freed {i}", op=hvd.Sum))
        handles.append(hvd.allreduce_async_(tensor, name=f"freed in place {i}", op=hvd.Sum))
        del tensor
        torch.full((1000,), -1.0)  # overwrites freed memory
    for i, handle in enumerate(handles[1::2]):
        assert (hvd.synchronize(handle) == i * hvd.size()).all()


def a_tensor_that_got_other_memory_is_named():
    synchronize(
        held_back("other storage", lambda t: t.set_(torch.zeros(1000))), "other storage", "address has changed", *MOVED
    )
    synchronize(held_back("other data", lambda t: setattr(t, "data", torch.zeros(7))), "other data", "28 bytes", *MOVED)


def a_tensor_that_was_resized_is_named():
    synchronize(held_back("resized", lambda t: t.resize_(10)), "resized", "4000 bytes", "40 bytes", *MOVED)


def a_gradient_that_got_other_memory_is_named():
    param = torch.nn.Parameter(torch.zeros(4))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([param], lr=1.0), [("weights", param)])
    hook = param.register_post_accumulate_grad_hook(lambda p: setattr(p.grad, "data", p.grad.data.clone()))
    with raises(hvd.HoroError, "gradient weights", *MOVED):
        param.sum().backward()
    hook.remove()
    param.grad = None
    param.sum().backward()
    optimizer.step()
    assert (param == -1).all()


def strided_tensors_are_reduced_in_place():
    tensor = torch.arange(12.0).reshape(3, 4).t()
    hvd.allreduce_(tensor, op=hvd.Sum)
    assert (tensor == torch.arange(12.0).reshape(3, 4).t() * hvd.size()).all()
    hvd.broadcast_(tensor[::2], 0)


def a_tensor_whose_elements_share_memory_is_refused_in_place():
    with raises(ValueError, "shared", "expand", "allreduce_async"):
        hvd.allreduce_(torch.ones(1).expand(4), name="shared")
    assert (hvd.allreduce(torch.ones(1).expand(4)) == 1).all()


def refused_meanwhile(tensor, one, other):
    """The tensor is in flight under the name `one`, and refused under the other."""
    if hvd.rank() == 0:
        handle = hvd.allreduce_async_(tensor, name=one, op=hvd.Sum)
        for view in (tensor, tensor[:2], tensor.view(2, 2)):
            with raises(ValueError, f"of {other or 'a tensor'}", f"of {one or 'a tensor'}", "on rank 0"):
                hvd.allreduce_async_(view, name=other, op=hvd.Sum)
        with raises(ValueError, "grouped_allreduce_async_", "of a unit", f"of {one or 'a tensor'}", "on rank 0"):
            hvd.grouped_allreduce_async_([torch.ones(3), tensor], name="a unit", op=hvd.Sum)
        apart = hvd.allreduce_async_(torch.ones(0), name="empty", op=hvd.Sum)
    hvd.barrier()
    if hvd.rank() == 1:
        handle = hvd.allreduce_async_(tensor, name=one, op=hvd.Sum)
        apart = hvd.allreduce_async_(torch.ones(0), name="empty", op=hvd.Sum)
    assert hvd.synchronize(handle) is tensor and hvd.synchronize(apart).numel() == 0


def a_tensor_is_reduced_in_place_under_one_name_at_a_time():
    """Also in the second step, and where a call has no name."""
    for one, other in (("in place", "again"), (None, "third"), ("fourth", None), (None, None)):
        tensor = torch.ones(4)
        for _ in range(2):
            refused_meanwhile(tensor, one, other)
        assert (hvd.allreduce_(tensor, name=other, op=hvd.Sum) == hvd.size() ** 3).all()


def leaves_and_inference_tensors_are_reduced_in_place():
    leaf = torch.nn.Parameter(torch.ones(2))
    hvd.allreduce_(leaf, op=hvd.Sum)
    assert (leaf == hvd.size()).all() and leaf.requires_grad
    with torch.inference_mode():
        tensor = torch.ones(2)
        assert (hvd.allreduce_(tensor, op=hvd.Sum) == hvd.size()).all()
        assert (hvd.allreduce(tensor) == hvd.size()).all()


def no_elements_and_no_dimensions_work():
    assert hvd.allreduce_(torch.ones(0, 3)).shape == (0, 3)
    assert hvd.allreduce_(torch.tensor(2.0), op=hvd.Sum).item() == 2.0 * hvd.size()
    assert hvd.allgather(torch.ones(0, 3)).shape == (0, 3)
    assert hvd.reducescatter(torch.ones(0, 3)).shape == (0, 3)
    assert hvd.broadcast_(torch.ones(0), 0).numel() == 0


claims.check(
    a_tensor_without_references_is_still_sent,
    a_tensor_that_got_other_memory_is_named,
    a_tensor_that_was_resized_is_named,
    a_gradient_that_got_other_memory_is_named,
    strided_tensors_are_reduced_in_place,
    a_tensor_whose_elements_share_memory_is_refused_in_place,
    a_tensor_is_reduced_in_place_under_one_name_at_a_time,
    leaves_and_inference_tensors_are_reduced_in_place,
    no_elements_and_no_dimensions_work,
)
