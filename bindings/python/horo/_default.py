"""The process's default session: created by init(), ended by shutdown(), used by every call without a session."""

import atexit
import contextlib
import functools
import os
import threading
import warnings

from horo import _descent, _exits
from horo._session import Session
from horo.errors import HoroError, ReplicasDiffer, ShutDown

EXIT_WAIT_S = 2  # at exit, for a shutdown or an init that runs in another thread

_session = None
_job = None  # the variables that describe this rank, of the last session; see _descent
_between = None  # the Topology that rank() and size() have while this process joins: it has no session then
_inherited = None  # in a forked child: the parent's session, which must not be used
_inherited_job = None  # its _job
_lock = threading.RLock()  # held while the session is created or ended
_before_shutdown = []  # functions of the session


def session():
    """The default session. Raises ValueError if there is none, ShutDown in a forked child, HoroError in another process
    that a rank has started."""
    if _session is None:
        if _inherited is not None:
            raise ShutDown(_forked_text())
        if (parent := _descent.parent(_descent.job())) is not None:
            parent.check()
        raise ValueError("Horo has not been initialized; use horo.init().")
    return _session


def begin(exchange, settings, prepare):
    """Creates the default session, if there is none, and runs prepare(). exchange: see Session; may be None."""
    global _session, _job
    with _lock:
        if _session is None and "HORO_RANK" not in (settings or {}):
            _descent.find_place()
        job = _descent.job(settings)
        if _session is None:
            _check_is_rank(job)
            _descent.check_guard(job)
            _descent.check_key()
            _session = Session((f"{name}={value}" for name, value in (settings or {}).items()), exchange)
            _job = job
            _descent.mark(_session.topology, job)
            _session.world.changed = functools.partial(_descent.mark, described=job)
            _exits.watch(current)
            try:
                prepare()
            except BaseException:
                shutdown()
                raise
        elif settings:
            raise ValueError("horo.init(settings=...): horo is initialized already; call horo.shutdown() first")


def join(terms):
    """Of a process that was started to join a job: its provisional session ends, and it waits until the ranks of the
    job come to a border. Returns the session of the job, which is the default one from then on. terms: see can_grow().
    Blocks; a signal may interrupt it. Raises PeerLost, with the reason, if the job refuses this rank or ends."""
    with _lock:
        provisional = session()
        if not provisional.is_joiner:
            raise ValueError(f"horo.join: rank {provisional.topology.rank} was not started by horo run to join a job")
        with _keeping(provisional.topology):
            _end()
            return _join_with(provisional, terms)


def rejoin(variables, terms):
    """Of a rank that was evicted from an elastic job, as it did not answer for a while: ends its session, and joins the
    job again, as join() does. variables: of Session.ask_to_rejoin()."""
    global _job
    with _lock:
        evicted = session()
        with _keeping(evicted.topology):
            with contextlib.suppress(HoroError):  # what ends with a session cannot be exchanged in this one
                _end()
            os.environ.update(variables)
            _job = _descent.job()
            return _join_with(evicted, terms)


@contextlib.contextmanager
def _keeping(topology):
    """Other threads may ask for rank and size meanwhile, to log something."""
    global _between
    _between = topology
    try:
        yield
    finally:
        _between = None


def _join_with(before, terms):
    """before: the session that this process had until now."""
    global _session
    _session = Session(before.settings, None, terms)
    _session.take_callbacks(before)
    _descent.mark(_session.topology, _job)
    _session.world.changed = functools.partial(_descent.mark, described=_job)
    return _session


def before_shutdown(function):
    """function(session) is called at the beginning of each shutdown. What it raises is raised after the session's
    end."""
    _before_shutdown.append(function)


def _check_is_rank(job):
    """Raises the reason if this process was started by a rank of the same job."""
    if _inherited is not None and _inherited_job == job:
        raise ShutDown(_forked_text())
    if (parent := _descent.parent(job)) is not None:
        parent.check()


def shutdown():
    """Leaves the job in an orderly way; unfinished works fail with ShutDown, also in other threads that wait for them.

    init() may follow. Does nothing if there is no session, and in a forked child.
    """
    _end()


def _end(at_exit=False):
    global _session
    with _lock:
        try:
            for function in _before_shutdown if _session is not None else ():
                function(_session)
        finally:
            ending, _session = _session, None
            if ending is not None:
                _descent.unmark()
                ending.close(at_exit)


def is_initialized():
    """Whether a session exists. False in a forked child."""
    return _session is not None


def current():
    """The default session, or None."""
    return _session


def _in_child():
    """A fork copies the session's memory but not its threads, and the lock in its current state."""
    global _session, _inherited, _inherited_job, _lock
    _lock = threading.RLock()
    if _session is not None:
        _inherited, _inherited_job, _session = _session, _job, None


os.register_at_fork(after_in_child=_in_child)


def _forked_text():
    return (
        f"this process (pid {os.getpid()}) was forked from rank {_inherited.topology.rank} (pid {_inherited.pid}) "
        "after horo.init(), and horo works only in that process. A process that is to be a rank of another job is best "
        "started with multiprocessing's 'spawn' or with horo run; set that job's HORO_RANK, HORO_SIZE and HORO_ADDR "
        "before horo.init()"
    )


def _topology():
    """Readable in the processes that a rank has started too, because samplers and seeds depend on it."""
    if (present := _session) is not None:  # once: another thread may end it
        return present.topology
    if (before := _between) is not None:
        return before
    if _inherited is not None:
        return _inherited.topology
    parent = _descent.parent(_descent.job())
    return session().topology if parent is None else parent.topology


def rank():
    """This rank's number in the world, from 0."""
    return _topology().rank


def size():
    """The number of ranks in the world."""
    return _topology().size


def members():
    """The numbers that the present ranks had when they came to the job, in the order of the ranks. In an elastic job
    such a number belongs to one rank as long as the job runs; rank() may change."""
    return session().world.members


def is_elastic():
    """Whether ranks may be lost and join while the job runs."""
    return session().is_elastic


def local_rank():
    """This rank's number among the ranks of its host; used to select a device."""
    return _topology().local_rank


def local_size():
    """The number of ranks on this rank's host."""
    return _topology().local_size


def cross_rank():
    """This rank's number among the ranks of all hosts that have the same local_rank."""
    return _topology().cross_rank


def cross_size():
    """The number of ranks that have the same local_rank."""
    return _topology().cross_size


def is_homogeneous():
    """Whether all hosts have the same number of ranks."""
    return bool(_topology().is_homogeneous)


def counters():
    """All counters since init, as a dict; docs/counters.md describes each key."""
    return session().counters()


def ready_times():
    """When each rank submitted each tensor of the last step: {name: [milliseconds by rank]}, since the first submit.

    Shows which rank delays the others. Rank 0 has the times of all ranks; the other ranks have only their own, and None
    for all others.
    """
    return session().ready_times()


@atexit.register
def _leave():
    """Shuts the session down. An exception that ended the program is sent to the other ranks first. In an elastic job
    the exit code then tells whether this rank has failed."""
    _exits.send_if_failed()
    if _lock.acquire(timeout=EXIT_WAIT_S):
        try:
            _end(at_exit=True)
        except ReplicasDiffer as error:
            warnings.warn(str(error), stacklevel=2)
        except HoroError:  # the job has ended before this rank; calls that were waiting have raised it
            pass
        finally:
            _lock.release()
