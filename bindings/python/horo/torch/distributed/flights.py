"""Flights: collectives of horo that were submitted, under names that recur.

Names (words.py) are counted in the order of the program and never by what is free, because that depends on timing. From
the second use of a name on, the ranks agree on it by a bit. If the name is still in flight, the call is submitted as
soon as the name is free.
"""

import functools
import threading
import time

from horo import _native
from horo._session_keys import array_of
from horo._specs import Spec
from horo._submissions import is_on_device
from horo.errors import HoroError
from horo.torch import devices
from horo.torch.distributed.completion import Lane, cause, main_has_ended
from horo.torch.distributed.words import Names

MOST_SPECS = 4096  # prepared specs of a group
VARYING = (_native.ALL_GATHER, _native.GATHER, _native.SCATTER, _native.ALL_TO_ALL)  # kinds: need room for the result
SLICE_S = 0.1


class Flight:
    """A submitted collective."""

    __slots__ = ("_session", "_work", "_works", "_ended", "_names", "call", "is_on_device", "numbers")

    def __init__(self, session, work, names=None, numbers=frozenset()):
        """names: those of the group, for the text of an error. numbers: of its device; of the host none."""
        self._session, self._work, self._works, self._ended = session, work, array_of((work,)), False
        self._names, self.call, self.is_on_device, self.numbers = names, None, bool(numbers), numbers

    def wait_until(self, until):
        """Whether it has ended at this time of time.monotonic(). Raises its error."""
        if not self._ended:
            self._ended = self._explained(self._session.wait_until_ended, until)
        return self._ended

    def follow_until(self, until):
        """Whether the current streams wait for its end, or it has ended, at this time of time.monotonic(). Raises its
        error."""
        if not self.is_on_device or self._ended:
            return self.wait_until(until)
        return self._explained(self._session.wait_until, until)

    def _explained(self, wait, until):
        try:
            return wait(self._works, until)
        except HoroError as error:
            if self._names is not None:
                error.args = (self._names.explain(str(error), self.call), *error.args[1:])
            raise

    def unkeep(self):
        """The current streams wait for its end: its memory may be used again where they are those of its tensors."""
        if self.is_on_device:
            self._session.unkeep(self._work)

    def frees_name(self):
        """Whether its name may be submitted again."""
        if not self.is_on_device:
            return self.has_ended()
        try:
            return self._ended or self._session.waits.until_begun(self._works, 0)
        except (HoroError, ValueError) as error:  # it has failed, or was released
            error.__traceback__ = None  # its frames hold the error and the caller's tensors, until the next collection
            return True

    def has_ended(self):
        if self._ended:
            return True
        try:
            return self._session.has_ended(self._work)
        except ValueError:  # it has ended, and was released
            return True

    def settle(self, seconds):
        """Waits for a moment until its name is free, and raises nothing."""
        try:
            if self.is_on_device:
                self._session.waits.until_begun(self._works, time.monotonic() + seconds)
            else:
                self.wait_until(time.monotonic() + seconds)
        except Exception:  # a failed flight frees its name, and its waiter gets the error
            pass

    def result(self):
        """The numbers of rows by member."""
        result = self._session.result(self._work)
        return result.counts[: result.count_count]

    def drop(self):
        """The result is not needed. May be called twice."""
        if self._ended:
            self._session.release(self._works)
        else:
            self._session.drop(self._works)


class Deferred:
    """A collective that is submitted when the flight before it has ended."""

    def __init__(self, before, start, numbers):
        self._before, self._start = before, start
        self.call, self.is_on_device, self.numbers = None, bool(numbers), numbers
        self._started = threading.Event()
        self._flight, self._error = None, None
        self._is_dropped = False

    def run(self):
        """The job of a lane."""
        try:
            while not self._before.frees_name():
                if main_has_ended():
                    return
                self._before.settle(SLICE_S)
            self._flight = self._start()
        except Exception as error:
            self._error = error
        self._before = self._start = None
        self._started.set()
        if self._is_dropped:  # asked after the flight is stored: a finalizer may drop in between, and has no lock
            self.drop()

    def wait_until(self, until):
        return self._has_started(until) and self._flight.wait_until(until)

    def follow_until(self, until):
        return self._has_started(until) and self._flight.follow_until(until)

    def _has_started(self, until):
        while not self._started.is_set():
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._started.wait(min(left, SLICE_S))
        if self._error is not None:
            raise self._error
        return True

    def unkeep(self):
        self._flight.unkeep()

    def frees_name(self):
        return self._started.is_set() and (self._flight is None or self._flight.frees_name())

    def has_ended(self):
        return self._started.is_set() and (self._flight is None or self._flight.has_ended())

    def settle(self, seconds):
        if self._started.wait(seconds) and self._flight is not None:
            self._flight.settle(seconds)

    def result(self):
        return self._flight.result()

    def drop(self):
        self._is_dropped = True
        if self._flight is not None:
            self._flight.drop()


