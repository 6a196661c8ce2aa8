"""Works of torch.distributed: the collectives of one call, its result, and its future.

A work of tensors on devices is followed: streams wait for its flights, and the host goes on. What leaves the results in
the caller's tensors is enqueued once, on a stream that follows; other streams then wait for that as well. The flights
are dropped when all of it has ended, or with the work."""

import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from horo.errors import HoroError
from horo.torch import devices
from horo.torch.distributed.completion import lane_of, main_has_ended
from horo.torch.distributed.futures import mark

FOREVER_S = 7 * 86400
NO_TIMEOUT = timedelta(0)
SLICE_S = 0.1


class TimedOut(HoroError):
    """An operation of torch.distributed did not end within its timeout. It goes on, and may still write its tensors."""


class Work(dist._Work):
    """See torch.distributed.Work. wait() raises PeerLost, Mismatch or TimedOut."""

    def __init__(self, group, call, flights, results, timeout_s):
        """flights: Flights that were started. results: the tensors of result(), and None or a function that leaves the
        results in the caller's tensors, after all flights have succeeded."""
        super().__init__()
        self._group, self._call = group, call
        self._flights, (self._outputs, self._finish) = flights, results
        self._began, self._timeout_s = time.monotonic(), timeout_s
        self.source = lambda: -1
        self.call = flights[0].call if flights else None
        self._lock = threading.Lock()
        self._ended, self._error = False, None
        self._future = None
        self.is_on_device = any(flight.is_on_device for flight in flights)
        self.numbers = set().union(*(flight.numbers for flight in flights))
        if self.is_on_device or self._finish is not None:
            self.numbers |= devices.numbers_of(self._outputs)
        # Events by device: after the first the results may be written, after the second they are in the tensors.
        self._begun, self._delivered = {} if self.is_on_device else self._record(), None

    def wait(self, timeout=NO_TIMEOUT):
        """Blocks until the results are in the tensors; always returns True. timeout: counts from now; without it, that
        of the call or the group, from the call on. Without it, the results of devices are in the tensors for what the
        current streams do next: this returns when the collectives are enqueued on all ranks."""
        seconds = timeout.total_seconds()
        if seconds > 0:
            self._wait_until(time.monotonic() + seconds, seconds)
        elif self.is_on_device:
            self._follow_until(self._began + self._timeout_s)
        else:
            self._wait_until(self._began + self._timeout_s, self._timeout_s)
        return True

    def _wait_until(self, until, limit_s):
        if not self._ended:
            try:
                if not all(flight.wait_until(until) for flight in self._flights):
                    raise self._timed_out(limit_s)
            except Exception as error:
                self._end(error)
            else:
                self._end(None)
        if self._error is not None:
            raise self._error

    def _timed_out(self, limit_s):
        return TimedOut(
            f"{self._call} of {self._group.described}: the timeout of {limit_s:g} s has passed on rank "
            f"{self._group.rank()}. The operation goes on, and its tensors must not be used"
        )

    def _follow_until(self, until):
        if not self.follow_until(until):
            self._end(self._timed_out(self._timeout_s))
            if self._error is not None:  # else another thread has found the end meanwhile
                raise self._error

    def follow_until(self, until):
        """Whether the results are in the tensors for what the current streams do next, at this time of
        time.monotonic()."""
        flights = self._flights
        try:
            if not all(flight.follow_until(until) for flight in flights):
                return False
            self._deliver_once()
        except Exception as error:
            self._end(error)
        if self._error is not None:
            raise self._error
        for flight in flights:
            flight.unkeep()
        return True

    def _deliver_once(self):
        with self._lock:
            if self._delivered is None and not self._ended:
                self._deliver()
            else:
                self._follow(self._delivered or {})

    def _deliver(self):
        """Leaves the results in the caller's tensors, by the current streams, which follow all flights."""
        self._group.check_members()
        if self._finish is not None:
            self._follow(self._begun)
            self._finish()
        self._delivered = self._record() if self._finish is not None else {}
        self._finish = None

    def _record(self):
        return {number: devices.places.record(number) for number in self.numbers}

    def _follow(self, events):
        for number, event in events.items():
            devices.places.follow(number, event)

    def _end(self, error):
        """The flights have ended, or are given up. The first thread that comes here stores the result."""
        with self._lock:
            if self._ended:
                return
            try:
                if error is None and self._delivered is None:
                    with devices.side_streams(self.numbers):
                        self._deliver()
                if error is None:
                    self._settle()
            except Exception as found:
                error = found
            for flight in self._flights:
                flight.drop()
            self._error, self._finish, self._flights = error, None, ()
            self._ended = True

    def _settle(self):
        """Waits until the results are in the tensors."""
        if self._delivered:
            with devices.side_streams(self.numbers):
                self._follow(self._delivered)
                for number in self.numbers:
                    devices.places.settle(number)

    def unkeep(self):
        """Of a joint work: follow_until() has done so."""

    def wait_until(self, until):
        """As a flight of a joint work: whether it has ended at this time of time.monotonic()."""
        try:
            if not all(flight.wait_until(until) for flight in self._flights):
                return False
        except Exception as error:
            self._end(error)
        self._wait_until(until, self._timeout_s)
        return True

    def has_ended(self):
        return self.is_completed()

    def drop(self):
        """Of a joint work: its end is theirs."""

    def is_completed(self):
        if not self._ended and all(flight.has_ended() for flight in self._flights) and self._is_written():
            self._end(self._failure())
        return self._ended

    def _is_written(self):
        """Whether no stream has yet to leave the results in the tensors."""
        return all(devices.places.has_passed(event) for event in (self._delivered or {}).values())

    def _failure(self):
        """The error of flights that have ended."""
        try:
            for flight in self._flights:
                flight.wait_until(time.monotonic() + FOREVER_S)
        except Exception as error:
            return error
        return None

    def is_success(self):
        return self.is_completed() and self._error is None

    def exception(self):
        return self._error if self.is_completed() else None

    def synchronize(self):
        self.wait()

    def result(self):
        """The tensors that have the results."""
        return self._outputs

    def source_rank(self):
        """The rank, in the group, that the message of a receive came from."""
        return self.source()

    _source_rank = source_rank

    def get_future(self):
        """A future of result(). A callback gets a failure as the future's exception."""
        with self._lock:
            if self._future is None:
                inner = devices.places.future(self.numbers) if self.numbers else torch.futures.Future()
                # DDP's reducer takes an exception that is set, and not raised in `then`, for a value, and crashes.
                self._future = mark(inner.then(self._checked), self._group.names_of_callbacks(self._call, self.call))
                lane_of(self._group.lane).put(lambda: self._complete(inner))
        return self._future

    def _checked(self, _):
        if self._error is not None:
            raise self._error
        return self._outputs

    def _complete(self, inner):
        """Runs in a lane: waits for the flights, and completes the future unless the interpreter ends."""
        try:
            self._complete_in_time(inner)
        except Exception as error:  # of a device; the future has it
            self._end(error)
            if not inner.done():
                inner.set_result(None)

    def _complete_in_time(self, inner):
        """Of devices the future has events of streams that follow the flights."""
        until = self._began + self._timeout_s
        with devices.side_streams(self.numbers):
            while not main_has_ended():
                if self._waited_a_moment(until):
                    inner.set_result(self._outputs if self._error is None and self.numbers else None)
                    return

    def _waited_a_moment(self, until):
        """Whether the results are there after it, or an error."""
        if self._ended:
            return True
        moment = time.monotonic() + SLICE_S
        try:
            if moment < until:
                if not all(flight.follow_until(moment) for flight in self._flights):
                    return False
            if self.is_on_device:
                self._follow_until(until)
            else:
                self._wait_until(until, self._timeout_s)
        except Exception as error:  # _checked raises it
            self._end(error)
        return True

    def __del__(self):
        for flight in getattr(self, "_flights", ()):
            flight.drop()
