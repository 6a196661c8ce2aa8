"""Border: the place between two batches at which ranks may join, and what all ranks know there.

In an elastic job the members of the last round are known by its Census, without an exchange. A State without a
DistributedOptimizer may have no rounds: then the ranks exchange the words at the border, which costs one small
all_reduce. While gradients are only accumulated, no round has ended: there is no border. So no rank waits at a border
for a rank that comes later than its round. In a static job, and alone, a border does nothing.

If a rank has told of joiners, all ranks end the epoch together, and one all_gather in the next epoch says which members
there are and which of them have the state. That is repeated until all of them have it: a member may die meanwhile.
"""

import time
import typing

from horo import _growth
from horo._census import Census
from horo._changes import Growing
from horo.elastic import gathers
from horo.elastic.fields import from_json, to_json
from horo.errors import PeerLost


class Changed(typing.NamedTuple):
    """The members of the job have changed. lost, joined: MemberIds, the numbers that horo run prints. rank, size: the
    present ones of this process. old_size: before. step: how many steps the State has seen. Equal on all ranks but for
    rank, also on those that have joined."""

    lost: tuple
    joined: tuple
    old_size: int
    size: int
    rank: int
    step: int


class Row(typing.NamedTuple):
    """What a rank tells after a growth."""

    member: int
    has_state: bool
    growths: int
    step: int


class Border:
    """The agreement of one rank with the others. One thread uses it. Blocks only where its methods say so."""

    def __init__(self, session, gradients=list):
        """gradients(): the Gradients of the DistributedOptimizers of the world that the State has as fields: the same
        ones on all ranks, which those that live in the process may not be."""
        self.session, self._gradients = session, gradients
        self.members = tuple(session.world.members)
        self.seen = self.members  # the members that functions of horo.on_change() know, before a growth
        self.me = self.members[session.topology.rank]
        self.is_elastic = session.is_elastic
        self._census = Census(session) if self.is_elastic else None
        self._outer = None
        self._is_open = False  # a batch was given and no border was settled since
        self.is_clean = False  # the last call of settle() was at a border, and no gradients are accumulated
        self._has_notice = False  # a rank has told of a notice
        self._begin()

    def _begin(self):
        if self._census is not None:
            self._census.begin(self.members, self.me)

    def open(self):
        """Rounds from now on tell of their contributors."""
        self._outer, self.session.census = self.session.census, self._census

    def close(self):
        """They tell another Border again, if this one was opened while that was open."""
        self.session.census = self._outer

    def count_batch(self, counts):
        """A batch is given to the script. What earlier rounds have told does not count for it. counts: False where it
        is a copy of another rank's: this rank's gradients of the next round are absent then, unless those of earlier
        batches are among them."""
        if self._census is not None:
            self._census.batches += 1
            if not self._is_open:
                self._census.found = []
            self._is_open = True
        for gradients in self._gradients():
            gradients.round.is_absent = not counts and not gradients.round.is_dirty

    def settle(self, is_end=False):
        """At a place that all ranks come to. Returns (contributors, knows): the members that have contributed what was
        received since the last settled border, and whether ranks may join here, as a rank knows of joiners; (None,
        False): this is no border, as no round has ended. is_end: it is one in any case. May block, for one exchange."""
        if self._census is None:
            self._see_gradients()
            self._has_notice = self.session.notice() is not None  # after the same step on all ranks
            return self.members, False
        self._check_told()
        if is_end or not self._census.found:
            if not is_end and self._gradients():
                self.is_clean = False
                return None, False
            self._census.exchange()
        self._see_gradients()
        found, self._census.found = self._census.found, []
        self._is_open = False
        self._has_notice |= any(one.knows_notice for one in found)
        contributors = frozenset().union(*(one.contributors for one in found))
        return contributors, self.is_clean and any(one.knows_joiners for one in found)

    def _see_gradients(self):
        """A rank that joins, or a checkpoint, would not have gradients that were added up and that no round has
        reduced."""
        self.is_clean = not any(one.round.is_dirty for one in self._gradients())

    def take_notice(self):
        """Whether a rank has told since the last call that its host is drained. The same on all ranks."""
        found, self._has_notice = self._has_notice, False
        return found

    def _check_told(self):
        """Raises RuntimeError, on all ranks, if an optimizer has told that is no field of the State: a rank that joins
        would not have it, and where it has accumulated gradients would not be known."""
        told, self._census.told = self._census.told, {}
        known = {one.declared.stream.number for one in self._gradients()}
        for label in (label for stream, label in told.items() if stream not in known):
            raise RuntimeError(
                f"horo.elastic: a DistributedOptimizer, whose first parameter is {label}, has reduced gradients and is "
                "no field of the State: give the DistributedOptimizer to State(...)"
            )

    def lose(self, gone, step):
        """These members are gone, on all ranks alike. Returns the Changed."""
        before = len(self.members)
        self.members = tuple(member for member in self.members if member not in gone)
        self._begin()
        return Changed(gone, (), before, len(self.members), self.members.index(self.me), step)

    def agree(self, has_state, step):
        """A Row for each rank, by rank. Collective over the world; blocks."""
        row = Row(self.me, has_state, _growth.growths_of(self.session), step)
        return [Row(*from_json(one)) for one in gathers.gather(self.session, "members", to_json(row))]

    def grow(self, give, step):
        """All ranks that know the border call it: ends the epoch, and begins the next one with the ranks that are
        ready. give(rows, session): gives the state to the ranks without it. Blocks. Returns the Changed."""
        started = time.monotonic()
        with Growing(self.session.world) as growing:  # functions of horo.on_change() find the new state
            self.seen = growing.before.members
            self.session.grow()
            changed = self.change_to(self.until_all_have_the_state(give, lambda: True, step), step)
            self.waited_ms = 1000 * (time.monotonic() - started)
        return changed

    def take_place(self, members, seen):
        """This rank has joined, and has got the state of a rank with these numbers: it was as if it had been there."""
        self.members, self.seen = tuple(members), tuple(seen)

    def until_all_have_the_state(self, give, has_state, step):
        """Calls give(rows) until each member has the state. has_state(): whether this rank has it. Returns the Rows.
        Raises PeerLost if all that had it are gone."""
        while True:
            rows = self.agree(has_state(), step)
            if all(row.has_state for row in rows):
                return rows
            if not any(row.has_state for row in rows):
                raise PeerLost(f"rank {self.me} has joined, and no rank that has the state is left")
            give(rows)

    def change_to(self, rows, step):
        """These Rows are the members now. Counts a growth if a member has joined. Returns the Changed."""
        before = self.members
        self.members = tuple(row.member for row in rows)
        lost = tuple(member for member in before if member not in self.members)
        joined = tuple(member for member in self.members if member not in before)
        if joined:
            _growth.count_growth(self.session, 1 + max(row.growths for row in rows))
        self._begin()
        return Changed(lost, joined, len(before), len(self.members), self.members.index(self.me), step)
