"""Changes of rank and size in an elastic job, and the functions that are called after them."""

import collections
import threading
import typing


class _Lost(typing.NamedTuple):
    old_rank: int
    rank: int
    old_size: int
    size: int
    epoch: int
    lost: tuple


class Change(_Lost):
    """Ranks were lost. `rank` and `size` are the present ones of this process, `old_rank` and `old_size` those before.
    epoch: how often the ranks of the job have changed. lost: the ranks that are gone, by their old numbers, ascending.
    joined: the ranks that are new, by their present numbers; none.
    """

    __slots__ = ()
    joined = ()


class Growth(typing.NamedTuple):
    """A Change in which ranks have joined, the last field, ascending. Others may have been lost. It is the same on the
    ranks that have joined themselves, but for old_rank: that is the number which rank() was there until now."""

    old_rank: int
    rank: int
    old_size: int
    size: int
    epoch: int
    lost: tuple
    joined: tuple


class Ranks(typing.NamedTuple):
    """The ranks at one time, as a process sees them. rank: its own. members: the MemberIds, by rank."""

    rank: int
    epoch: int
    members: tuple


def between(old, new):
    """The Change, or the Growth, from some Ranks to others."""
    lost = tuple(rank for rank, member in enumerate(old.members) if member not in new.members)
    joined = tuple(rank for rank, member in enumerate(new.members) if member not in old.members)
    change = old.rank, new.rank, len(old.members), len(new.members), new.epoch, lost
    return Growth(*change, joined) if joined else Change(*change)


class _Entry:
    """One call of on_change()."""

    def __init__(self, function):
        self.function = function


class _Thread(threading.local):
    """The changes that this thread has seen."""

    def __init__(self):
        self.depth = 0  # of Held
        self.is_telling = False
        self.untold = collections.deque()


_entries = []  # in order of registration; replaced, never changed
_lock = threading.Lock()
_thread = _Thread()


def on_change(function):
    """Calls function(change) with a Change, or a Growth, when rank and size of this process have changed. Returns a
    function that undoes this.

    The call comes from the thread whose wait for a collective has seen the change: after that wait, or at the end of
    the backward() or other horo call that it belongs to, when the results of this call are there. Functions are called
    in the order of registration, for one change after the other. If some raise an exception, the first one is raised
    when all have been called. A function may run collectives: all ranks that are left call theirs, and so do ranks that
    have joined, if the function is registered before that of horo.elastic.run."""
    global _entries
    if not callable(function):
        raise TypeError(f"on_change({function!r}); expected a function of one argument, the Change")
    entry = _Entry(function)
    with _lock:
        _entries = [*_entries, entry]

    def remove():
        global _entries
        with _lock:
            _entries = [one for one in _entries if one is not entry]

    return remove


def tell(change):
    """This thread has seen a change. Calls the functions, or leaves that to the Held that this thread is in."""
    _thread.untold.append(change)
    if _thread.depth == 0:
        _tell_all()


def _tell_all():
    if _thread.is_telling:  # a function has waited for a collective: the change comes after the present one
        return
    _thread.is_telling = True
    failure = None
    try:
        while _thread.untold:
            change = _thread.untold.popleft()
            for entry in _entries:
                try:
                    entry.function(change)
                except Exception as error:
                    failure = failure or error
    finally:
        _thread.is_telling = False
    if failure is not None:
        raise failure


class Held:
    """A context in which several waits belong to one call: the functions are called at its end."""

    __slots__ = ()

    def __enter__(self):
        _thread.depth += 1

    def __exit__(self, kind, *_):
        _thread.depth -= 1
        if _thread.untold and _thread.depth == 0 and (kind is None or issubclass(kind, Exception)):
            _tell_all()


held = Held()


class Growing(Held):
    """A Held for the place at which ranks join: whatever happens there, its end tells one change, from the Ranks
    `before` to the present ones. So ranks that were there and ranks that have joined call the functions equally often,
    with the same numbers. joins: this rank joins; its `before` is to be set to that of the ranks that give it the
    state, and until then it tells nothing."""

    __slots__ = ("before", "_world", "_joins", "_earlier")

    def __init__(self, world, joins=False):
        self._world, self._joins = world, joins
        self.before = None if joins else world.ranks()

    def __enter__(self):
        super().__enter__()
        if self._joins:
            _thread.untold.clear()  # of a session that has ended
        self._earlier = len(_thread.untold)
        return self

    def __exit__(self, kind, *rest):
        has_changed = self._joins or len(_thread.untold) > self._earlier
        while len(_thread.untold) > self._earlier:
            _thread.untold.pop()
        if has_changed and self.before is not None:
            _thread.untold.append(between(self.before, self._world.ranks()))
        super().__exit__(kind, *rest)
