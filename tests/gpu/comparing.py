"""Calls with tensors on the device, compared with the same calls with tensors of the CPU."""

import collections

import torch
from place import DEVICE, bytes_of, on_host

import horo.torch as hvd


class Comparisons:
    """What one rank has compared."""

    def __init__(self):
        self.counts = collections.Counter()  # by kind
        self.wrong = []

    def compare(self, kind, what, call, *tensors):
        """call(tensors on the device) has the bytes of call(tensors of the CPU), or None if that is None. kind: that
        under which it is counted. Neither may raise."""
        self.counts[kind] += 1
        try:
            expected = on_host(lambda: call(*[each.clone() for each in tensors]))
            found = call(*[each.to(DEVICE, copy=True) for each in tensors])
        except (ValueError, NotImplementedError, hvd.Mismatch) as error:
            self.wrong.append(f"{what}: {type(error).__name__}: {str(error)[:200]}")
            return
        if not _are_equal(found, expected):
            self.wrong.append(what)

    def check(self, kind, what, is_right):
        """Another comparison."""
        self.counts[kind] += 1
        if not is_right:
            self.wrong.append(what)

    def of_all_ranks(self):
        """(counts, wrong). The counts are those that all ranks have, else there is no number."""
        rows = hvd.allgather_object((dict(self.counts), self.wrong))
        counts = {kind: count for kind, count in rows[0][0].items() if all(of.get(kind) == count for of, _ in rows)}
        return counts, [f"rank {rank}: {what}" for rank, (_, wrong) in enumerate(rows) for what in wrong]


def _are_equal(found, expected):
    if found is None or expected is None:
        return found is expected
    is_alike = found.shape == expected.shape and found.dtype == expected.dtype and found.device.type == DEVICE.type
    return is_alike and bytes_of(found) == bytes_of(expected)


def fast_sum_is_near(tensor):
    """Whether the sum of the ranks' tensors of floats with order="fast" has the same bits on all ranks, and differs
    from the exact one by what roundings in any order allow."""
    parts = on_host(lambda: hvd.allgather(tensor.view(1, -1))).double()
    found = hvd.allreduce(tensor.to(DEVICE, copy=True), op=hvd.Sum, order="fast")
    most = hvd.size() * torch.finfo(tensor.dtype).eps * parts.abs().sum(0)
    is_near = bool(((found.cpu().double().view(-1) - parts.sum(0)).abs() <= most).all())
    return is_near and found.device.type == DEVICE.type and len(set(hvd.allgather_object(bytes_of(found)))) == 1
