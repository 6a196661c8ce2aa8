"""The process's default session: what init() makes, shutdown() ends and every call without a session uses."""

import atexit
import sys

from horo._session import Session
from horo.errors import HoroError, not_yet

_session = None
_previous_hook = None


def session():
    """The default session; ValueError where there is none."""
    if _session is None:
        raise ValueError("Horo has not been initialized; use horo.init().")
    return _session


def init(comm=None, process_sets=None, *, settings=None):
    """Joins the job that the HORO_* variables describe, or torchrun, mpirun or srun; else this process is a world of
    its own.

    settings: a mapping such as {"HORO_BUCKET_BYTES": 0} that takes precedence over the environment. A second init
    without a shutdown in between does nothing. Blocks until all ranks are there, up to HORO_START_TIMEOUT_MS.
    """
    init_with(None, comm, process_sets, settings)


def init_with(exchange, comm, process_sets, settings):
    """init() with an exchange (see Session) for ranks that need one."""
    global _session
    if comm is not None:
        raise not_yet("init(comm=...); the world is what HORO_RANK, HORO_SIZE and HORO_ADDR say")
    if process_sets:
        raise not_yet("init(process_sets=...); the only process set is the world")
    if _session is not None:
        if settings:
            raise ValueError("horo.init(settings=...): horo is initialized already; call horo.shutdown() first")
        return
    _session = Session((f"{name}={value}" for name, value in (settings or {}).items()), exchange)
    _watch_exceptions()


def shutdown():
    """Leaves the job in good order; unfinished works fail with ShutDown. init() may follow."""
    global _session
    ending, _session = _session, None
    if ending is not None:
        ending.close()


def is_initialized():
    return _session is not None


def _watch_exceptions():
    """An exception that ends this rank is told to all others, who would wait for it otherwise."""
    global _previous_hook
    if sys.excepthook is not _on_exception:
        _previous_hook, sys.excepthook = sys.excepthook, _on_exception


def _on_exception(kind, value, trace):
    ending = _session
    if ending is not None:
        try:
            ending.abort(f"rank {ending.topology.rank}: {kind.__name__}: {value}")
        except Exception:  # the user's exception is the one to show
            pass
    _previous_hook(kind, value, trace)


def rank():
    """My number in the world, from 0."""
    return session().topology.rank


def size():
    """How many ranks the world has."""
    return session().topology.size


def local_rank():
    """My number among the ranks of my host; picks the device."""
    return session().topology.local_rank


def local_size():
    """How many ranks my host has."""
    return session().topology.local_size


def cross_rank():
    """My number among the ranks with my local_rank on all hosts."""
    return session().topology.cross_rank


def cross_size():
    """How many ranks have my local_rank."""
    return session().topology.cross_size


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
    try:
        shutdown()
    except HoroError:  # the job ended before this rank did; whoever waited for something knows
        pass
