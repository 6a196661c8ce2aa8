"""Layout: which elements of which parameters each member updates. Pure: no tensor, no rank, no message.

Optimizers that update each element by itself may be cut anywhere for the arithmetic, but not for the bits: the loops of
some fused and bfloat16 kernels treat the last elements of a tensor in another way. Cuts at multiples of 256 elements
leave every element in the part of the loop that it has in the whole tensor.
"""

import typing

BLOCK = 256  # elements


class Extent(typing.NamedTuple):
    """Elements of one parameter, in the order of its memory."""

    number: int  # of the parameter
    begin: int
    end: int


class Layout:
    """The parts of each member. A member is known by its place; `members` has its number in the job."""

    def __init__(self, members, hosts, params, is_whole=False):
        """hosts: a number of the host of each member. params: (elements, kind) of each parameter; a kind is what the
        parameters of one gather have in common, such as the dtype. is_whole: no parameter is divided."""
        self.members, self.hosts, self.params = tuple(members), tuple(hosts), tuple(params)
        self.kinds = list(dict.fromkeys(kind for _, kind in params))
        self.buddies = _buddies(self.hosts)
        self._parts = [[] for _ in members]
        for kind in self.kinds:
            sizes = [(number, size) for number, (size, one) in enumerate(params) if one == kind]
            for place, part in (_dealt if is_whole else _cut)(sizes, len(self.members)):
                self._parts[place].append(part)
        for parts in self._parts:
            parts.sort()

    def parts(self, place, kind=None):
        """The parts of a member, by parameter; of one kind of parameters, or of all."""
        return [part for part in self._parts[place] if kind is None or self.params[part.number][1] == kind]

    def held(self, place):
        """The places whose parts a member with a buddy's share updates: its own, and those that it stands in for."""
        return [place, *(one for one, buddy in enumerate(self.buddies) if buddy == place)]


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
