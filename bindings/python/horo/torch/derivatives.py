"""The derivative of an all_reduce, by operation, for the sum of the losses of all ranks.

The derivative with respect to a rank's tensor is of the sum of all ranks' losses, as each of them depends on it:

    Sum, Average   the same all_reduce of the gradients
    Max, Min       the sum of the gradients, at the ranks whose value is the extreme; shared evenly among equal values
    Product        the sum of the gradients, times the product of the other ranks' values
"""

import torch

from horo._handles import synchronize
from horo._specs import Average, Max, Min, Product, Sum, op_name
from horo.torch import ops


def is_linear(op):
    return op in (Average, Sum)


def needs_values(op):
    """Whether the derivative depends on the values of the tensors."""
    return op in (Max, Min, Product)


def check(op):
    """Raises NotImplementedError if the operation has no derivative."""
    if is_linear(op) or needs_values(op):
        return
    raise NotImplementedError(
        f"the derivative of an allreduce with op={op_name(op)} is not defined: detach() the tensor, or use Average, "
        "Sum, Max, Min or Product"
    )


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, what, count, *tensors):
        ctx.what = what
        return tuple(tensor.clone() for tensor in tensors[:count])

    @staticmethod
    def backward(ctx, *_):
        raise NotImplementedError(f"the second derivative of {ctx.what} is not defined: expected a graph without it")


def once(what, derivatives, sources):
    """The derivatives; with create_graph=True they depend on the sources, and a derivative of them is refused by name.
    Without it, it would be zero in silence."""
    if not torch.is_grad_enabled():
        return derivatives
    return _Once.apply(what, len(derivatives), *derivatives, *sources)


def _sums(tensors, name, process_set):
    return synchronize(ops.grouped_allreduce_async(tensors, None, name, Sum, process_set=process_set))


def of_values(call, tensors, results, gradients):
    """The derivatives of needs_values() operations. call: (op, prescale, postscale, process_set, name of the backward).
    tensors, results, gradients: those of this rank."""
    op = call[0]
    return _of_product(call, tensors, gradients) if op == Product else _of_extreme(call, tensors, results, gradients)


def _of_extreme(call, tensors, results, gradients):
    op, prescale, postscale, process_set, name = call
    if prescale != 1.0 or postscale != 1.0:  # the extreme of prescale * x is that of x, or with another sign the other
        op = op if prescale >= 0 else Min + Max - op
        extremes = ops.grouped_allreduce_async(tensors, None, _part(name, "extreme"), op, process_set=process_set)
        results = synchronize(extremes)
    holds = [(x == y) | (x.isnan() & y.isnan()) for x, y in zip(tensors, results)]
    count = len(tensors)
    counts = [held.to(torch.float32) for held in holds]  # exact up to 2^24 ranks
    sums = _sums([*gradients, *counts], name, process_set)
    scale = prescale * postscale
    return [
        torch.where(held, total * scale / equal.to(total.dtype), torch.zeros_like(total))
        for held, total, equal in zip(holds, sums[:count], sums[count:])
    ]


def _of_product(call, tensors, gradients):
    """The product of the others is the product without zeros, divided by this rank's value, unless zeros remain."""
    _, prescale, postscale, process_set, name = call
    wide = [torch.complex128 if x.is_complex() else torch.float64 for x in tensors]
    scaled = [x.to(kind) * prescale for x, kind in zip(tensors, wide)]
    zeros = [x == 0 for x in scaled]
    factors = [torch.where(zero, torch.ones_like(x), x) for zero, x in zip(zeros, scaled)]
    started = ops.grouped_allreduce_async(factors, None, _part(name, "product"), Product, process_set=process_set)
    count = len(tensors)
    sums = _sums([*gradients, *(zero.to(torch.float32) for zero in zeros)], name, process_set)
    products = synchronize(started)
    derivatives = []
    for i, (zero, mine, product) in enumerate(zip(zeros, factors, products)):
        others_are_zero = sums[count + i] - zero.to(torch.float32) > 0
        others = torch.where(others_are_zero, torch.zeros_like(product), product / mine)
        others = (others * (prescale * postscale)).conj()
        derivatives.append((sums[i].to(wide[i]) * others).to(gradients[i].dtype))
    return derivatives


def _part(name, part):
    return None if name is None else f"{name}.{part}"
