"""The gather of the parameters that each member has updated, in chunks, so that it takes the memory of two chunks."""

import collections
import itertools

import torch

import horo.torch as hvd
from horo.zero.layout import Extent
from horo.zero.pieces import flat

CHUNK_BYTES = 16 << 20


def pack(params, parts, out=None, like=None):
    """The values of these parts, one after the other, in `out` or in a new tensor of the dtype of `like`."""
    values = [flat(params[part.number])[part.begin : part.end] for part in parts]
    if out is not None and len(values) == 1:
        return out.copy_(values[0])
    return torch.cat(values, out=out) if values else out if like is None else like.detach().new_empty(0)


def unpack(params, parts, values):
    """Writes values into these parts."""
    at = 0
    for number, begin, end in parts:
        flat(params[number])[begin:end].copy_(values[at : at + end - begin])
        at += end - begin


def cut(parts, first, last):
    """The elements first to last of a run of parts."""
    found, at = [], 0
    for number, begin, end in parts:
        low, high = max(first - at, 0), min(last - at, end - begin)
        if low < high:
            found.append(Extent(number, begin + low, begin + high))
        at += end - begin
    return found


class Chunks:
    """The gathers of one kind of parameters. Of each chunk a member sends its share of its own parts."""

    def __init__(self, layout, kind, like, process_set):
        """like: a parameter of this kind."""
        parts = [layout.parts(place, kind) for place in range(len(layout.members))]
        sizes = [sum(end - begin for _, begin, end in of_member) for of_member in parts]
        count = max(1, -(-sum(sizes) * like.element_size() // CHUNK_BYTES))
        self._chunks = []  # for each one the parts by member
        for chunk in range(count):
            ends = [(size * chunk // count, size * (chunk + 1) // count) for size in sizes]
            self._chunks.append([cut(of_member, *both) for of_member, both in zip(parts, ends)])
        self._rows = [[sum(end - begin for _, begin, end in of_one) for of_one in chunk] for chunk in self._chunks]
        room = max(sum(rows) for rows in self._rows)
        is_host = like.device.type == "cpu"
        make = (
            (lambda: hvd.empty(room, dtype=like.dtype, process_set=process_set))
            if is_host
            else (lambda: torch.empty(room, dtype=like.dtype, device=like.device))
        )
        self._buffers = [make() for _ in range(min(2, count))]
        self._process_set = process_set

    def run(self, params, name):
        """Gathers all chunks into the parameters. Blocks."""
        mine, flying = self._process_set.rank(), collections.deque()
        for number, (chunk, rows) in enumerate(zip(self._chunks, self._rows)):
            if len(flying) == 2:
                self._finish(params, *flying.popleft())
            buffer = self._buffers[number % 2][: sum(rows)]
            first = sum(rows[:mine])
            own = buffer[first : first + rows[mine]]
            if rows[mine]:
                pack(params, chunk[mine], own)
            handle = hvd.allgather_async(
                own, f"{name}/{number}", self._process_set, rows=rows, out=buffer, priority=-number
            )
            flying.append((chunk, rows, handle))
        while flying:
            self._finish(params, *flying.popleft())

    def _finish(self, params, chunk, rows, handle):
        whole, mine = hvd.synchronize(handle), self._process_set.rank()
        for place, (end, parts) in enumerate(zip(itertools.accumulate(rows), chunk)):
            if place != mine:
                unpack(params, parts, whole[end - rows[place] : end])
