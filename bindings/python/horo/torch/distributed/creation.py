"""Makes process groups: the default one, and those of its subsets, which their members make alone."""

import ctypes
import functools
import itertools
import sys
import time

import torch.distributed as dist

from horo import _default, _native
from horo._arguments import encoded
from horo._native import quick
from horo.errors import PeerLost
from horo.torch import marks, rounds
from horo.torch.distributed import builtin_hooks
from horo.torch.distributed.beside import shared_by
from horo.torch.distributed.flights import Flight
from horo.torch.distributed.meeting import join_world
from horo.torch.distributed.process_group import ProcessGroup

WORLD_SET = 0
ENDS_WITH_A_MEMBER = (
    "horo: elastic job: DistributedDataParallel and other calls of torch.distributed end with the first rank that is "
    "lost (PeerLost); horo.torch.DistributedOptimizer goes on (docs/torch_distributed.md)"
)

_worlds = itertools.count(1)
_world = 0  # how often this process has made a default group, as every rank has; group names begin anew with each


def create_group(options, backend_options):
    """Called by torch.distributed on the members of a new group. options: its store, members and timeout."""
    if backend_options is not None:
        raise ValueError(f"pg_options={backend_options!r}: the backend horo has no options; expected None")
    seconds = options.timeout.total_seconds()
    builtin_hooks.replace()
    group = _create(options, seconds)
    rounds.wrap_backward()
    marks.install_for_groups(group.session)
    return group


def _create(options, seconds):
    global _world
    if dist.is_initialized():
        if _default.current() is None:
            return _beside(options, seconds)
        ranks = list(options.global_ranks_in_group)
        return subgroup(_default.session(), ranks, options.group_rank, options.group_id, seconds)
    session, is_ours = join_world(options.store, options.group_rank, options.group_size, seconds)
    _world = next(_worlds)
    place = options.group_rank, range(options.group_size)
    group = ProcessGroup(place, session, WORLD_SET, seconds, _unique(options.group_id))
    if session.is_elastic and session.topology.epoch == 0 and session.topology.rank == 0:
        print(ENDS_WITH_A_MEMBER, file=sys.stderr, flush=True)
    if is_ours:
        group.at_end(functools.partial(_end, session))
    return group


def _beside(options, seconds):
    """A group whose default group is of another backend."""
    name = _unique(options.group_id)
    shared = shared_by(options, name, seconds)
    ranks = [shared.ranks.index(rank) for rank in options.global_ranks_in_group]
    with shared.used():
        return shared.add(subgroup(shared.session, ranks, options.group_rank, options.group_id, seconds))


def _unique(group_id):
    return f"{_world}.{group_id}"


def _end(session):
    """The default group has ended, and with it the session that was started for it."""
    if _default.current() is session:
        _default.shutdown()


def subgroup(session, ranks, place, group_id, seconds):
    """A group of these ranks of the session's world, of which this process is number `place`."""
    name = _unique(group_id)
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
    work = quick.horo_add_set_with(
        session.pointer, array, len(ranks), encoded(name, "group name"), _native.SET_BY_MEMBERS
    )
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
