"""Makes process groups: the default one, and those of its subsets, which their members make alone."""

import ctypes
import functools
import itertools
import time

import torch.distributed as dist

from horo import _default, _native
from horo._native import quick
from horo.errors import PeerLost
from horo.torch.distributed.flights import Flight
from horo.torch.distributed.meeting import join_world
from horo.torch.distributed.process_group import ProcessGroup

WORLD_SET = 0

_worlds = itertools.count(1)
_world = 0  # how often this process has made a default group, as every rank has; group names begin anew with each


def create_group(options, backend_options):
    """Called by torch.distributed on the members of a new group. options: its store, members and timeout."""
    global _world
    if backend_options is not None:
        raise ValueError(f"pg_options={backend_options!r}: the backend horo has no options; expected None")
    seconds = options.timeout.total_seconds()
    if dist.is_initialized():
        return subgroup(list(options.global_ranks_in_group), options.group_rank, options.group_id, seconds)
    session, is_ours = join_world(options.store, options.group_rank, options.group_size, seconds)
    _world = next(_worlds)
    place = options.group_rank, range(options.group_size)
    group = ProcessGroup(place, session, WORLD_SET, seconds, _unique(options.group_id))
    if is_ours:
        group.at_end(functools.partial(_end, session))
    return group


def _unique(group_id):
    return f"{_world}.{group_id}"


def _end(session):
    """The default group has ended, and with it the session that was started for it."""
    if _default.current() is session:
        _default.shutdown()


def subgroup(ranks, place, group_id, seconds):
    """A group of these ranks of the world, of which this process is number `place`."""
    session, name = _default.session(), _unique(group_id)
    if ranks != sorted(set(ranks)):
        raise ValueError(f"a process group of ranks {ranks}: the backend horo numbers ranks in ascending order")
    if len(ranks) == session.topology.size:
        return ProcessGroup((place, ranks), session, WORLD_SET, seconds, name)
    if len(ranks) == 1:  # each rank may make its own by the same call, and then torch gives all of them one name
        name = f"{name} of rank {ranks[0]}"
    number = _add_set(session, ranks, name, seconds)
    group = ProcessGroup((place, ranks), session, number, seconds, name)
    group.at_end(functools.partial(_remove_set, session, number))
    return group


def _add_set(session, ranks, name, seconds):
    """The number of a new process set, when all members have asked for it."""
    array = (ctypes.c_int32 * len(ranks))(*ranks)
    work = quick.horo_add_set_with(session.pointer, array, len(ranks), name.encode(), _native.SET_BY_MEMBERS)
    if work < 0:
        session.fail(work)
    flight = Flight(session, work)
    try:
        if not flight.wait_until(time.monotonic() + seconds):
            raise PeerLost(f"the process group {name!r} of ranks {ranks}: not all of them made it in {seconds:g} s")
        return flight.result()[0]
    finally:
        flight.drop()


def _remove_set(session, number):
    """Waits for no other member: each removes the set when it destroys its group."""
    if session.closed:
        return
    work = quick.horo_remove_set(session.pointer, number)
    if work > 0:
        session.drop([work])
