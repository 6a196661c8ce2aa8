"""Sampler: a batch sampler whose batches are dealt anew when ranks are lost or join.

A DataLoader draws batches early, and more of them than the script gets. So the Sampler notes each batch that it has
given to the loader, in order, and State.batches() matches each batch that it receives with the first note: loaders
keep the order. A batch of an older deal is dropped there.
"""

import collections

from horo import _default
from horo._arguments import flag, whole
from horo.elastic.deal import Deal, Place
from horo.elastic.order import Order


class Sampler:
    """The batches of this rank: `DataLoader(data, batch_sampler=horo.elastic.Sampler(len(data), batch_size=32))`.

    In each step of a pass every rank gets batch_size samples; the last two steps are dealt evenly, so that each rank
    has at least one sample in each step. Over all ranks each sample is used once per pass, also where ranks are lost
    and join, if the loop is State.batches(loader). Its state is the number of the pass, a cursor and the list of parts
    to deal again: some bytes, which are valid for any number of ranks.

    One thread uses a Sampler: that which iterates over the loader."""

    def __init__(self, length, batch_size=1, seed=0, drop_last=False):
        """length: the number of samples, or the data set. batch_size: samples of one rank and step. seed: the order of
        a pass follows from it and from the pass. drop_last: the samples that do not fill the batches of all ranks are
        left out of the pass. Raises ValueError if an argument is out of range."""
        if hasattr(length, "__len__"):
            length = len(length)
        length = whole(length, "Sampler: length", "a number of samples of at least 1", 1)
        self.seed = whole(seed, "Sampler: seed", "an integer of at least 0", 0)
        batch_size = whole(batch_size, "Sampler: batch_size", "a number of samples of at least 1", 1)
        self.deal = Deal(length, batch_size, flag(drop_last, "Sampler: drop_last"))
        self.number = 0  # of the pass
        self.notes = collections.deque()  # a Part for each batch that the loader has drawn and not delivered
        self.is_over = False  # a loop over the batches of this rank has come to the end of the pass
        self._is_dealt = False  # a State has said which members there are
        self._order = None

    @property
    def length(self):
        return self.deal.length

    @property
    def batch_size(self):
        """Samples of one rank and step; DataLoader reads it."""
        return self.deal.batch_size

    @property
    def drop_last(self):
        return self.deal.drop_last

    def order(self, number):
        """The Order of a pass: a sequence in which each index is once, the same on all ranks and machines."""
        if self._order is None or self._order[0] != number:
            self._order = number, Order(self.length, self.seed, number)
        return self._order[1]

    def __iter__(self):
        """The batches of this rank that are left of the pass: lists of indices."""
        if not self._is_dealt:
            self._deal_to_present()
        self.deal.void()
        self.notes.clear()
        return self._drawn()

    def _drawn(self):
        while (part := self.deal.draw()) is not None:
            order = self.order(self.number)
            self.notes.append(part)
            yield [order[position] for position in part.positions]

    def __len__(self):
        """The number of steps of a whole pass with the present ranks."""
        if not self._is_dealt:
            self._deal_to_present()
        return self.deal.steps(Place(0, ()))

    def _deal_to_present(self):
        """Outside of elastic.run: the present ranks of the session, or this process alone."""
        session = _default.current()
        count, me = (1, 0) if session is None else (session.topology.size, session.topology.rank)
        if getattr(session, "is_joiner", False):  # provisional numbers; only the length is asked for
            count, me = max(1, min(max(count, me + 1), self.deal.most_members())), 0
        self.deal.begin(range(count), me)

    # For State

    def begin(self, members, me):
        """Deals to these members, a tuple of MemberIds; `me` is this rank's."""
        self._is_dealt = True
        self.deal.begin(members, me)

    def start(self, number):
        """The pass of this number begins."""
        self.number, self.is_over = number, False
        self.deal.start()

    def steps_left(self):
        """The number of steps that are left of the pass."""
        return self.deal.steps()

    def receive(self):
        """The loader has delivered its next batch: its Part, or None if it is of an older deal."""
        if not self.notes:
            raise RuntimeError(
                "horo.elastic: the loader has delivered a batch that this Sampler has not drawn: expected one iterator "
                "of one loader at a time, which keeps the order of its batches (DataLoader(in_order=True))"
            )
        part = self.notes.popleft()
        if part.generation != self.deal.generation:
            return None
        self.deal.receive()
        return part

    def state_dict(self):
        """Valid for any number of ranks, and equal on all of them at a border. Can be stored as JSON."""
        place = self.deal.place
        return {"pass": self.number, "cursor": place.cursor, "again": [list(hole) for hole in place.holes]}

    def load_state_dict(self, state):
        """Goes on where state_dict() was called. Raises ValueError if it is that of a longer data set."""
        holes = tuple((int(start), int(stop)) for start, stop in state["again"])
        place = Place(int(state["cursor"]), holes)
        if not 0 <= place.cursor <= self.length or any(not 0 <= a < b <= place.cursor for a, b in holes):
            raise ValueError(f"Sampler: a state {state} for {self.length} samples; expected that of the same data set")
        self.number, self.is_over = int(state["pass"]), False
        self.deal.start(place)
