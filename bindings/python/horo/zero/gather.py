"""The gather of the parameters that each member has updated, in chunks, so that it takes the memory of two chunks."""

import collections
import itertools

import torch

import horo.torch as hvd
from horo.zero.exchange import my_id
from horo.zero.layout import Extent
from horo.zero.pieces import flat

CHUNK_BYTES = 16 << 20


def pack(params, parts, out=None, kind=None):
    """The values of these parts, one after the other, in `out` or in a new tensor of this kind."""
    values = [flat(params[part.number])[part.begin : part.end] for part in parts]
    if out is not None and len(values) == 1:
        return out.copy_(values[0])
    if not values:
        return out if kind is None else torch.empty(0, dtype=kind[0], device=kind[1])
    return torch.cat(values, out=out)


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


def chunks_of(layout, kinds):
    """The gather of the parameters of these kinds in chunks of CHUNK_BYTES: of each one {kind: the parts by member}. In
    each chunk a member sends its share of its own parts."""
    parts = {kind: [layout.parts(place, kind) for place in range(len(layout.members))] for kind in kinds}
    sizes = {kind: [sum(end - begin for _, begin, end in of_one) for of_one in parts[kind]] for kind in kinds}
    count = max(1, -(-sum(sum(sizes[kind]) * kind[0].itemsize for kind in kinds) // CHUNK_BYTES))

    def shares(kind, chunk):
        pairs = zip(parts[kind], sizes[kind])
        return [cut(of_one, size * chunk // count, size * (chunk + 1) // count) for of_one, size in pairs]

    return [{kind: shares(kind, chunk) for kind in kinds} for chunk in range(count)]


def give(exchange, name, params, kinds, parts_of):
    """Gathers the values of parts_of(member, kind), and writes those of the others into the parameters. Returns the
    Present."""
    tensors = [pack(params, parts_of(my_id(), kind), kind=kind) for kind in kinds]
    present, _, values = exchange.tensors(tensors, name)
    put(params, present, dict(zip(kinds, values)), parts_of)
    return present


def put(params, present, values, parts_of):
    """values: by kind and member."""
    for kind, of_kind in values.items():
        for member, of_member in zip(present.ids, of_kind):
            if member != my_id():
                unpack(params, parts_of(member, kind), of_member)


class Chunks:
    """The gathers of one kind of parameters."""

    def __init__(self, layout, kind, like, process_set):
        """like: a parameter of this kind."""
        self._chunks = [chunk[kind] for chunk in chunks_of(layout, [kind])]
        self._rows = [[sum(end - begin for _, begin, end in of_one) for of_one in chunk] for chunk in self._chunks]
        room = max(sum(rows) for rows in self._rows)
        is_host = like.device.type == "cpu"
        make = (
            (lambda: hvd.empty(room, dtype=like.dtype, process_set=process_set))
            if is_host
            else (lambda: torch.empty(room, dtype=like.dtype, device=like.device))
        )
        self._buffers = [make() for _ in range(min(2, len(self._chunks)))]
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
