"""Deal: which positions of a pass each rank gets in each step. Pure: no session, no framework, no clock.

All ranks hold equal Deals and make equal calls, so they deal alike without a message. A position is a place in the
order of the pass. What is left of a pass is [cursor, length) and the holes: the parts of members that were lost before
they had contributed them. A step takes positions from the front of what is left and deals them to the members in
runs. Batches are drawn ahead of the steps, because loaders fetch them early; settle() says which members have
contributed what was drawn and received, and moves the cursor. When a member is missing, its part becomes a hole, and
everything that was drawn and not received is void: it is dealt anew to the members that are left.
"""

import collections
import typing


class Part(typing.NamedTuple):
    """What one member gets in one step."""

    generation: int  # of the deal: a part of an older one is void
    positions: list  # in the order of the pass
    counts: bool  # False: a copy of another member's sample, as there are fewer samples left than members


class Place(typing.NamedTuple):
    """What is left of a pass: [cursor, length), and the holes, a tuple of (start, stop)."""

    cursor: int
    holes: tuple


def take(place, count, length):
    """The runs (start, stop) of the first `count` positions that are left, and the Place behind them."""
    runs, cursor, holes = [], place.cursor, list(place.holes)
    if cursor < length and count:
        stop = min(length, cursor + count)
        runs.append((cursor, stop))
        count -= stop - cursor
        cursor = stop
    while count:
        start, stop = holes.pop(0)
        middle = min(stop, start + count)
        runs.append((start, middle))
        count -= middle - start
        if middle < stop:
            holes.insert(0, (middle, stop))
    return runs, Place(cursor, tuple(holes))


def part_of(runs, index, count):
    """The runs of the member of this index among `count` members: sizes differ by at most one."""
    total = sum(stop - start for start, stop in runs)
    size, more = divmod(total, count)
    skip, left = index * size + min(index, more), size + (index < more)
    found = []
    for start, stop in runs:
        start, skip = min(stop, start + skip), max(0, skip - (stop - start))
        if (stop := min(stop, start + left)) > start:
            found.append((start, stop))
            left -= stop - start
    return found


class Deal:
    """The deals of one rank. Each call is made by one thread at a time."""

    def __init__(self, length, batch_size, drop_last=False):
        self.length, self.batch_size, self.drop_last = length, batch_size, drop_last
        self.place = Place(0, ())  # of what is not committed
        self.members, self.me = (0,), 0
        self.generation = 0
        self._ahead = self.place  # behind what was drawn
        self._received = collections.deque()  # sizes of the steps that were received and not settled

    def left(self, place=None):
        """The number of positions that are left of the pass; None: of those that are not committed."""
        place = self.place if place is None else place
        return self.length - place.cursor + sum(stop - start for start, stop in place.holes)

    def most_members(self):
        """With more of them, a pass would have a step in which one has no sample, or with drop_last no step at all."""
        return self.length // self.batch_size if self.drop_last else self.length

    def begin(self, members, me):
        """From now on the parts are dealt to these members, a sequence of MemberIds; `me` is this rank's. What was
        drawn and not settled is void. Raises ValueError if there are more than most_members()."""
        if len(members) > self.most_members():
            batch = f"a batch of {self.batch_size}, because of drop_last," if self.drop_last else "one"
            raise ValueError(
                f"horo.elastic.Sampler: {self.length} samples for {len(members)} ranks; expected at least {batch} for "
                "each"
            )
        self.members, self.me = tuple(members), me
        self.void()

    def void(self):
        """What was drawn and not settled is dealt again."""
        self.generation += 1
        self._ahead = self.place
        self._received.clear()

    def start(self, place=Place(0, ())):
        """A pass begins, or goes on at this Place."""
        self.place = place
        self.void()

    def size_of_step(self, place):
        """The number of positions that all members get together in the step after this Place; 0: the pass is over.

        The last two steps are dealt evenly. One step is the last where two would leave a member without a sample."""
        left, count = self.left(place), len(self.members)
        whole = count * self.batch_size
        if self.drop_last:
            return whole if left >= whole else 0
        if whole < left <= 2 * whole:
            return left if left < 2 * count else -(-left // 2)
        return min(left, whole)

    def steps(self, place=None):
        """The number of steps after this Place; None: after what is committed."""
        place = self.place if place is None else place
        left, whole = self.left(place), len(self.members) * self.batch_size
        if self.drop_last:
            return left // whole
        before = max(0, -(-left // whole) - 2)
        rest = left - before * whole
        return before + (0 if rest <= 0 else 1 if rest <= whole or rest < 2 * len(self.members) else 2)

    def draw(self):
        """This rank's Part of the next step that was not drawn; None: there is none."""
        size = self.size_of_step(self._ahead)
        if size == 0:
            return None
        runs, self._ahead = take(self._ahead, size, self.length)
        index = self.members.index(self.me)
        mine = [position for start, stop in part_of(runs, index, len(self.members)) for position in range(start, stop)]
        if mine:
            return Part(self.generation, mine, True)
        everything = [position for start, stop in runs for position in range(start, stop)]
        return Part(self.generation, [everything[index % size]], False)

    def receive(self):
        """The script gets the first batch that was drawn and not received."""
        place = self.place
        for size in self._received:
            place = take(place, size, self.length)[1]
        self._received.append(self.size_of_step(place))

    def is_open(self):
        """Whether a batch was received and is not settled."""
        return bool(self._received)

    def settle(self, contributors):
        """These members, a set, have contributed what was received. The others are gone: their parts are dealt again.
        Returns the members that are gone."""
        lost = [index for index, member in enumerate(self.members) if member not in contributors]
        holes = []
        while self._received:
            runs, self.place = take(self.place, self._received.popleft(), self.length)
            for index in lost:
                holes += part_of(runs, index, len(self.members))
        if not lost:
            return ()
        self.place = self.place._replace(holes=(*self.place.holes, *holes))
        gone = tuple(self.members[index] for index in lost)
        self.begin([member for member in self.members if member in contributors], self.me)
        return gone
