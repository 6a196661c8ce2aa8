"""The ranks of the job as this process sees them. In an elastic job they change, but for the process only at a wait."""

import collections
import ctypes
import threading
import weakref

from horo import _changes, _native
from horo._native import quick
from horo._session_start import error_of


class World:
    """Rank, size and members as a script sees them, and the numbers of the ranks in process sets."""

    def __init__(self, pointer):
        self._pointer = pointer
        self._lock = threading.Lock()
        self._latest = _native.Topology(ctypes.sizeof(_native.Topology))
        self.topology, self.members = self._read()  # members: the ranks at the start, by present rank
        self.is_elastic = self.topology.min_size > 0
        self.sets = weakref.WeakValueDictionary()  # number: ProcessSet
        self.joins = collections.Counter()  # number of a process set: how often its members have joined; see _growth
        self.changed = lambda topology: None  # called after a change, before the functions of on_change()

    def _read(self):
        """A new topology and its members."""
        while True:
            topology = _native.Topology(ctypes.sizeof(_native.Topology))
            self._check(quick.horo_get_topology(self._pointer, topology))
            ids = (ctypes.c_uint32 * topology.size)()
            count = self._check(quick.horo_get_members(self._pointer, ids, topology.size))
            if count == topology.size and self._epoch() == topology.epoch:
                return topology, tuple(ids)

    def _check(self, status):
        if status < 0:
            raise error_of(status, self._pointer)
        return status

    def _epoch(self):
        self._check(quick.horo_get_topology(self._pointer, self._latest))
        return self._latest.epoch

    def see(self):
        """Called after a wait in an elastic job: from now on the process sees the present ranks."""
        if self._epoch() == self.topology.epoch:
            return
        with self._lock:
            change = self._replace()
        if change is not None:
            _changes.tell(change)

    def ranks(self):
        """The Ranks that the process sees."""
        return _changes.Ranks(self.topology.rank, self.topology.epoch, self.members)

    def _replace(self):
        old = self.ranks()
        new, ids = self._read()
        if new.epoch == old.epoch:  # another thread was faster
            return None
        for process_set in list(self.sets.values()):
            process_set.renumber(ids)
        self.topology, self.members = new, ids
        self.changed(new)
        return _changes.between(old, self.ranks())
