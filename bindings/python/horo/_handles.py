"""Handles: ints that the *_async calls return; poll and synchronize.

The memory of a work is kept alive until synchronize(), or, if the handle is dropped, until the work has ended.
"""

import itertools

from horo import _default
from horo._changes import held
from horo.errors import HoroError


class Pending:
    """Works that were started together, and how synchronize() makes their result."""

    __slots__ = ("session", "works", "finish", "watched")

    def __init__(self, session, works, finish, watched):
        self.session = session
        self.works = works
        self.finish = finish  # finish(pending) makes the result after the works have succeeded
        self.watched = watched  # (name, memory, address, bytes, place) of memory in flight

    def flight(self):
        """A Pending of only these works, which stays valid when this object is reused."""
        return self

    def let_go(self):
        """Releases works that have ended and were waited for."""
        self.session.release(self.works)

    def drop(self):
        """Marks the works as not waited for. Never blocks or locks; may be called twice."""
        self.session.drop(self.works)

    def check_memory(self):
        """Raises HoroError if the memory was moved or resized since the submit."""
        for name, memory, address, nbytes, place in self.watched:
            if place(memory) != address or memory.nbytes != nbytes:
                raise HoroError(moved_text(name, nbytes, memory.nbytes))


_pending = {}  # the handle's number: Pending; not the handle itself, whose __del__ detects that the caller drops it
_numbers = itertools.count(1)  # never reused, also not by another session


class Handle(int):
    """The int that the *_async calls return."""

    __slots__ = ()

    def __del__(self, pending=_pending):
        dropped = pending.get(self)
        if dropped is not None:
            dropped.drop()  # before the pop: an interrupt in between must not free memory in flight
            pending.pop(self, None)

    def wait(self):
        """synchronize(self)"""
        return synchronize(self)

    def __copy__(self):
        return self  # two handles would drop the work twice

    def __deepcopy__(self, _):
        return self

    def __reduce__(self):
        return int, (int(self),)


class Joint:
    """Several handles with one combined result. A call waits for them. synchronize() and poll() accept it too."""

    def __init__(self, handles, finish):
        self._handles = handles
        self._finish = finish  # finish(results)

    def __call__(self):
        with held:  # functions of on_change() are called at the end
            return self._finish([synchronize(handle) for handle in self._handles])

    def has_ended(self):
        return all(poll(handle) for handle in self._handles)


def moved_text(name, nbytes, nbytes_now):
    """The message for a tensor whose memory has changed since it was submitted."""
    now = "its address has changed" if nbytes == nbytes_now else f"it has {nbytes_now} bytes now"
    return (
        f"{name or 'an unnamed tensor'} had {nbytes} bytes when rank {_default.rank()} submitted it, and {now}: its "
        "memory was resized or replaced while it was in flight. The result is lost on this rank, and memory that was "
        "freed in the meantime may have been written. Do not change the tensor's size or storage before its handle is "
        "synchronized"
    )


def handle_of(session, works, finish, watched=()):
    return handle_for(Pending(session, works, finish, watched))


def handle_for(pending):
    number = next(_numbers)
    _pending[number] = pending
    return Handle(number)


def is_in_flight(number):
    """Whether a work of the handle of this number has not ended. False: of a handle that was synchronized or
    dropped."""
    found = _flight_of(number)
    try:
        return found is not None and not all(map(found[1].session.has_ended, found[1].works))
    except ValueError:  # another thread has synchronized it
        return False


def forget(handle):
    """Removes a handle whose work was not submitted."""
    del _pending[handle]


def _flight_of(handle):
    """The Pending of this handle, and its flight; None if the handle is unknown."""
    pending = _pending.get(handle)
    if pending is None:
        return None
    flight = pending.flight()
    # A Repeat may already serve its next call, if another thread has synchronized this handle in the meantime.
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


def wait_until(handle, until):
    """Waits for the works of a handle at most until this time of time.monotonic(). Returns whether they have ended."""
    _, flight = _flight_of(handle)
    return flight.session.wait_until(flight.works, until)


def synchronize(handle):
    """Waits for a work and returns its result; None for a handle that is unknown or was synchronized before.

    If several threads wait for one handle, the first one gets the result."""
    if isinstance(handle, Joint):
        return handle()
    if not isinstance(handle, (int, type(None))):
        raise TypeError(
            f"horo.synchronize: expected a handle, which the calls with _async in their names return, not a "
            f"{type(handle).__name__}; the others have waited for their result"
        )
    found = _flight_of(handle)
    if found is None:
        return None
    if found[1].session.is_elastic:
        with held:  # functions of on_change() find the result in its place
            return _synchronize(handle, *found)
    return _synchronize(handle, *found)


def _synchronize(handle, pending, flight):
    try:
        flight.session.wait(flight.works)
    except Exception as error:  # not KeyboardInterrupt: the work continues, and may be waited for again
        if isinstance(error, ValueError) and handle not in _pending:
            return None  # another thread took the result, and the work has been released
        _give_up(handle, flight)
        raise
    return _take(handle, pending, flight)


def _give_up(handle, flight):
    """Drops works that may still be in flight, because a signal handler can raise any exception."""
    flight.drop()  # before the pop, as in __del__
    _pending.pop(handle, None)
    flight.session.sweep()  # usually they have ended


def _take(handle, pending, flight):
    """The result of works that have succeeded. The thread that removes the handle gets it; other threads get None."""
    try:
        if _pending.pop(handle, None) is None:
            return None
        flight.check_memory()
        result = flight.finish(flight)
    except Exception:
        _give_up(handle, flight)
        raise
    except BaseException:  # KeyboardInterrupt: the handle may be waited for again
        _pending[handle] = pending
        raise
    try:
        pending.let_go()
    except BaseException:
        flight.drop()
        raise
    return result
