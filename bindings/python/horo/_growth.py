"""What a session has for jobs that grow: its ranks may be joined by others. See docs/elastic.md.

What the ranks count equally since the start of the job cannot be known to a rank that joins: rounds of an optimizer,
looks of the audit, layouts, the order of the forward, the streams of optimizers. They count these from
`session.joins[number of the process set]`, as after a join() of Horovod; at a growth the number of the world gets a new
value that all members have agreed on.
"""

import ctypes
import functools

from horo import _native
from horo._arguments import encoded
from horo._changes import held
from horo._native import quick, slow

GROWTH_BITS = 16  # of session.joins[0]: calls of join() since the last growth

_hooks = []  # functions that count_growth() calls
_MOST_JOINERS = 8192  # kMaxMembers


def on_growth(function):
    """function(growths) is called on each rank, survivors and joined ones, when ranks have joined the world, between
    two rounds. growths: a number that is equal on all ranks and greater than before."""
    _hooks.append(function)
    return function


def growths_of(session):
    """The last number of count_growth(); 0: none."""
    return session.joins[0] >> GROWTH_BITS


def count_growth(session, growths):
    """Ranks have joined the world. growths: see on_growth(). All ranks call it at the same place."""
    session.joins[0] = growths << GROWTH_BITS
    for hook in _hooks:
        hook(growths)


class Growth:
    """The part of Session for ranks that join."""

    census = None  # a Census, while a function of horo.elastic.run trains
    is_early = False  # see refuse_early()
    leaves_at_border = False  # a State that is saved is in a batch: a drained rank leaves behind it

    def begin_early(self):
        """This rank has joined in the middle of a pass. Until end_early() its script calls no collective: the other
        ranks are behind the start of the function and of the pass, and do not call it."""
        self.repeats.clear()  # they submit by themselves
        self.is_early = True

    def end_early(self):
        """The script has its first batch."""
        self.is_early = False

    def refuse_early(self, name=None, call="a collective"):
        """Raises RuntimeError for a call of an early rank. Without that all ranks would wait for one another, and end
        with the error of a deadlock."""
        call = f"{call} of tensor {name!r}" if name else call
        raise RuntimeError(
            f"horo.elastic: rank {self.world.members[self.topology.rank]} has joined in the middle of a pass, and its "
            f"script calls {call} before its first batch, which the other ranks do not: call it before the function of "
            "horo.elastic.run, or after a batch was received"
        )

    @functools.cached_property
    def is_joiner(self):
        """This process was started to join a job, and has not joined yet: its session is provisional."""
        return self._check(quick.horo_has_yet_to_join(self.pointer)) == 1

    def ask_to_rejoin(self):
        """Of a rank that was evicted: asks horo run for a place among the ranks again. Returns the variables that a
        session of this process has then, {name: value}; None: it was not evicted, or horo run refuses it. Blocks for a
        moment."""
        text = slow.horo_rejoin(self.pointer)
        if text is None:
            self.fail(quick.horo_error_status(self.pointer))
        return dict(line.split("=", 1) for line in text.decode().splitlines()) or None

    def can_grow(self, terms):
        """The script of this rank can go on with ranks that join. terms: lines name=value that a rank which joins must
        have, too. May be called again: the last call counts. Does not block."""
        self._check(quick.horo_can_grow(self.pointer, encoded(terms, "terms")))

    def cannot_grow(self):
        """Takes can_grow() back: no rank joins any more. Does not block."""
        self._check(quick.horo_can_grow(self.pointer, None))

    def joiners(self):
        """The MemberIds of the ranks that are ready to join, a tuple. Does not block."""
        count = self._check(quick.horo_get_joiners(self.pointer, None, 0))
        if not count:
            return ()
        ids = (ctypes.c_uint32 * _MOST_JOINERS)()
        return tuple(ids[: self._check(quick.horo_get_joiners(self.pointer, ids, _MOST_JOINERS))])

    def grow(self):
        """Ends the epoch of the world at one place of all ranks, and begins the next one with the ranks that are ready.
        Collective over the world; blocks. Returns the epoch. Ranks that have died meanwhile are not in it, and the
        ready ones may not be in it either."""
        return self._count_of(quick.horo_grow(self.pointer))

    def synced(self, text):
        """This rank, which has joined, has the state. text: what was sent, for the log. Does not block."""
        self._check(quick.horo_synced(self.pointer, encoded(text, "text")))

    def transfer(self, buffers, has_state):
        """Gives the bytes of the ranks with the state to those that have joined. buffers: [(name, form, address, bytes,
        is_of_first)], equal on all ranks but for the addresses; see horo_state_buffer. Collective over the world;
        blocks. Returns a Transferred. See horo_transfer."""
        rows = (_native.StateBuffer * max(len(buffers), 1))()
        for row, (name, form, address, nbytes, is_of_first) in zip(rows, buffers):
            row.struct_bytes = ctypes.sizeof(row)
            row.name, row.form = encoded(name, "name"), encoded(form, "form")
            row.data, row.bytes, row.is_of_first = address, nbytes, is_of_first
        moved = _native.Transferred(ctypes.sizeof(_native.Transferred))
        with held:
            try:
                self._check(slow.horo_transfer(self.pointer, rows, len(buffers), has_state, moved))
            finally:
                self.world.see()
        return moved
