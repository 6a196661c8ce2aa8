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
    """A Change in which ranks have joined, the last field, ascending. Others may have been lost. On a rank that has
    joined itself, old_rank and old_size are those that it had before, and `lost` is empty."""

    old_rank: int
    rank: int
    old_size: int
    size: int
    epoch: int
    lost: tuple
    joined: tuple


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
    when all have been called. A function may run collectives: all ranks that are left call theirs."""
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


def tell_joined(before, world, members):
    """This rank has joined: functions that run collectives are called on it as on the other ranks. before: the
    Topology that the script has seen until now. members: the MemberIds that have joined."""
    joined = tuple(rank for rank, member in enumerate(world.members) if member in members)
    now = world.topology
    _thread.untold.clear()  # the rank has the state only now
    tell(Growth(before.rank, now.rank, before.size, now.size, now.epoch, (), joined))


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
