"""A stand-in for growth by the library: a session "grows" by a shutdown and an init of all ranks, with the new ones, at
the next address. For programs whose ranks are started with HORO_RANK and HORO_SIZE as in the last world, and that say
after which steps rank 2, 3, ... joins; ranks 0 and 1 are there from the start."""

import os

import horo.torch as horo
from horo import _default

FIRST = 2


def settings_of(rank, size, address):
    return {
        "HORO_RANK": rank,
        "HORO_SIZE": size,
        "HORO_LOCAL_RANK": rank,
        "HORO_LOCAL_SIZE": size,
        "HORO_ADDR": address,
    }


class StandIn:
    """The session's calls of growth, and the worlds of this process."""

    def __init__(self, join_steps):
        """join_steps: of rank 2, 3, ..., ascending."""
        self.me, self.addresses = int(os.environ["HORO_RANK"]), os.environ["ADDRESSES"].split()
        self.join_steps, self.steps = join_steps, lambda: 0
        self.worlds = 0 if self.me < FIRST else self.me - 1  # that this rank has been in, or will be in first
        self.synced = []
        self.border = None

    def start(self):
        """init(). A rank that joins is alone at first."""
        if self.me < FIRST:
            return self._init()
        horo.init(settings=settings_of(0, 1, self.addresses[-1]))
        _default.session().is_joiner = True
        _default.join = lambda terms: (horo.shutdown(), self._init())[1]

    def _init(self):
        horo.init(settings=settings_of(self.me, FIRST + self.worlds, self.addresses[self.worlds]))
        session = _default.session()
        session.is_elastic = True
        session.joiners, session.grow = self._joiners, self._grow
        session.synced = self.synced.append
        return session

    def _joiners(self):
        place = self.worlds
        return (FIRST + place,) if place < len(self.join_steps) and self.steps() >= self.join_steps[place] else ()

    def _grow(self):
        joins = _default.session().joins
        horo.shutdown()
        self.worlds += 1
        session = self._init()
        session.joins.update(joins)
        if self.border is not None:
            self.border.session = self.border._census.session = session
            self.border.open()
        return self.worlds

    def watch(self, state):
        """Follows the border of a State that is in run: its session is another one after a growth."""
        self.border = state._border
