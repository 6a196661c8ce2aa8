"""The collectives on torch tensors that are not differentiable, and the asynchronous forms."""

import torch

from horo import _custom
from horo._collectives import Collectives
from horo._handles import Joint
from horo._sets import global_process_set, number_of
from horo._specs import Average, Sum, choose_op, is_no_name, op_name
from horo.errors import Mismatch
from horo.torch.arrays import DTYPES, TorchArrays

collectives = Collectives(TorchArrays())
allreduce_ = collectives.allreduce_
allreduce_async = collectives.allreduce_async
allreduce_async_ = collectives.allreduce_async_
grouped_allreduce_ = collectives.grouped_allreduce_
grouped_allreduce_async = collectives.grouped_allreduce_async
grouped_allreduce_async_ = collectives.grouped_allreduce_async_
allgather_async = collectives.allgather_async
grouped_allgather_async = collectives.grouped_allgather_async
broadcast_ = collectives.broadcast_
broadcast_async = collectives.broadcast_async
broadcast_async_ = collectives.broadcast_async_
alltoall_async = collectives.alltoall_async
reducescatter_async = collectives.reducescatter_async
grouped_reducescatter_async = collectives.grouped_reducescatter_async
reduce = collectives.reduce
reduce_async = collectives.reduce_async
gather = collectives.gather
gather_async = collectives.gather_async
scatter = collectives.scatter
scatter_async = collectives.scatter_async
send = collectives.send
send_async = collectives.send_async
recv = collectives.recv
recv_async = collectives.recv_async
barrier = collectives.barrier
barrier_async = collectives.barrier_async
join = collectives.join
join_async = collectives.join_async

_BY_NUMBER = {number: dtype for dtype, number in DTYPES.items()}


def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
    """Starts the sum or average of sparse COO tensors of one shape: two allgathers, of the indices and the values.

    Returns a handle; a call of the handle waits, too. The result is a coalesced sparse tensor. If an elastic job loses
    a rank between the two, all ranks that are left repeat both.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        found = getattr(tensor, "layout", type(tensor).__name__)
        raise TypeError(f"horo.sparse_allreduce_async: expected a torch.sparse_coo tensor, not {found}")
    op = choose_op(op)
    if op not in (Average, Sum):
        raise ValueError(f"horo.sparse_allreduce_async: op={op_name(op)}; expected Average or Sum")
    if op == Average and tensor.dtype is torch.bool:
        raise ValueError("horo.sparse_allreduce_async: average is not defined for bool")
    number_of(process_set)
    place = tensor.device
    with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
        tensor = tensor.detach().cpu().coalesce()
        sizes = torch.tensor([tensor.shape[: tensor.sparse_dim()]], device="cpu")  # the first row; then one per value
        parts = [torch.cat([sizes, tensor.indices().t()]), tensor.values()]
    names = [None, None] if is_no_name(name) else [f"{name}.indices", f"{name}.values"]
    gathers = [allgather_async(part, name, process_set, with_rows=True) for part, name in zip(parts, names)]

    def finish(gathered):
        (indices, members), (values, members_of_values) = gathered
        if len(members) != len(members_of_values):
            return sparse_allreduce_async(tensor, name, op, process_set)().to(place)
        rows = indices.split(list(members))
        if any(not torch.equal(part[0], rows[0][0]) for part in rows):
            shapes = ", ".join(str([*part[0].tolist(), *tensor.shape[tensor.sparse_dim() :]]) for part in rows)
            raise Mismatch(f"sparse_allreduce_async of {name or 'a tensor'}: the ranks have the shapes {shapes}")
        indices = torch.cat([part[1:] for part in rows]).t()
        if op == Average and not (tensor.is_floating_point() or tensor.is_complex()):
            return _mean_of_integers(indices, values, tensor, len(members)).to(place)
        total = _summed(indices, values, tensor.shape)
        return (total / len(members) if op == Average else total).to(place)

    return Joint(gathers, finish)


def _summed(indices, values, shape):
    return torch.sparse_coo_tensor(indices, values, shape, check_invariants=True, device="cpu").coalesce()


def _mean_of_integers(indices, values, like, count):
    """sum / count, truncated toward zero. The sum itself need not fit: quotients and remainders are summed apart."""
    quotients = torch.div(values.long(), count, rounding_mode="floor")
    parts = torch.stack([quotients, values.long() - quotients * count], -1)
    total = _summed(indices, parts, (*like.shape, 2))
    quotients, rests = total.values().unbind(-1)
    means = quotients + rests // count
    means += (means < 0) & (rests % count > 0)
    return _summed(total.indices(), means.to(like.dtype), like.shape)


def register_op(name, combine, *, whole=False):
    """horo.register_op with tensors: combine(accumulator, value) writes its result into accumulator."""

    def on_tensors(accumulator, value, dtype):
        with torch.no_grad():
            combine(*(torch.frombuffer(memory, dtype=_BY_NUMBER[dtype]) for memory in (accumulator, value)))

    return _custom.register_op(name, on_tensors, whole=whole)
