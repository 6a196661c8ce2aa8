"""Allreduces that come again, step after step, under their name: of a call like the last one only the memory is new."""

from horo._handles import Pending, forget, handle_for
from horo._native import quick


class _Flight(Pending):
    """One call of a Repeat, which serves another one as soon as this one was waited for."""

    __slots__ = ("holder",)

    def drop(self):
        """Without a number nobody can tell when the memory is free: an interrupt came right after the submit."""
        (work,) = self.works
        self.session.kept[work or self] = self
        if work:
            self.session.drop(self.works)


class Repeat:
    """A named allreduce_async_, to be called again with a tensor like its last one. While it is in flight it is that
    call's Pending and keeps the memory alive; session.repeats has it only when it is not.

    Few and shared objects: while two threads take turns, each object that a submit looks at comes from afar."""

    __slots__ = ("said", "hold", "session", "arrays", "name", "key", "nbytes", "memory", "holder", "address", "work")

    def __init__(self, session, arrays, spec, said, array):
        self.said = said  # the call's other arguments
        self.hold = arrays.hold_alike(array)  # None: each tensor of that name has to go the long way
        self.session = session
        self.arrays = arrays
        self.name = spec[0]
        self.key = session.key(spec)
        self.nbytes = array.nbytes

    def start(self, memory, holder, submit=quick.horo_submit):
        """Submits a tensor that hold() gave the holder of. Returns a handle."""
        session = self.session
        if session.dropped:
            session.sweep()
        self.memory = memory
        self.holder = holder
        self.address = address = self.arrays.place(memory)
        self.work = 0  # not submitted, as far as is known
        handle = handle_for(self)  # before the submit: an interrupt may come right after it
        self.work = work = submit(session.pointer, self.key, address, address)
        if work <= 0:
            forget(handle)
            self.rest()
            session.fail(work)
        return handle

    def rest(self):
        self.memory = self.holder = None
        self.session.expect(self)

    def flight(self):
        watched = ((self.name, self.memory, self.address, self.nbytes, self.arrays.place),)
        flight = _Flight(self.session, (self.work,), self._finish, watched)
        flight.holder = self.holder
        return flight

    def _finish(self, flight):
        _, memory, *_ = flight.watched[0]
        self.arrays.written(memory)
        return memory

    def let_go(self):
        self.session.release((self.work,))
        self.rest()

    def drop(self):
        self.flight().drop()
