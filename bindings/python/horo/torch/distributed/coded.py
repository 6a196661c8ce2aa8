"""Collectives of a process group whose values travel encoded."""

import torch

from horo import _native
from horo.torch import devices
from horo.torch.distributed.messages import Messages
from horo.torch.distributed.tensors import dtype_of, put, readable
from horo.torch.distributed.words import DTYPE_NAMES


def tree_sum(parts):
    """The sum in horo's canonical order (docs/canonical_order.md): a binary trie over the ranks."""
    if len(parts) == 1:
        return parts[0]
    middle = 1 << (len(parts) - 1).bit_length() - 1
    return tree_sum(parts[:middle]) + tree_sum(parts[middle:])


class Coded(Messages):
    """See ProcessGroup."""

    def all_gather_coded(self, output, gathered, encoded):
        """An all_gather of the encoded values into `gathered`, which is decoded into the output."""
        flight, _ = self._gather_single("all_gather", gathered, encoded)
        return self._work("all_gather", [flight], ([output], lambda: put(output.detach(), gathered)))

    def reduce_scatter_coded(self, output, encoded, divisor):
        """The output becomes the sum of the members' parts for this rank, divided."""
        if encoded.numel() != output.numel() * self.size():
            raise ValueError(
                f"reduce_scatter: the input has {encoded.numel()} elements, and the output {output.numel()}; expected "
                f"{self.size()} times as many in the input, one part for each rank"
            )
        received = torch.empty(encoded.numel(), dtype=encoded.dtype, device=encoded.device)
        dtype = torch.promote_types(output.dtype, torch.float32)

        def finish():
            parts = [part.to(dtype) for part in received.view(self.size(), -1)]
            put(output.detach(), tree_sum(parts) / divisor)
            devices.hold(received)

        number, count = dtype_of(encoded)
        fields = {"kind": _native.ALL_TO_ALL, "dtype": number, "shape": (count,), "counts_known": 1}
        words = ("reduce_scatter", f"{count} {DTYPE_NAMES[number]}", "encoded")
        flight = self._start(words, fields, (readable(encoded), received))
        return self._work("reduce_scatter", [flight], ([output], finish))
