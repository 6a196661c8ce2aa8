"""Session: one engine, from init to shutdown. Memory is given by address; no framework is used here.

A work's memory must stay valid until the work ends, even if its handle is dropped. The session therefore holds the
argument `keep` of a submit until the work was waited for, or, if the handle was dropped, until a later submit finds
that the work has ended.
"""

import collections
import ctypes
import json
import os
import threading
import weakref

from horo import _native, _stall_diagnosis
from horo._arguments import encoded, report
from horo._changes import held
from horo._growth import Growth
from horo._native import quick, slow
from horo._registrations import Registrations
from horo._session_keys import MAX_KNOWN_SPECS, Keys, array_of
from horo._session_rounds import Rounds
from horo._session_start import SessionStart, error_of
from horo._specs import fill, is_no_name, name_bytes
from horo._submissions import DeviceWorks, is_on_device, placed, streams, submission_of
from horo._waits import Waits, stream_on
from horo._world import World


def _free(pid, responder, _callbacks):
    """Frees the session, but not a forked child's copy of it. Keeps the callbacks alive until the shutdown."""
    if pid == os.getpid():
        responder.free()


class Session(Keys, Registrations, Rounds, Growth):
    """One engine. Only wait, close, add_set, remove_set and the constructor block. Thread-safe."""

    def __init__(self, settings=(), exchange=None, terms=None):
        """Joins the job that the HORO_* variables or the launcher's variables describe.

        settings: "HORO_NAME=value" lines that take precedence over the environment. exchange: see _exchange.foreign;
        used if the ranks are on several hosts and HORO_ADDR is not set. terms: see _default.join."""
        super().__init__()
        self.settings = list(settings)
        quick.horo_start_site(_stall_diagnosis.described())
        self.pointer = SessionStart(self.settings, exchange, terms).join()
        self.pid, self.closed = os.getpid(), False
        self._closing = threading.RLock()  # reentrant: a signal handler may call shutdown() during a shutdown
        self.world = World(self.pointer)
        self.is_elastic = self.world.is_elastic
        self.kept = {}  # work: the objects to keep alive until it ends
        self._on_devices = DeviceWorks()
        self.waits = Waits(self.pointer, self.world, self._on_devices)
        self.joins = self.world.joins
        self.dropped = collections.deque()  # works whose handles were dropped; any thread appends
        # Not at exit: the process ends anyway, and another thread may still be in a wait.
        self._responder = _stall_diagnosis.Responder(self.pointer)
        weakref.finalize(self, _free, self.pid, self._responder, self._callbacks).atexit = False

    @property
    def topology(self):
        """horo_topology, as the script sees it."""
        return self.world.topology

    @property
    def device(self):
        """The number of the device on which this rank's last tensor was; None: it has had tensors on the host alone."""
        return self._on_devices.device

    def _check(self, status):
        if status < 0:
            self.fail(status)
        return status

    def fail(self, status):
        """Raises the error of the last call of this thread."""
        raise error_of(status, self.pointer)

    def expect(self, repeat):
        """Stores a Repeat that is not in flight for its next call."""
        if len(self.repeats) >= MAX_KNOWN_SPECS:
            self.repeats.clear()
        self.repeats[repeat.name] = repeat

    def submit(self, spec, data_in, data_out, keep, splits=None, out_bytes=0):
        """Submits a tensor. data_in and data_out: the addresses of the values and of the result. Returns a work.

        splits: row counts by member, for all_to_all and for the root of a scatter. out_bytes: see horo_submission.
        Where an address is a DeviceAddress, the spec is that of a tensor on its device."""
        if self.is_early:
            self.refuse_early(spec[0])
        spec = placed(spec, data_in, data_out)
        if is_no_name(spec[0]) or splits is not None:
            key = None
        elif self.is_elastic and spec[1] != _native.ALL_REDUCE:
            key = None  # ranks in the spec, and out_bytes, are checked again
        elif (key := self._keys.get(spec)) is None:
            key = self._key_of_second(spec)
        if key is not None and spec[1] == _native.ALL_GATHER and data_out is not None:
            return self.submit_sized(key, data_in, data_out, keep, out_bytes=out_bytes)
        if key is not None:
            return self.submit_key(key, data_in, data_out, keep)
        return self.submit_spec(spec, data_in, data_out, keep, splits, out_bytes)

    def submit_spec(self, spec, data_in, data_out, keep, splits=None, out_bytes=0):
        """submit() without a declaration."""
        if self.is_early:
            self.refuse_early(spec[0])
        if self.dropped:
            self.sweep()
        begun = object()
        self.kept[begun] = keep
        filled, submission = fill(spec), submission_of(data_in, data_out, splits, out_bytes=out_bytes)
        while (work := quick.horo_submit_spec(self.pointer, filled, submission)) < 0 and self._gave_room(work):
            pass
        if work > 0:
            self.kept[work] = keep
            self._on_devices.add([work], [(data_in, data_out)])
        del self.kept[begun]
        return work if work > 0 else self._check(work)

    def submit_sized(self, key, data_in, data_out, keep, splits=None, out_bytes=0, absent=False):
        """submit() of a declared tensor whose result has a varying size, into memory of out_bytes bytes, or of one on a
        device. absent: see submit_absent."""
        if self.dropped:
            self.sweep()
        begun = object()
        self.kept[begun] = keep
        submission, works = submission_of(data_in, data_out, splits, absent, out_bytes), (ctypes.c_int64 * 1)()
        submission.key = key
        status = quick.horo_submit_many(self.pointer, submission, 1, works)
        if status >= 0:
            self.kept[works[0]] = keep
            self._on_devices.add(works, [(data_in, data_out)])
        del self.kept[begun]
        self._check(status)
        return works[0]

    def submit_key(self, key, data_in, data_out, keep):
        """submit() of a declared tensor."""
        if self.is_early:
            self.refuse_early()
        if is_on_device(data_in, data_out):
            return self.submit_sized(key, data_in, data_out, keep)
        if self.dropped:
            self.sweep()
        begun = object()
        self.kept[begun] = keep  # stored before the call: an interrupt may arrive right after it
        work = quick.horo_submit(self.pointer, key, data_in, data_out)
        if work > 0:
            self.kept[work] = keep
        del self.kept[begun]
        return work if work > 0 else self._check(work)

    def submit_unit(self, name, parts):
        """Submits several tensors as one unit: all of them run, or none. Returns their works.

        parts: (spec, data_in, data_out, keep, *out_bytes) of each; data_in is None if this rank does not contribute. A
        tensor without a name gets the unit's name and a number."""
        if self.is_early:
            self.refuse_early(name)
        if self.dropped:
            self.sweep()
        count = len(parts)
        specs = (_native.TensorSpec * count)(*(fill(placed(*part[:3])) for part in parts))
        submissions = (_native.Submission * count)(
            *(submission_of(part[1], part[2], None, part[1] is None, *part[4:]) for part in parts)
        )
        works = (ctypes.c_int64 * count)()
        unit = _native.Unit(ctypes.sizeof(_native.Unit), count, name_bytes(name), specs, submissions)
        begun = object()
        self.kept[begun] = parts
        status = quick.horo_submit_unit(self.pointer, unit, works)
        if status >= 0:
            self.kept.update((work, part[3]) for work, part in zip(works, parts))
            self._on_devices.add(works, (part[1:3] for part in parts))
        del self.kept[begun]
        self._check(status)
        return list(works)

    def submit_absent(self, key, data_out, keep):
        """Submits an all_reduce without a contribution of this rank; the result is stored at data_out."""
        if self.is_early:
            self.refuse_early()
        if is_on_device(None, data_out):
            return self.submit_sized(key, None, data_out, keep, absent=True)
        if self.dropped:
            self.sweep()
        begun = object()
        self.kept[begun] = keep
        work = quick.horo_submit_absent(self.pointer, key, data_out)
        if work > 0:
            self.kept[work] = keep
        del self.kept[begun]
        return work if work > 0 else self._check(work)

    def has_ended(self, work):
        return self._check(quick.horo_poll(self.pointer, work)) == 1

    def wait(self, works):
        """Blocks until all works have ended; raises the error of the first work that failed. What the current streams
        of this thread do next has the results of works on devices: it waits for them."""
        self.waits.until(works)

    def wait_until(self, works, until):
        """wait(), at most until this time of time.monotonic(). Returns whether all works have ended."""
        return self.waits.until(works, until)

    def wait_until_ended(self, works, until):
        """wait_until(), also for the devices."""
        return self.waits.until_ended(works, until)

    def unkeep(self, work):
        """The current streams wait for the work, which stays: lets go of its memory where that is safe."""
        if self._on_devices.is_followed(work):
            self.kept.pop(work, None)

    def result(self, work):
        """horo_result of a work that succeeded; its pointers are valid until release()."""
        result = _native.Result(ctypes.sizeof(_native.Result))
        self._check(quick.horo_get_result(self.pointer, work, result))
        return result

    def copy_result(self, work, out):
        """Copies the result that a work has on a device to `out`, a DeviceAddress, on the current stream of this
        thread, which waits for the work."""
        self._check(quick.horo_copy_result(self.pointer, work, out, stream_on(out.device)))
        streams.after_wait(out.device)

    def release(self, works):
        """Releases works that were waited for."""
        if self._on_devices:
            works = self._release_ended(works)
        quick.horo_release_many(self.pointer, array_of(works), len(works))
        if self.kept:
            for work in works:
                self.kept.pop(work, None)

    def _release_ended(self, works):
        """Drops those of devices whose memory is in use still. Returns the others."""
        devices = self._on_devices
        ended, early = [], []
        for work in works:
            is_free = work not in devices or devices.is_followed(work) or quick.horo_poll(self.pointer, work) != 0
            (ended if is_free else early).append(work)
        self.drop(early)
        for work in ended:
            devices.pop(work, None)
        return ended

    def drop(self, works):
        """Marks works that no thread will wait for. Never blocks or locks, so that a finalizer may call it.

        May be called twice for a work, because works' numbers are not reused."""
        self.dropped.extend(works)

    def sweep(self):
        """Releases dropped works that have ended. The others go to the end, so that none hides those behind it."""
        for _ in range(len(self.dropped)):
            try:
                work = self.dropped.popleft()
            except IndexError:  # another thread swept
                return
            if quick.horo_poll(self.pointer, work) == 0:
                self.dropped.append(work)
            else:
                self.release([work])

    def plans_version(self):
        """A number that changes whenever the result of places() may change."""
        return self._check(quick.horo_plans_version(self.pointer))

    def places(self, works):
        """The places of these works' tensors in known plans: (plan, offset, bytes of the bucket); plan 0: none."""
        count = len(works)
        places = (_native.Place * count)()
        if count:
            places[0].struct_bytes = ctypes.sizeof(_native.Place)
        self._check(quick.horo_get_places(self.pointer, array_of(works), count, places))
        return [(place.plan, place.offset, place.bytes) for place in places]

    def allocate(self, nbytes, number=0):
        """Memory that the process set's collectives read and write fastest, as a ctypes array; valid after close()."""
        data = ctypes.c_void_p()
        memory = slow.horo_allocate(self.pointer, number, nbytes, data)
        if not memory:
            raise error_of(quick.horo_error_status(self.pointer), self.pointer)
        array = (ctypes.c_char * nbytes).from_address(data.value)
        weakref.finalize(array, slow.horo_free_memory, memory).atexit = False
        return array

    def add_set(self, ranks, shrinks=False, name=None):
        """Adds a process set; returns its number. Collective over the world; blocks until all ranks have called it.

        name: then the members of the set alone call it, and remove_set; they find each other by the name."""
        if self.is_early:
            self.refuse_early(call="add_process_set()")
        array = (ctypes.c_int32 * len(ranks))(*ranks)
        flags = (_native.SET_SHRINKS if shrinks else 0) | (0 if name is None else _native.SET_BY_MEMBERS)
        return self._count_of(
            quick.horo_add_set_with(
                self.pointer, array, len(ranks), None if name is None else encoded(name, "name"), flags
            )
        )

    def remove_set(self, number):
        """Removes a process set. Blocks until all ranks have called it that had to add it."""
        if self.is_early:
            self.refuse_early(call="remove_process_set()")
        self._count_of(quick.horo_remove_set(self.pointer, number))

    def check_set(self, number):
        """Raises PeerLost if the process set has lost a member and cannot go on, ValueError if it does not exist."""
        self._check(quick.horo_get_set(self.pointer, number, _native.SetInfo(ctypes.sizeof(_native.SetInfo))))

    def has_lost_set(self, number):
        """Whether the process set has lost a member and cannot go on."""
        info = _native.SetInfo(ctypes.sizeof(_native.SetInfo))
        return quick.horo_get_set(self.pointer, number, info) == _native.PEER_LOST

    def join(self, number):
        """This rank has no more data in this process set. Returns a work."""
        if self.is_early:
            self.refuse_early(call="join()")
        return self._check(quick.horo_join(self.pointer, number))

    def rebuild(self):
        """Ends the epoch of the world and begins the next one with the same ranks; for tests and measurements.
        Collective over the world; blocks. Returns the microseconds of its parts by name. See horo_rebuild."""
        epoch, *parts = self._counts_of(quick.horo_rebuild(self.pointer))
        self.topology.epoch = epoch
        return dict(zip(("drain", "leave", "connect", "agree"), parts))

    def _count_of(self, work):
        """Waits for a work without memory; returns the first count of its result, or None."""
        counts = self._counts_of(work)
        return counts[0] if counts else None

    def _counts_of(self, work):
        self._check(work)
        with held:
            try:
                self.wait([work])
                result = self.result(work)
                return list(result.counts[: result.count_count])
            finally:
                self.drop([work])

    def counters(self):
        found = quick.horo_counters(self.pointer)
        if not found:
            raise error_of(quick.horo_error_status(self.pointer), self.pointer)
        return json.loads(found)

    def setting(self, name):
        """The value of a setting in this session, as text."""
        found = quick.horo_setting(self.pointer, encoded(name, "setting"))
        if found is None:
            raise error_of(quick.horo_error_status(self.pointer), self.pointer)
        return found.decode(errors="replace")

    def ready_times(self):
        """The time at which each rank submitted each tensor of the last step."""
        found = slow.horo_ready_times(self.pointer)
        if not found:
            raise error_of(quick.horo_error_status(self.pointer), self.pointer)
        return json.loads(found.decode(errors="replace"))

    def start_timeline(self, path):
        self._check(slow.horo_start_timeline(self.pointer, path))

    def stop_timeline(self):
        self._check(slow.horo_stop_timeline(self.pointer))

    def notice(self):
        """The seconds after which horo run ends this rank, since its host is drained; None: it has no notice."""
        grace_s = ctypes.c_double()
        return grace_s.value if self._check(quick.horo_notice(self.pointer, grace_s)) else None

    def abort(self, reason, failure=""):
        """Ends the job on all ranks; they get this rank's number and the reason. failure: its kind and place, the same
        on ranks that fail alike."""
        slow.horo_fail(self.pointer, report(reason), report(failure))

    def close(self, at_exit=False):
        """Leaves the job in an orderly way; unfinished works fail with ShutDown. Does nothing in a forked child.
        at_exit: see horo_shutdown_at_exit."""
        if self.pid != os.getpid():
            return
        with self._closing:
            if self.closed:
                return
            self.waits.for_devices()
            if self.closed:  # by a signal handler meanwhile
                return
            self.closed = True
            status = (slow.horo_shutdown_at_exit if at_exit else slow.horo_shutdown)(self.pointer)
        self._responder.stop()
        self._check(status)
