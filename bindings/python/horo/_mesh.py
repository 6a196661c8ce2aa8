"""Meshes: the ranks in a grid of named axes. Ranks that differ in one number alone are a process set of that axis."""

import collections
import ctypes
import itertools
import math
import weakref

from horo import _default, _native
from horo._arguments import whole
from horo._sets import add_process_set, global_process_set
from horo._specs import Spec
from horo.errors import Mismatch

_made = weakref.WeakKeyDictionary()  # Session: how many meshes it has got
_SIZE = "a size of at least 1, or -1 for the ranks that the other axes leave"


class Mesh:
    """The result of mesh(). mesh["dp"]: the ProcessSet of this rank along the axis, in the order of the axis."""

    def __init__(self, shape, sets):
        self.shape = dict(shape)  # axis: size, the slowest first
        self._sets = sets

    def __getitem__(self, axis):
        if axis not in self._sets:
            raise KeyError(f"{axis!r} is no axis of {self!r}")
        return self._sets[axis]

    def rank(self, axis):
        """This rank's number along the axis."""
        return self[axis].rank()

    def size(self, axis):
        """The number of ranks along the axis."""
        return self[axis].size()

    def __repr__(self):
        return f"mesh({', '.join(f'{axis}={size}' for axis, size in self.shape.items())})"


def mesh(**axes):
    """Arranges the ranks in a grid: mesh(dp=-1, tp=2) has pairs of neighbours along tp, and along dp every second rank.

    The last axis is the fastest, so its neighbours share a host if its size divides the ranks of each host. -1, once:
    the ranks that the other axes leave. All ranks make the same call. Blocks until all of them have made it. Raises
    Mismatch on all ranks if they differ."""
    session = _default.session()
    size, me = _default.size(), _default.rank()
    _compare(session, f"mesh({_text(axes)})")  # before a rank refuses anything: else the others would wait for it
    shape = _shape_of(axes, size)
    number = _made[session] = _made.get(session, 0) + 1
    if len(shape) > 1 and session.is_elastic:
        raise ValueError(
            f"mesh({_text(shape)}) in an elastic job, in which the ranks may change: expected one axis, or a job "
            "without --min-np"
        )
    sets, step = {}, size
    for axis, count in shape.items():
        step //= count
        first = me - me // step % count * step
        ranks = range(first, first + count * step, step)
        name = f"mesh {number}, axis {axis}, of rank {first}"
        sets[axis] = global_process_set if count == size else add_process_set(ranks, name=name)
    return Mesh(shape, sets)


def _text(shape):
    return ", ".join(
        f"{axis}={count!r}" if isinstance(count, str) else f"{axis}={count}" for axis, count in shape.items()
    )


def _shape_of(axes, size):
    """The sizes by axis, without -1."""
    if not axes:
        raise ValueError("mesh(): expected at least one axis with its size, such as mesh(dp=-1)")
    shape = {axis: whole(count, f"mesh: {axis}", _SIZE, -1) for axis, count in axes.items()}
    open_axes = [axis for axis, count in shape.items() if count == -1]
    if 0 in shape.values() or len(open_axes) > 1:
        raise ValueError(f"mesh({_text(shape)}); expected {_SIZE}, once")
    others = math.prod(count for count in shape.values() if count != -1)
    if open_axes and size % others == 0:
        shape[open_axes[0]] = size // others
    if math.prod(shape.values()) != size:
        raise ValueError(f"mesh({_text(shape)}) of {size} ranks; expected sizes whose product is {size}")
    return shape


def _compare(session, text):
    """Raises Mismatch on all ranks if their texts differ."""
    data = text.encode()
    memory = ctypes.create_string_buffer(data, len(data))
    spec = Spec("horo.mesh", _native.ALL_GATHER, dtype=_native.UINT8, shape=(len(data),))
    work = session.submit(spec, ctypes.addressof(memory), None, memory)
    try:
        session.wait([work])
        result = session.result(work)
        rows = result.counts[: result.count_count]
        found = ctypes.string_at(result.data, result.bytes)
    finally:
        session.drop([work])
    ends = list(itertools.accumulate(rows))
    texts = [found[end - count : end].decode() for end, count in zip(ends, rows)]
    ranks = collections.defaultdict(list)
    for rank, one in enumerate(texts):
        ranks[one].append(str(rank))
    if len(ranks) > 1:
        told = "; ".join(f"{one} on ranks {', '.join(who)}" for one, who in ranks.items())
        raise Mismatch(f"horo.mesh: ranks disagree: {told}. Expected the same call on all ranks")
