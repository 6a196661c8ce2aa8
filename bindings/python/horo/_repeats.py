"""Allreduces that come again, step after step, under their name: of a call like the last one only the memory is new."""

from horo._handles import forget, handle_for, moved_text
from horo._native import quick
from horo.errors import HoroError


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

    @property
    def works(self):
        return (self.work,)

    def check_memory(self):
        memory, nbytes = self.memory, self.memory.nbytes
        if self.arrays.place(memory) != self.address or nbytes != self.nbytes:
            raise HoroError(moved_text(self.name, self.nbytes, nbytes))

    def finish(self, _):
        self.arrays.written(self.memory)
        return self.memory

    def let_go(self):
        self.session.release(self.works)
        self.rest()

    def drop(self):
        """Without a number nobody can tell when the memory is free: an interrupt came right after the submit."""
        self.session.kept[self.work or self] = self
        if self.work:
            self.session.drop(self.works)
