"""Gathers that give tensors the parts of all members of a Layout, in its chunks, so that they take the memory of two.

The tensors of a Layout are a list in its order. What this member has in its own parts stays as it is.
"""

import collections
import itertools

import torch

from horo import _default
from horo._handles import synchronize
from horo.torch.memory import empty
from horo.torch.ops import allgather_async
from horo.torch.sharding.extents import elements, kind_of, pack, unpack
from horo.torch.sharding.member_gather import my_member


class FixedPartGather:
    """Among members that stay. Two chunks are in flight, in buffers that are kept."""

    def __init__(self, layout, process_set, label):
        """process_set: of the members of the layout, which may have another order there. label: the beginning of the
        names of its collectives, equal on all members. Raises ValueError if the layout has other members."""
        members = [_default.members()[rank] for rank in process_set.ranks]
        if sorted(members) != sorted(layout.members):
            raise ValueError(
                f"horo.torch.sharding.FixedPartGather: the layout has the members {list(layout.members)}, and the "
                f"process set {members}; expected the same"
            )
        places = [layout.members.index(member) for member in members]  # by rank in the set, as gathers have their rows
        self._chunks = [(kind, [parts[place] for place in places]) for kind, parts in layout.chunks]
        self._process_set, self._label = process_set, label
        self._rows = [[elements(parts) for parts in of_chunk] for _, of_chunk in self._chunks]
        self._room = collections.Counter()  # elements of a buffer, by kind
        for (kind, _), rows in zip(self._chunks, self._rows):
            self._room[kind] = max(self._room[kind], sum(rows))
        self._buffers = {}

    def run(self, tensors):
        """Collective; blocks."""
        mine, flying = self._process_set.rank(), collections.deque()
        for number, ((kind, chunk), rows) in enumerate(zip(self._chunks, self._rows)):
            if len(flying) == 2:
                self._finish(tensors, *flying.popleft())
            buffer = self._buffer(tensors, kind, number % 2)[: sum(rows)]
            first = sum(rows[:mine])
            own = pack(tensors, chunk[mine], kind, out=buffer[first : first + rows[mine]])
            handle = allgather_async(
                own, f"{self._label}/{number}", self._process_set, rows=rows, out=buffer, priority=-number
            )
            flying.append((chunk, rows, handle))
        while flying:
            self._finish(tensors, *flying.popleft())

    def _buffer(self, tensors, kind, number):
        if (kind, number) not in self._buffers:
            like, room = next(one for one in tensors if kind_of(one) == kind), self._room[kind]
            self._buffers[kind, number] = (
                empty(room, dtype=like.dtype, process_set=self._process_set)
                if like.device.type == "cpu"
                else torch.empty(room, dtype=like.dtype, device=like.device)
            )
        return self._buffers[kind, number]

    def _finish(self, tensors, chunk, rows, handle):
        whole, mine = synchronize(handle), self._process_set.rank()
        for place, (end, parts) in enumerate(zip(itertools.accumulate(rows), chunk)):
            if place != mine:
                unpack(tensors, parts, whole[end - rows[place] : end])


class PartGather:
    """Among members that may be lost meanwhile: their buddies give their parts. The first gather is the caller's, since
    it may tell the layout to members that have joined: each member gives begin(), and its result goes to end()."""

    def __init__(self, layout, gather, what):
        """gather: the MemberGather. what: of which a part is gone if a member and its buddy are lost."""
        self.layout, self._gather, self._what = layout, gather, what

    def begin(self, tensors, kind):
        """The values of this kind that this member gives in the first gather."""
        chunks, place = self.layout.chunks[:1], self.layout.members.index(my_member())
        return pack(tensors, [part for one, parts in chunks if one == kind for part in parts[place]], kind)

    def end(self, tensors, present, values):
        """present: the Present of the first gather. values: {kind: what the members have given}. A member that is not
        in the gather of the last chunk is lost. Returns the Present of the last gather; raises ShardLost. Collective;
        blocks."""
        layout = self.layout
        for number, (kind, parts) in enumerate(layout.chunks):
            parts_of = {(member, kind): of_one for member, of_one in zip(layout.members, parts)}
            if number == 0:
                _put(tensors, present, {kind: values[kind]}, parts_of)
            else:
                present = self._give("step", tensors, [kind], parts_of)
        have = {place for place, member in enumerate(layout.members) if member in present.members}
        while len(have) < len(layout.members):
            found = layout.givers(present.members, have, self._what)
            parts_of = collections.defaultdict(list)
            for place, kind in itertools.product(found, layout.kinds):
                parts_of[found[place], kind] += layout.parts(place, kind)
            present = self._give("rescue", tensors, layout.kinds, parts_of)
            have.update(place for place, giver in found.items() if giver in present.members)
        return present

    def _give(self, name, tensors, kinds, parts_of):
        """Gathers the values of parts_of[member, kind], and writes those of the others. Returns the Present."""
        mine = [pack(tensors, parts_of.get((my_member(), kind), ()), kind) for kind in kinds]
        present, _, values = self._gather.tensors(mine, name)
        _put(tensors, present, dict(zip(kinds, values)), parts_of)
        return present


def _put(tensors, present, values, parts_of):
    """values: by kind and member."""
    for kind, of_kind in values.items():
        for member, of_member in zip(present.members, of_kind):
            if member != my_member():
                unpack(tensors, parts_of.get((member, kind), ()), of_member)
