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

    def flight(self):
        """A Pending of these works alone, whatever becomes of this one."""
        return self

    def let_go(self):
        """It has ended, and somebody waited for it."""
        self.session.release(self.works)

    def drop(self):
        """Nobody will wait for it. Never blocks or locks; twice does no harm."""
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
        dropped = pending.get(self)
        if dropped is not None:
            dropped.drop()  # before it is forgotten: an interrupt in between must not free memory in flight
            pending.pop(self, None)

    def __copy__(self):
        return self  # two would drop the work twice

    def __deepcopy__(self, _):
        return self

    def __reduce__(self):
        return int, (int(self),)


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


def _flight_of(handle):
    """What is pending under this handle, and its flight; None where nothing is."""
    pending = _pending.get(handle)
    if pending is None:
        return None
    flight = pending.flight()
    # A Repeat serves its next call once its handle was taken, which another thread may just have done.
    return (pending, flight) if handle in _pending else None


def poll(handle):
    """True once synchronize(handle) would not block."""
    if isinstance(handle, Joint):
        return handle.has_ended()
    found = _flight_of(handle)
    if found is None:
        raise ValueError(f"horo.poll: handle {handle} was not created or has been cleared")
    _, flight = found
    return all(flight.session.has_ended(work) for work in flight.works)


def synchronize(handle):
    """Waits for a work and returns its result; None for a handle that is unknown or was waited for before. Of several
    threads that wait for one handle the first gets the result."""
    if isinstance(handle, Joint):
        return handle()
    found = _flight_of(handle)
    if found is None:
        return None
    pending, flight = found
    try:
        flight.session.wait(flight.works)
    except Exception as error:  # an interrupt is none: the work goes on, and may be waited for again
        if isinstance(error, ValueError) and handle not in _pending:
            return None  # another thread had the result, and the work is unknown by now
        _give_up(handle, flight)
        raise
    return _take(handle, pending, flight)


def _give_up(handle, flight):
    """The works may be in flight still: it can be a signal handler that raised something."""
    flight.drop()  # before it is forgotten, as in __del__
    _pending.pop(handle, None)
    flight.session.sweep()  # they have ended, mostly


def _take(handle, pending, flight):
    """The result of works that have ended well. To forget the handle is to claim it: the others get None."""
    try:
        if _pending.pop(handle, None) is None:
            return None
        flight.check_memory()
        result = flight.finish(flight)
    except Exception:
        _give_up(handle, flight)
        raise
    except BaseException:  # an interrupt: it may be waited for again
        _pending[handle] = pending
        raise
    try:
        pending.let_go()
    except BaseException:
        flight.drop()
        raise
    return result
