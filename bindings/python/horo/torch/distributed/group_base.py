"""What all operations of a process group share: the session, the members, and the start of a work."""

import datetime
import functools

import torch
import torch.distributed as dist

from horo import _native
from horo.errors import PeerLost, ShutDown
from horo.torch import marks
from horo.torch.distributed.completion import Lane
from horo.torch.distributed.flights import Flights
from horo.torch.distributed.work import FOREVER_S, Work

CPU = torch.device("cpu")
_WITHOUT = (None, None)


class GroupBase(dist.ProcessGroup):
    """See ProcessGroup."""

    def __init__(self, place, session, number, timeout_s, name):
        """place: (rank in the group, ranks of the group in the world, by rank in the group). number: of the process
        set."""
        super().__init__(place[0], len(place[1]))
        self._group_name, self._group_desc = name, ""
        self._place, self._ranks = place[0], tuple(place[1])
        self._count = len(self._ranks)
        self.described = f"the process group {name!r}"
        self.timeout_s = timeout_s
        self.session = session
        self._epoch, self._members = session.topology.epoch, session.world.members
        self._number = number
        self._flights = Flights(session, name, number)
        self._coalesced = None
        self.lane = Lane("horo_futures")
        self._at_end = []  # functions, called by shutdown()

    def rank(self):
        return self._place

    def size(self):
        return self._count

    def getBackendName(self):
        return "horo"

    name = _get_backend_name = getBackendName

    def getRank(self):
        return self._place

    def getSize(self):
        return self._count

    def getGroupName(self):
        return self._group_name

    def setGroupName(self, name):
        self._group_name = name

    def getGroupDesc(self):
        return self._group_desc

    def setGroupDesc(self, text):
        self._group_desc = text

    @property
    def _device_types(self):
        return [CPU]

    def _get_backend(self, device):
        if torch.device(device).type not in ("cpu", "cuda"):
            raise RuntimeError(f"No backend type associated with device type {torch.device(device).type}")
        return self

    supports_coalescing = False
    supports_splitting = False
    supports_time_estimate = False
    supports_shrinking = False

    def supports_tensor_alloc(self, device):
        """Whether the group has memory of its own for the collectives of FSDP2; else FSDP2 takes torch's. It asks if
        set_allocate_memory_from_process_group_for_comm() was called."""
        return False

    def check_members(self):
        """Raises PeerLost in an elastic job that has lost a member: a group of torch cannot go on without it."""
        session = self.session
        if session is None or not session.is_elastic or session.topology.epoch == self._epoch:
            return
        lost = [rank for rank, member in enumerate(self._members) if member not in session.world.members]
        named = f"rank{'s' * (len(lost) > 1)} {', '.join(map(str, lost))}" if lost else "a member"
        raise PeerLost(
            f"{self.described} has lost {named} (ranks of epoch {self._epoch}, in which the group was made): the "
            f"elastic job is in epoch {session.topology.epoch}. destroy_process_group() and a new init_process_group() "
            "make a group of the present ranks",
            lost[0] if lost else -1,
        )

    def set_timeout(self, timeout):
        """The timeout of later operations that name none."""
        self.timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def _seconds(self, options):
        """The timeout of an operation. options: of torch.distributed, a timedelta, or None."""
        timeout = options if isinstance(options, datetime.timedelta) else getattr(options, "timeout", None)
        seconds = 0 if timeout is None else timeout.total_seconds()
        return min(self.timeout_s if seconds <= 0 else seconds, FOREVER_S)

    def _start(self, kind, fields, memory=_WITHOUT, splits=None):
        if self.session is None:
            raise ShutDown(f"{self.described} was destroyed")
        self.check_members()
        marks.submits(self.session)
        return self._flights.start(kind, fields, memory, splits)

    def names_of_callbacks(self, words, call):
        """A function that returns what a callback is known by that is attached now. words: of the operation. call:
        (kind, number), see Names, or None. The function holds neither the work nor the group."""
        return (lambda: words) if call is None else functools.partial(self._flights.names.of_callbacks, *call)

    def _work(self, call, flights, results, options=None):
        """See Work."""
        work = Work(self, call, flights, results, self._seconds(options))
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _start_coalescing(self, device=None):
        self._coalesced = []

    def _end_coalescing(self, device=None):
        """One work for all that were started since _start_coalescing()."""
        works, self._coalesced = self._coalesced or [], None
        outputs = [tensor for work in works for tensor in work.result() or ()]
        return Work(self, "a coalesced operation", works, (outputs, None), self.timeout_s)

    def barrier(self, opts=None):
        flight = self._start(("barrier",), {"kind": _native.BARRIER, "dtype": _native.UINT8})
        return self._work("barrier", [flight], ([], None), opts)

    def at_end(self, function):
        """shutdown() calls the function."""
        self._at_end.append(function)

    def shutdown(self):
        """The group is destroyed. Its operations in flight fail if it is the default group."""
        endings, self._at_end = self._at_end, []
        self.session = None
        for ending in endings:
            ending()

    def abort(self):
        """Ends the job on all ranks of the world."""
        if self.session is not None:
            self.session.abort(f"{self.described}: abort() was called", "abort of a process group")

    def __repr__(self):
        return f"<horo.torch.distributed.ProcessGroup: {self.described}, rank {self._place} of {self._count}>"
