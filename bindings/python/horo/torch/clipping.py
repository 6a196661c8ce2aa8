"""clip_grad_norm_ with one value for any division of the gradients among ranks.

A sum of floats depends on its order, and so on where tensors are cut. Here the squares are summed as integers: relative
to the greatest exponent of all gradients each square has 62 binary places, in two words of 64 bits. A rank carries from
the second word to the first one before the ranks add theirs, so the second one holds those of 2^31 ranks.

The host reads a GPU twice for each group of gradients: the greatest values together, and the sums of all chunks.
"""

import math

import torch

HIGH, LOW = 30, 32  # binary places of the words: the first holds 2^33 squares
CHUNK = 1 << 20  # elements that are converted at a time


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scales the gradients so that their norm is at most max_norm, and returns the norm before, a tensor of the host.
    As torch.nn.utils.clip_grad_norm_ for the norm of 2, but the bits do not depend on the number of ranks, or on
    whether parameters are whole or DTensors with one shard of a mesh of one dimension. foreach has no effect. Blocks
    where there are DTensors. Raises ValueError for another norm_type or another placement."""
    if float(norm_type) != 2.0:
        raise ValueError(
            f"horo.clip_grad_norm_: norm_type={norm_type!r}; expected 2.0; torch.nn.utils.clip_grad_norm_ has others"
        )
    params = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    gradients = [param.grad for param in params if param.grad is not None]
    whole = [one for one in gradients if not hasattr(one, "to_local")]
    groups = {}
    for one in gradients:
        if hasattr(one, "to_local"):
            groups.setdefault(_group_of(one), []).append(one.to_local())
    norm = _norm(whole, groups)
    if error_if_nonfinite and not math.isfinite(norm):
        raise RuntimeError(f"horo.clip_grad_norm_: the norm of the gradients is {norm}, so they cannot be clipped")
    factor = min(1.0, float(max_norm) / (norm + 1e-6)) if not math.isnan(norm) else norm
    for one in (*whole, *(part for parts in groups.values() for part in parts)):
        one.detach().mul_(factor)
    is_double = any(one.dtype in (torch.float64, torch.complex128) for one in gradients)
    return torch.tensor(norm, dtype=torch.float64 if is_double else torch.float32, device="cpu")


def _group_of(gradient):
    """The process group among whose members a DTensor is divided."""
    placements = gradient.placements
    if len(placements) != 1 or not placements[0].is_shard():
        raise ValueError(
            f"horo.clip_grad_norm_: a gradient of shape {list(gradient.shape)} has the placements {list(placements)}; "
            "expected one shard, as of fully_shard()"
        )
    return gradient.device_mesh.get_group()


def _norm(whole, groups):
    """whole: gradients that all ranks have alike. groups: {process group: this rank's parts of gradients}."""
    most = _greatest(whole)
    for group, parts in groups.items():
        most = _agreed(_greatest(parts), group, most)
    if most == 0 or not math.isfinite(most):
        return most
    exponent = max(math.frexp(most)[1], -1000)
    total = _squares(whole, exponent)
    for group, parts in groups.items():
        words = torch.tensor(_squares(parts, exponent), dtype=torch.int64, device="cpu")
        torch.distributed.all_reduce(words, group=group)
        total = [one + other for one, other in zip(total, words.tolist())]
    return math.ldexp(math.sqrt(((total[0] << LOW) + total[1]) / (1 << (HIGH + LOW))), exponent)


def _greatest(tensors):
    """The greatest absolute value; nan if there is one."""
    # That of complex ones is above both parts.
    of_each = [one.detach().abs().max().to(torch.float64) for one in tensors if one.numel()]
    found = [value for (value,) in _read([(one,) for one in of_each])]
    return math.nan if any(map(math.isnan, found)) else max(found, default=0.0)


def _agreed(value, group, most):
    """The greatest value of the members and `most`; nan if there is one."""
    is_nan = math.isnan(value) or math.isnan(most)
    both = torch.tensor([0.0 if is_nan else max(value, most), is_nan], dtype=torch.float64, device="cpu")
    torch.distributed.all_reduce(both, torch.distributed.ReduceOp.MAX, group=group)
    found, is_nan = both.tolist()
    return math.nan if is_nan else found


def _squares(tensors, exponent):
    """[the sum of the first words, that of the second] of the squares, divided by 4 ** exponent."""
    sums = []
    for tensor in tensors:
        for part in tensor.detach().reshape(-1).split(CHUNK):
            part = torch.view_as_real(part) if part.is_complex() else part
            squares = (part.to(torch.float64) * 2.0**-exponent).square() * (1 << HIGH)
            first = squares.floor()
            second = (squares - first) * (1 << LOW)
            sums.append((first.to(torch.int64).sum(), second.to(torch.int64).sum()))
    high, low = map(sum, zip((0, 0), *_read(sums)))
    return [high + (low >> LOW), low & ((1 << LOW) - 1)]


def _read(rows):
    """The values of rows, of scalars of one dtype and one device each: the host reads each device once."""
    by_device = {}
    for row in rows:
        by_device.setdefault(row[0].device, []).append(row)
    found = []
    for of_one in by_device.values():
        flat = torch.stack([scalar for row in of_one for scalar in row])
        found += flat.view(len(of_one), -1).tolist()
    return found