class _Slot:
    """One name of a kind."""

    __slots__ = ("specs", "last", "lane")

    def __init__(self):
        self.specs = {}  # shape and splits: [spec, key or None]
        self.last = None
        self.lane = None


def _places_of(memory):
    """The addresses of the tensors to read and to write."""
    source, target = memory
    if source is not None and target is not None and source.device != target.device:
        raise ValueError(f"the values are on {source.device}, and the result on {target.device}; expected one device")
    return tuple(None if each is None else devices.address_of(each) for each in memory)


def _numbers_of(read, written):
    """The number of the device of these addresses, in a set."""
    return {(written if read is None else read).device} if is_on_device(read, written) else frozenset()


class Flights:
    """The submissions of one group."""

    def __init__(self, session, group, set_number):
        """group: its name, which no other group of the session has."""
        self._session, self._set = session, set_number
        self._lock = threading.Lock()
        self.names = Names(group)
        self._slots = {}  # name: _Slot
        self._specs = 0

    def start(self, kind, fields, memory, splits=None):
        """Submits a collective. kind: words that are equal on all members, and enter the name. fields: of Spec.
        memory: (tensor to read or None, tensor to write or None). Returns its flight."""
        if (follows := cause()) is not None:
            kind = (*kind, f"after ({follows})")
        memory = memory, _places_of(memory)  # in the caller's thread, whose stream has the values
        with self._lock:
            name, number = self.names.next(kind)
            if self._specs > MOST_SPECS:
                self._forget()
            slot = self._slots.get(name)
            if slot is None:
                slot = self._slots[name] = _Slot()
            if slot.last is None or slot.last.frees_name():
                slot.last = self._submit(slot, name, fields, memory, splits)
            else:
                slot.last = self._defer(slot, name, fields, memory, splits)
            slot.last.call = kind, number
            return slot.last

    def _forget(self):
        """Prepared specs are made anew; what is in flight keeps its name."""
        self._slots = {name: slot for name, slot in self._slots.items() if slot.last and not slot.last.frees_name()}
        for slot in self._slots.values():
            slot.specs = {}
        self._specs = 0

    def _defer(self, slot, *submission):
        start = functools.partial(self._submit, slot, *submission)
        deferred = Deferred(slot.last, start, _numbers_of(*submission[2][1]))
        slot.lane = slot.lane or Lane("horo_deferred")
        slot.lane.put(deferred.run)
        return deferred

    def _submit(self, slot, name, fields, memory, splits):
        session, (source, target), (read, written) = self._session, *memory
        room = 0 if target is None else max(1, target.nbytes)
        keep = [(each, each.untyped_storage()) for each in (source, target) if each is not None]
        fields["set"] = self._set
        if source is not None or target is not None:
            fields["device"] = devices.type_of(source if target is None else target)
        known = tuple(fields.values())
        prepared = slot.specs.get(known)
        if prepared is None:  # a name that is used once costs no declaration
            slot.specs[known] = prepared = [Spec(name, **fields), None]
            self._specs += 1
            work = session.submit_spec(prepared[0], read, written, keep, splits, room)
        elif session.is_elastic:  # ranks in the spec, and the room, are checked again
            work = session.submit_spec(prepared[0], read, written, keep, splits, room)
        else:
            if prepared[1] is None:
                prepared[1] = session.key(prepared[0])
            if splits is None and fields["kind"] not in VARYING:
                work = session.submit_key(prepared[1], read, written, keep)
            else:
                work = session.submit_sized(prepared[1], read, written, keep, splits, room)
        return Flight(session, work, self.names, _numbers_of(read, written))
