"""The layout of a gradient: dense, or sparse (COO) with a number of sparse dimensions.

Dense gradients are reduced by all_reduces, sparse ones by all_gathers of indices and values under other names. A rank
without a gradient does not know the layout of the other ranks' gradients. So the ranks of a process set agree on it,
once per parameter, in one all_reduce for all parameters whose layout is unknown. From then on every rank converts a
gradient of another layout to the agreed one; no rank waits for a collective that the others do not run.

A layout is the number of sparse dimensions, 0 for dense; None: not known.
"""

import hashlib
import time

import torch

from horo import _native
from horo._session_start import SLICE_MS
from horo._specs import Spec
from horo.errors import Mismatch

DENSE = 0
_MOST_DIMS = 62  # bits of an int64; a gradient with more sparse dimensions counts as dense


def layout_of(gradient):
    """The layout of a gradient; None without a gradient. The layout of other sparse tensors (CSR) is not defined."""
    if gradient is None:
        return None
    if gradient.layout is not torch.sparse_coo or gradient.sparse_dim() > _MOST_DIMS:
        return DENSE
    return gradient.sparse_dim()


def in_layout(gradient, layout):
    """The gradient in this layout: the gradient itself if it has it, else a new tensor with the same values. Zeros of a
    dense gradient are no entries of a sparse one."""
    if layout_of(gradient) == layout:
        return gradient
    with torch.no_grad():
        dense = gradient.to_dense() if gradient.layout is torch.sparse_coo else gradient
        return dense if layout == DENSE else dense.to_sparse(layout)


def without_entries(shape, dtype, layout, device="cpu"):
    """A sparse gradient of this layout without entries: all zeros."""
    return torch.sparse_coo_tensor(
        torch.empty((layout, 0), dtype=torch.int64, device="cpu"),
        torch.empty((0, *shape[layout:]), dtype=dtype, device="cpu"),
        shape,
        check_invariants=True,
        device="cpu",
    ).to(device)


class LayoutExchange:
    """The layouts of some parameters on all ranks of a process set. The constructor submits this rank's layouts.

    A collective call: every rank of the set makes it with the same name and the same parameters. An exchange of a name
    must have ended before the next one begins. A wait that was interrupted may be repeated."""

    def __init__(self, session, number, name, layouts):
        """number: of the process set; layouts: by the parameter's name, None for one without a gradient here."""
        self._session = session
        self._what = name
        self._names = sorted(layouts)  # ranks may have them in different orders
        digest = _digest(self._names)
        seen = [0 if layouts[one] is None else 1 << layouts[one] for one in self._names]
        self._seen = torch.tensor([*seen, digest, ~digest], dtype=torch.int64, device="cpu")
        shape = tuple(self._seen.shape)
        spec = Spec(name, _native.ALL_REDUCE, _native.BIT_OR, _native.INT64, shape, set=number)
        address = self._seen.data_ptr()
        self._work = session.submit(spec, address, address, self._seen)
        self.is_refuted = False  # a check has raised while it was in flight

    def _check(self, check):
        try:
            check()
        except Exception:
            self.is_refuted = True
            raise
        self.is_refuted = False

    def wait(self, check=lambda: None):
        """Blocks; calls check() every 100 ms, which may raise. By name, the layouts on which the ranks agree: the one
        with the fewest sparse dimensions that a rank has, so that dense wins; None for a parameter without a gradient
        on all ranks. Raises Mismatch on all ranks if they have different parameters."""
        if self._work is not None:
            try:
                while not self._session.wait_until([self._work], time.monotonic() + SLICE_MS / 1000):
                    self._check(check)
            except Exception:  # not for an interrupt
                if not self.is_refuted:
                    self._session.drop([self._work])
                    self._work = None
                raise
            self._session.release([self._work])
            self._work = None
        *seen, ones, zeros = self._seen.tolist()
        if ones != ~zeros:
            raise Mismatch(
                f"{self._what}: the ranks have different parameters whose gradients are to be reduced. Rank "
                f"{self._session.topology.rank} has {', '.join(self._names[:5])}{', ...' * (len(self._names) > 5)}; "
                "expected the same names on all ranks"
            )
        # The lowest bit that is set.
        return {one: (bits & -bits).bit_length() - 1 if bits else None for one, bits in zip(self._names, seen)}


def _digest(names):
    """62 bits of a hash of the names."""
    return int.from_bytes(hashlib.sha256("\0".join(names).encode()).digest()[:8], "little") >> 2


def agree_layouts(session, number, name, layouts):
    """The result of a LayoutExchange. Blocks."""
    return LayoutExchange(session, number, name, layouts).wait()
