"""How a thread of Python waits for works. Long waits are cut into slices, so that signal handlers run."""

import ctypes
import time

from horo import _native
from horo._native import quick, slow
from horo._session_keys import array_of
from horo._session_start import SLICE_MS, error_of
from horo._submissions import streams
from horo.errors import PeerLost, ShutDown


def stream_on(device):
    """horo_stream of this thread's current one"""
    return _native.DeviceStream(ctypes.sizeof(_native.DeviceStream), device, streams.current(device))


class Waits:
    """The waits of a session."""

    def __init__(self, pointer, world, on_devices):
        self._pointer = pointer
        self._world = world
        self._on_devices = on_devices  # DeviceWorks
        self.has_failed = False  # the session has, as a wait was told

    def until(self, works, until=None):
        """Whether all works have ended at this time of time.monotonic(); None: waits without end. Raises the error of
        the first work that failed. In an elastic job the script sees the present ranks, also if this raises.

        Of works on devices it is enough that the current streams of this thread wait for them."""
        devices = self._on_devices.devices_of(works) if self._on_devices else ()
        calls = [("horo_wait_stream", (stream_on(device),)) for device in devices]
        if not self._run(works, until, calls or [("horo_wait", ())]):
            return False
        for device in devices:
            streams.after_wait(device)
        return True

    def until_ended(self, works, until):
        """The same, but works on devices have ended, too."""
        return self._run(works, until, [("horo_wait", ())])

    def until_begun(self, works, until):
        """The same, but no stream waits, works on devices may go on, and the script does not see the present ranks."""
        return self._run(works, until, [("horo_wait_stream", (None,))], sees=False)

    def for_devices(self):
        """Waits until the works that devices have begun have ended. A signal handler may end it, which the library's
        wait at its shutdown does not allow."""
        while slow.horo_finish_devices(self._pointer, SLICE_MS) == _native.TIMEOUT:
            pass

    def _run(self, works, until, calls, sees=True):
        array = array_of(works)
        for name, place in calls:
            status = getattr(quick, name)(self._pointer, array, len(array), *place, 0)
            while status == _native.TIMEOUT:
                left_ms = SLICE_MS if until is None else min(SLICE_MS, int(1000 * (until - time.monotonic())))
                if left_ms <= 0:
                    return False
                status = getattr(slow, name)(self._pointer, array, len(array), *place, left_ms)
            self._finish(status, sees)
        return True

    def _finish(self, status, sees):
        failure = error_of(status, self._pointer) if status < 0 else None
        self.has_failed |= isinstance(failure, (PeerLost, ShutDown))
        try:
            if failure is not None:
                raise failure
        finally:
            failure = None  # which has this frame in its traceback
            if sees and self._world.is_elastic:
                self._world.see()
