"""Works of torch.distributed: the collectives of one call, its result, and its future."""

import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from horo.errors import HoroError
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

    def wait(self, timeout=NO_TIMEOUT):
        """Blocks until the results are in the tensors; always returns True. timeout: counts from now; without it, that
        of the call or the group, from the call on."""
        seconds = timeout.total_seconds()
        until = self._began + self._timeout_s if seconds <= 0 else time.monotonic() + seconds
        self._wait_until(until, seconds if seconds > 0 else self._timeout_s)
        return True

    def _wait_until(self, until, limit_s):
        if not self._ended:
            try:
                if not all(flight.wait_until(until) for flight in self._flights):
                    raise TimedOut(
                        f"{self._call} of {self._group.described}: the timeout of {limit_s:g} s has passed on rank "
                        f"{self._group.rank()}. The operation goes on, and its tensors must not be used"
                    )
            except Exception as error:
                self._end(error)
            else:
                self._end(None)
        if self._error is not None:
            raise self._error

    def _end(self, error):
        """The flights have ended, or are given up. The first thread that comes here stores the result."""
        with self._lock:
            if self._ended:
                return
            try:
                if error is None:
                    self._group.check_members()
                    if self._finish is not None:
                        self._finish()
            except Exception as found:
                error = found
            for flight in self._flights:
                flight.drop()
            self._error, self._finish, self._flights = error, None, ()
            self._ended = True

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
        if not self._ended and all(flight.has_ended() for flight in self._flights):
            self._end(self._failure())
        return self._ended

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
                inner = torch.futures.Future()
                # DDP's reducer takes an exception that is set, and not raised in `then`, for a value, and crashes.
                self._future = mark(inner.then(self._checked), self._name_now)
                lane_of(self._group.lane).put(lambda: self._complete(inner))
        return self._future

    def _name_now(self):
        """What a callback that is attached now is known by."""
        return self._call if self.call is None else self._group.name_of_callbacks(*self.call)

    def _checked(self, _):
        if self._error is not None:
            raise self._error
        return self._outputs

    def _complete(self, inner):
        """Runs in a lane: waits for the flights, and completes the future unless the interpreter ends."""
        until = self._began + self._timeout_s
        while not (self._ended or main_has_ended() or self._waited_a_moment(until)):
            pass
        if self._ended:
            inner.set_result(None)

    def _waited_a_moment(self, until):
        """Whether the work has ended after it."""
        moment = time.monotonic() + SLICE_S
        try:
            if moment < until and not all(flight.wait_until(moment) for flight in self._flights):
                return False
            self._wait_until(until, self._timeout_s)
        except Exception as error:  # _checked raises it
            self._end(error)
        return True

    def __del__(self):
        for flight in getattr(self, "_flights", ()):
            flight.drop()
