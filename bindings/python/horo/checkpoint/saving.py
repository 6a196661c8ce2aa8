"""Saving: the handle of save(). One Saver of the process writes one save after the other, and keeps its memory."""

import atexit
import sys

from horo import _default
from horo._marks import CHECKPOINT, marked, marks
from horo.checkpoint.content import give
from horo.checkpoint.library import Saver
from horo.errors import HoroError

_saver = None
_last = None  # the Saving of the last save


class Saving:
    """A save that save() has begun. path: its folder."""

    def __init__(self, saver, path):
        self.path = path
        self._saver, self._error, self._has_ended = saver, None, False
        self._was_told = False

    def done(self):
        """Whether the checkpoint is whole and on the disk, under its path. Does not block. Raises HoroError, with the
        file and the reason, if it could not be written."""
        return self._wait(0)

    def wait(self):
        """Blocks until done(). Raises as done() does."""
        self._wait(None)

    def _wait(self, timeout_ms):
        self._see(timeout_ms)
        if self._error is not None:
            self._was_told = True
            raise HoroError(self._error)
        return self._has_ended

    def _see(self, timeout_ms):
        if self._has_ended:
            return
        try:
            self._has_ended = self._saver.wait(timeout_ms)
        except HoroError as error:
            self._has_ended, self._error = True, str(error)

    def finish(self):
        """Blocks until it has ended. An error that was not raised is told."""
        self._see(None)
        if self._error is not None and not self._was_told:
            self._was_told = True
            print(f"horo: the checkpoint {self.path} was not written: {self._error}", file=sys.stderr, flush=True)


def write(path, session, rest, pairs, step):
    """Begins a save when the one before has ended. pairs: of Content.tensors(). Returns a Saving."""
    marks.makes(CHECKPOINT)
    with marked(CHECKPOINT):
        return _write(path, session, rest, pairs, step)


def _write(path, session, rest, pairs, step):
    global _saver, _last
    finish()
    if _saver is None:
        _saver = Saver()
    _saver.begin(session, path, rest, [tensor for _, tensor in pairs], step=step)
    try:
        give(_saver, pairs)
    except BaseException:
        _saver.give_up("a tensor could not be copied")
        raise
    _saver.start()
    _last = Saving(_saver, path)
    return _last


def finish():
    """Blocks until the last save has ended."""
    if _last is not None:
        _last.finish()


_default.before_shutdown(lambda session: finish())
atexit.register(finish)
