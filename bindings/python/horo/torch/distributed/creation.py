"""Makes process groups: the default one, and those of its subsets."""

import functools

import torch.distributed as dist

from horo import _default
from horo.torch.distributed.meeting import join_world
from horo.torch.distributed.process_group import ProcessGroup

WORLD_SET = 0


def create_group(options, backend_options):
    """Called by torch.distributed on the members of a new group. options: its store, members and timeout."""
    if backend_options is not None:
        raise ValueError(f"pg_options={backend_options!r}: the backend horo has no options; expected None")
    seconds = options.timeout.total_seconds()
    if not dist.is_initialized():
        session, is_ours = join_world(options.store, options.group_rank, options.group_size, seconds)
        ranks = range(options.group_size)
        group = ProcessGroup((options.group_rank, ranks), session, WORLD_SET, seconds, options.group_id)
        if is_ours:
            group.at_end(functools.partial(_end, session))
        return group
    return _subgroup(options, seconds)


def _end(session):
    """The default group has ended, and with it the session that was started for it."""
    if _default.current() is session:
        _default.shutdown()


def _subgroup(options, seconds):
    session = _default.session()
    ranks = list(options.global_ranks_in_group)
    if len(ranks) == session.topology.size:
        number = WORLD_SET
    else:
        raise NotImplementedError(f"not yet: a process group of ranks {ranks}; expected all ranks")
    return ProcessGroup((options.group_rank, ranks), session, number, seconds, options.group_id)
