"""Handles: ints that the *_async calls return; poll and synchronize.

What a work reads and writes is kept until synchronize(), or, if the handle is dropped, until the work has ended.
"""

import itertools

from horo import _default
from horo.errors import HoroError


class Pending:
    """What synchronize needs to know of works that were started together."""

    __slots__ = ("session", "works", "finish", "watched")

    def __init__(self, session, works, finish, watched):
        self.session = session
        self.works = works
        self.finish = finish  # finish(pending) makes the result once the works have ended well
        self.watched = watched  # (name, memory, address, bytes, place) of memory in flight

    def let_go(self):
        """It has ended, and somebody waited for it."""
        self.session.release(self.works)

    def drop(self):
        """Nobody will wait for it. Never blocks or locks."""
        self.session.drop(self.works)

    def check_memory(self):
        """The memory may have been written by nobody but us, and lies where it lay."""
        for name, memory, address, nbytes, place in self.watched:
            if place(memory) != address or memory.nbytes != nbytes:
                raise HoroError(moved_text(name, nbytes, memory.nbytes))


_pending = {}  # the handle's number: Pending; not the handle, which has to notice when the caller drops it
_numbers = itertools.count(1)  # never used twice, whichever session the work is in


class Handle(int):
    """The int that the *_async calls return."""

    __slots__ = ()

    def __del__(self, pending=_pending):
        dropped = pending.pop(self, None)
        if dropped is not None:
            dropped.drop()


class Joint:
    """Several handles whose results make one: called, it waits for them. synchronize() and poll() take it too."""

    def __init__(self, handles, finish):
        self._handles = handles
        self._finish = finish  # finish(results)

    def __call__(self):
        return self._finish([synchronize(handle) for handle in self._handles])

    def has_ended(self):
        return all(poll(handle) for handle in self._handles)


def moved_text(name, nbytes, nbytes_now):
    """Of a tensor whose memory is not what was submitted any more."""
    now = "it lies elsewhere now" if nbytes == nbytes_now else f"it has {nbytes_now} bytes now"
    return (
        f"{name or 'an unnamed tensor'} had {nbytes} bytes when rank {_default.rank()} submitted it, and {now}: its "
        "memory was resized or replaced while it was in flight. The result is lost on this rank, and memory that was "
        "given back meanwhile may have been written. Leave the tensor's size and storage alone until its handle is "
        "synchronized"
    )


def handle_of(session, works, finish, watched=()):
    return handle_for(Pending(session, works, finish, watched))


def handle_for(pending):
    number = next(_numbers)
    _pending[number] = pending
    return Handle(number)


def forget(handle):
    """Its work was not submitted."""
    del _pending[handle]


def poll(handle):
    """True once synchronize(handle) would not block."""
    if isinstance(handle, Joint):
        return handle.has_ended()
    pending = _pending.get(handle)
    if pending is None:
        raise ValueError(f"horo.poll: handle {handle} was not created or has been cleared")
    return all(pending.session.has_ended(work) for work in pending.works)


def synchronize(handle):
    """Waits for a work and returns its result; None for a handle that is unknown or was waited for before."""
    if isinstance(handle, Joint):
        return handle()
    pending = _pending.get(handle)
    if pending is None:
        return None
    try:
        pending.session.wait(pending.works)
        pending.check_memory()
        result = pending.finish(pending)
    except Exception:  # an interrupt is none: the work goes on, and may be waited for again
        _let_go(handle)
        raise
    _let_go(handle)
    return result


def _let_go(handle):
    pending = _pending.pop(handle, None)
    if pending is not None:
        pending.let_go()
