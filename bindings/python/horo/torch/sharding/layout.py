"""Layout: which elements of which tensors each member has. Pure: no tensor, no rank, no message.

Optimizers that update each element by itself may be cut anywhere for the arithmetic, but not for the bits: the loops of
some fused and bfloat16 kernels treat the last elements of a tensor in another way. Cuts at multiples of 256 elements
leave every element in the part of the loop that it has in the whole tensor.
"""

import functools

from horo.errors import HoroError
from horo.torch.sharding.extents import Extent, cut, elements

BLOCK = 256  # elements
CHUNK_BYTES = 16 << 20


class ShardLost(HoroError):
    """A member and its buddy were lost together: their parts are gone. The tensors that they have updated have the
    values of before, or a mix of both. The same on all ranks."""


class Layout:
    """The parts of each member, as Extents. A member is known by its place; `members` has its number in the job."""

    def __init__(self, members, hosts, tensors, is_whole=False, has_copies=False):
        """hosts: a number of the host of each member. tensors: (elements, kind) of each, see kind_of(). is_whole: no
        tensor is divided; otherwise cuts are at multiples of 256 elements. has_copies: each member has the parts of
        another one, too."""
        self.members, self.hosts, self.tensors = tuple(members), tuple(hosts), tuple(tensors)
        self.kinds = list(dict.fromkeys(kind for _, kind in tensors))
        self.buddies = _buddies(self.hosts) if has_copies else [None] * len(self.members)
        self._parts = [[] for _ in members]
        for kind in self.kinds:
            sizes = [(number, size) for number, (size, one) in enumerate(tensors) if one == kind]
            for place, part in (_dealt if is_whole else _cut)(sizes, len(self.members)):
                self._parts[place].append(part)
        for parts in self._parts:
            parts.sort()

    def parts(self, place, kind=None):
        """The parts of a member, by tensor; of one kind of tensors, or of all."""
        return [part for part in self._parts[place] if kind is None or self.tensors[part.number][1] == kind]

    def held(self, place):
        """The places whose parts a member has: its own, and those of which it has a copy."""
        return [place, *(one for one, buddy in enumerate(self.buddies) if buddy == place)]

    def givers(self, present, have, what):
        """{place: the member that gives its parts}: itself, or its buddy if it is lost. Of the places that are not in
        `have`. present: the members that are there. Raises ShardLost, of a part of `what`, if both are lost."""
        found = {}
        for place, member in enumerate(self.members):
            if place in have:
                continue
            buddy = None if self.buddies[place] is None else self.members[self.buddies[place]]
            if member not in present and buddy not in present:
                other = "there is no copy of its part" if buddy is None else f"so was its buddy, member {buddy}"
                raise ShardLost(
                    f"horo: member {member} was lost, and {other}: a part of {what} is gone. Go on from a checkpoint"
                )
            found[place] = member if member in present else buddy
        return found

    @functools.cached_property
    def chunks(self):
        """[(kind, the parts by place)]: all parts in chunks of at most CHUNK_BYTES and some elements, of one kind each.
        Each member has its share of its own parts in each chunk of the kind."""
        found = []
        for kind in self.kinds:
            parts = [self.parts(place, kind) for place in range(len(self.members))]
            sizes = [elements(of_one) for of_one in parts]
            count = max(1, -(-sum(sizes) * kind[0].itemsize // CHUNK_BYTES))
            for one in range(count):
                shares = [cut(p, size * one // count, size * (one + 1) // count) for p, size in zip(parts, sizes)]
                found.append((kind, shares))
        return found


def _buddies(hosts):
    """For each place the place of its buddy: of the same number on the next host; on one host the next place. None: a
    member that is alone."""
    if len(hosts) == 1:
        return [None]
    groups = {}
    for place, host in enumerate(hosts):
        groups.setdefault(host, []).append(place)
    if len(groups) == 1:
        return [(place + 1) % len(hosts) for place in range(len(hosts))]
    order, found = list(groups), {}
    for number, host in enumerate(order):
        following = groups[order[(number + 1) % len(order)]]
        for local, place in enumerate(groups[host]):
            found[place] = following[local % len(following)]
    return [found[place] for place in range(len(hosts))]


def _cut(sizes, members):
    """Yields (place, Extent): equal runs of blocks. A parameter is padded to whole blocks in the count alone; one
    without elements counts one block, since an optimizer may have state for it."""
    blocks = [max(1, -(-size // BLOCK)) for _, size in sizes]
    total, place, first = sum(blocks), 0, 0
    ends = [total * (one + 1) // members for one in range(members)]
    for (number, size), count in zip(sizes, blocks):
        done = 0
        while done < count:
            while ends[place] <= first + done:
                place += 1
            upto = min(count, ends[place] - first)
            yield place, Extent(number, min(size, done * BLOCK), min(size, upto * BLOCK))
            done = upto
        first += count


def _dealt(sizes, members):
    """Yields (place, Extent): whole parameters, the largest first, each to the member with the fewest elements."""
    loads = [0] * members
    for number, size in sorted(sizes, key=lambda pair: (-pair[1], pair[0])):
        place = min(range(members), key=lambda one: (loads[one], one))
        loads[place] += max(1, size)
        yield place, Extent(number, 0, size)
