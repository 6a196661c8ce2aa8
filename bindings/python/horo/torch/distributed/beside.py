"""Groups beside a default group of another backend. The members of such a group alone meet, through its store, in a
session of their own; or the group is one of the session of an earlier one, if that has all of its members. So the
collectives of both have one order on all ranks, without which NCCL may wait for ever on one device.
"""

import atexit
import contextlib
import os

from horo._session import Session
from horo.torch.distributed.meeting import agree, settings_among

_living = []  # Shared


class Shared:
    """A session, and the groups of it that live."""

    def __init__(self, session, ranks, name):
        """ranks: of the default group, by rank of the session. name: the same on all of them."""
        self.session, self.ranks, self.name = session, ranks, name
        self._users = 0  # groups that live
        atexit.register(session.close)
        _living.append(self)

    def has(self, ranks):
        """Whether a group of these ranks can be one of it."""
        return not self.session.waits.has_failed and set(ranks) <= set(self.ranks)

    @contextlib.contextmanager
    def used(self):
        """A context in which a group may be added."""
        self._users += 1
        try:
            yield
        finally:
            self._end()

    def add(self, group):
        self._users += 1
        group.at_end(self._end)
        return group

    def _end(self):
        self._users -= 1
        if self._users == 0:
            _living.remove(self)
            atexit.unregister(self.session.close)
            self.session.close()


def shared_by(options, name, seconds):
    """The Shared of a new group. options: its store, members and timeout. name: of the group, the same on all members.
    All members call it; blocks."""
    if "HORO_RANK" in os.environ:
        raise ValueError(
            "a process group of the backend horo beside a default group of another backend: call horo.init() first, on "
            "all ranks"
        )
    place, ranks = options.group_rank, tuple(options.global_ranks_in_group)
    known = agree(options.store, (place, len(ranks)), [one.name for one in _living if one.has(ranks)], seconds)
    common = [name for name in known[0] if all(name in names for names in known)]
    if common:
        return next(one for one in _living if one.name == common[0])
    exchange, settings = settings_among(options.store, place, len(ranks), seconds)
    session = Session((f"{name}={value}" for name, value in settings.items()), exchange)
    return Shared(session, ranks, f"{name} of ranks {ranks}")
