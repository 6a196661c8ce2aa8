"""The process's default session: what init() makes, shutdown() ends and every call without a session uses."""

import atexit
import os
import threading

from horo import _exits
from horo._session import Session
from horo.errors import HoroError, ShutDown

EXIT_PATIENCE_S = 2  # at exit, for a shutdown or an init that another thread has begun

_session = None
_inherited = None  # in a forked child: the parent's session, which is not ours
_lock = threading.RLock()  # held by whoever makes or ends the session


def session():
    """The default session; ValueError where there is none, ShutDown in a forked child."""
    if _session is None:
        if _inherited is not None:
            raise ShutDown(_forked_text())
        raise ValueError("Horo has not been initialized; use horo.init().")
    return _session


def begin(exchange, settings, prepare):
    """Makes the default session, if there is none, and runs prepare(). exchange: see Session; for ranks that need one."""
    global _session
    with _lock:
        if _inherited is not None and _inherited.job == _exits.job():
            raise ShutDown(_forked_text())
        if _session is None:
            _session = Session((f"{name}={value}" for name, value in (settings or {}).items()), exchange)
            _exits.watch(current)
            try:
                prepare()
            except BaseException:
                shutdown()
                raise
        elif settings:
            raise ValueError("horo.init(settings=...): horo is initialized already; call horo.shutdown() first")


def shutdown():
    """Leaves the job in good order; unfinished works fail with ShutDown, also where another thread waits for them.

    init() may follow. Does nothing where there is no session, and in a forked child.
    """
    global _session
    with _lock:
        ending, _session = _session, None
        if ending is not None:
            ending.close()


def is_initialized():
    """Whether there is a session; a forked child has none."""
    return _session is not None


def current():
    """The default session, or None."""
    return _session


def _in_child():
    """A fork copies the memory of the session but none of its threads, and the lock in whatever state it was."""
    global _session, _inherited, _lock
    _lock = threading.RLock()
    if _session is not None:
        _inherited, _session = _session, None


os.register_at_fork(after_in_child=_in_child)


def _forked_text():
    return (
        f"this process (pid {os.getpid()}) was forked from rank {_inherited.topology.rank} (pid {_inherited.pid}) "
        "after horo.init(), and horo works in that process alone. Start a process that needs horo anew, with "
        "multiprocessing's 'spawn'; or set HORO_RANK, HORO_SIZE and HORO_ADDR of another job here before horo.init()"
    )


def _topology():
    """Plain facts, which a forked child may go on reading: samplers and seeds are made from them."""
    return (_inherited if _session is None and _inherited is not None else session()).topology


def rank():
    """My number in the world, from 0."""
    return _topology().rank


def size():
    """How many ranks the world has."""
    return _topology().size


def local_rank():
    """My number among the ranks of my host; picks the device."""
    return _topology().local_rank


def local_size():
    """How many ranks my host has."""
    return _topology().local_size


def cross_rank():
    """My number among the ranks with my local_rank on all hosts."""
    return _topology().cross_rank


def cross_size():
    """How many ranks have my local_rank."""
    return _topology().cross_size


def counters():
    """All counters since init as a dict; docs/counters.md says what each key means."""
    return session().counters()


def ready_times():
    """When each rank had each tensor of the last step ready: {name: [milliseconds by rank]}, since the first of all.

    Shows who holds up whom. Rank 0 knows all ranks; every other knows itself alone, and None stands for the others.
    """
    return session().ready_times()


@atexit.register
def _leave():
    """Says goodbye, unless an exception ended the program: then the others are told, and nobody is waited for."""
    _exits.tell_if_failed()
    if _lock.acquire(timeout=EXIT_PATIENCE_S):
        try:
            shutdown()
        except HoroError:  # the job ended before this rank did; whoever waited for something knows
            pass
        finally:
            _lock.release()
