"""Allreduces that are repeated every step under the same name: such a call differs from the last one only in memory."""

from horo._handles import Pending, forget, handle_for
from horo._native import quick


class _Flight(Pending):
    """One call of a Repeat. The Repeat serves the next call after this one was waited for."""

    __slots__ = ("holder",)

    def drop(self):
        """After an interrupt during the submit the work is unknown: the memory is then kept until the session ends."""
        (work,) = self.works
        self.session.kept[work or self] = self
        if work:
            self.session.drop(self.works)


class Repeat:
    """A named allreduce_async_ that can be repeated with a tensor of the same dtype and shape.

    While in flight it is the Pending of that call and keeps the memory alive; session.repeats holds it otherwise. A
    submit reads few objects, most of them shared between Repeats: when two threads submit in turns, each object costs
    a cache-line transfer."""

    __slots__ = (
        *("options", "hold", "session", "arrays", "spec", "name", "key", "nbytes"),
        *("memory", "holder", "address", "work", "__weakref__"),
    )

    def __init__(self, session, arrays, spec, options, array):
        self.options = options  # the call's other arguments
        self.hold = arrays.hold_alike(array)  # None: tensors of this name take the slow path
        self.session = session
        self.arrays = arrays
        self.spec = spec
        self.name = spec[0]
        self.key = None  # declared by the second call: most names of a program may be used once
        self.nbytes = array.nbytes
        self.memory = None  # not in flight

    def start(self, memory, holder, submit=quick.horo_submit):
        """Submits a tensor; holder is the result of hold() for it. Returns a handle."""
        session = self.session
        if session.dropped:
            session.sweep()
        if (key := self.key) is None:
            key = self.key = session.key(self.spec)
        self.memory = memory
        self.holder = holder
        self.address = address = self.arrays.place(memory)
        self.work = 0  # not known to be submitted
        handle = handle_for(self)  # before the submit: an interrupt may arrive right after it
        self.work = work = submit(session.pointer, key, address, address)
        if work <= 0:
            forget(handle)
            self.rest()
            session.fail(work)
        return handle

    def is_in_flight(self, address):
        """Whether a tensor at this address is in flight."""
        try:
            return self.memory is not None and self.address == address and not self.session.has_ended(self.work)
        except ValueError:  # another thread has synchronized it
            return False

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
