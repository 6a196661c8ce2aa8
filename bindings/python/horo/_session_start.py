"""The start of a session, which a signal can interrupt."""

import ctypes
import threading

from horo import _native
from horo._arguments import encoded
from horo._exchange import foreign
from horo._native import quick, slow
from horo.errors import HoroError, Mismatch, PeerLost, ShutDown

SLICE_MS = 100  # the longest time between two checks for signals in a waiting thread


def error_of(status, pointer):
    """The exception for the last failed call of this thread."""
    text = quick.horo_error_text(pointer).decode(errors="replace")
    if status == _native.INVALID_ARGUMENT:
        return ValueError(text)
    if status == _native.PEER_LOST:
        return PeerLost(text, quick.horo_error_origin(pointer))
    kinds = {_native.MISMATCH: Mismatch, _native.SHUT_DOWN: ShutDown}
    return kinds.get(status, HoroError)(text)


class SessionStart:
    """Runs horo_init, or horo_init_join, in a separate thread, so that a signal can interrupt the caller meanwhile."""

    def __init__(self, settings, exchange, terms=None):
        """terms: of a process that joins a job; None: it does not."""
        self._settings = [encoded(line, "settings") for line in settings]
        self._terms = None if terms is None else encoded(terms, "terms")
        self._exchange = None if exchange is None else foreign(exchange)
        self._lock = threading.Lock()
        self._abandoned = False
        self._pointer = None
        self._error = None
        self._thread = threading.Thread(target=self._run, name="horo_init", daemon=True)

    def _run(self):
        lines = self._settings
        array = (ctypes.c_char_p * len(lines))(*lines)
        if self._terms is not None:
            pointer = slow.horo_init_join(array, len(lines), self._terms)
        elif self._exchange is None:
            pointer = slow.horo_init(array, len(lines))
        else:
            pointer = slow.horo_init_exchange(array, len(lines), self._exchange, None)
        error = None if pointer else error_of(quick.horo_error_status(None), None)
        with self._lock:
            self._pointer, self._error = pointer, error
            unwanted = self._abandoned and pointer
        if unwanted:
            slow.horo_free(pointer)

    def join(self):
        try:
            self._thread.start()
            while self._thread.is_alive():
                self._thread.join(SLICE_MS / 1000)
        except BaseException:
            with self._lock:
                self._abandoned = True
                unwanted = self._pointer
            if unwanted:
                slow.horo_free(unwanted)
            raise
        if self._error is not None:
            raise self._error
        return self._pointer
