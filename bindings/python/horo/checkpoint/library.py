"""The structs and functions of bindings/c/horo_c/checkpoint.h, and what Python has of its handles: Saver and Reader.

Memory is given by address; no framework is used here.
"""

import contextlib
import ctypes
import json
import typing
import weakref
from ctypes import POINTER, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

from horo import _native
from horo._arguments import encoded
from horo._changes import held
from horo._native import quick, slow
from horo._session_start import error_of

REPLICATED, PER_RANK, SHARDED = 0, 1, 2  # horo_checkpoint_kind
WAIT_MS = 100  # of one wait, after which Python handles signals
SAVE_SKIPPED = 2  # a result of Saver.begin()


class TensorStruct(ctypes.Structure):
    """horo_checkpoint_tensor"""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("shape", POINTER(c_int64)),
        ("dims", c_uint32),
        ("kind", c_int32),
        ("intervals", POINTER(c_int64)),
        ("interval_count", c_uint32),
        ("alias_of", c_int32),
        ("data", c_void_p),
        ("is_new", c_int32),
    ]


class SaveOptions(ctypes.Structure):
    """horo_save_options"""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("path", c_char_p),
        ("rest", c_char_p),
        ("step", c_uint64),
        ("seed", c_uint64),
        ("keep", c_uint32),
        ("lock", c_int32),
    ]


class SaveProgress(ctypes.Structure):
    """horo_save_progress"""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("is_writing", c_int32),
        ("bytes_done", c_uint64),
        ("bytes_total", c_uint64),
        ("published", c_uint64),
        ("published_step", c_uint64),
        ("seconds_copy", c_double),
        ("seconds_write", c_double),
    ]


_SAVER, _CHECKPOINT, _TENSORS = c_void_p, c_void_p, POINTER(TensorStruct)
QUICK = {
    "horo_saver_make": (c_void_p, []),
    "horo_saver_unlock": (c_int32, [_SAVER]),
    "horo_save_part": (c_int32, [_SAVER, c_size_t, POINTER(c_uint64), POINTER(c_uint64)]),
    "horo_save_start": (c_int32, [_SAVER]),
    "horo_save_progress_of": (c_int32, [_SAVER, POINTER(SaveProgress)]),
    "horo_checkpoint_index": (c_char_p, [_CHECKPOINT]),
}
SLOW = {
    "horo_saver_free": (None, [_SAVER]),
    "horo_saver_lock": (c_int32, [_SAVER, c_char_p]),
    "horo_save_begin": (c_int32, [_SAVER, c_void_p, POINTER(SaveOptions), _TENSORS, c_size_t]),
    "horo_save_take": (c_int32, [_SAVER, c_size_t, c_void_p]),
    "horo_save_wait": (c_int32, [_SAVER, c_int32]),
    "horo_save_give_up": (c_int32, [_SAVER, c_char_p]),
    "horo_checkpoint_open": (c_void_p, [c_char_p]),
    "horo_checkpoint_load": (c_int32, [_CHECKPOINT, c_void_p, _TENSORS, c_size_t, c_int32]),
    "horo_checkpoint_verify": (c_int32, [_CHECKPOINT]),
    "horo_checkpoint_close": (None, [_CHECKPOINT]),
    "horo_checkpoint_list": (c_char_p, [c_char_p]),
}
_native.bind(quick, QUICK)
_native.bind(slow, SLOW)


class Tensor(typing.NamedTuple):
    """One tensor of a checkpoint. dtype: torch's word, such as "bfloat16". shape: of the whole. intervals: of a sharded
    one, pairs of rows. alias_of: the place of the tensor with the same memory, or -1. address, is_new: for a load; the
    caller of one that fails gives new memory up."""

    name: str
    dtype: str
    shape: tuple
    kind: int = REPLICATED
    intervals: tuple = ()
    alias_of: int = -1
    address: int = 0
    is_new: bool = False


def _structs(tensors):
    """The array of the tensors, and what must live as long as it does."""
    rows, kept = (TensorStruct * max(len(tensors), 1))(), []
    for row, one in zip(rows, tensors):
        shape = (c_int64 * max(len(one.shape), 1))(*one.shape)
        bounds = [bound for interval in one.intervals for bound in interval]
        intervals = (c_int64 * max(len(bounds), 1))(*bounds)
        row.struct_bytes = ctypes.sizeof(TensorStruct)
        row.name, row.dtype = encoded(one.name, "name"), one.dtype.encode()
        row.shape, row.dims, row.kind = shape, len(one.shape), one.kind
        row.intervals, row.interval_count = intervals, len(one.intervals)
        row.alias_of, row.data, row.is_new = one.alias_of, one.address or None, int(one.is_new)
        kept += [shape, intervals]
    return rows, kept


def _check(status):
    """Raises the error of the last call of this thread, if it has failed."""
    if status < 0:
        raise error_of(status, None)
    return status


@contextlib.contextmanager
def _collective(session):
    """A call that uses collectives of this session; None: none. Gives its pointer."""
    if session is None:
        yield None
        return
    with held:
        try:
            yield session.pointer
        finally:
            session.world.see()


class Saver:
    """Writes checkpoints, one at a time, in a thread of the library. One thread uses it."""

    def __init__(self):
        self._pointer = quick.horo_saver_make()
        if not self._pointer:
            raise error_of(quick.horo_error_status(None), None)
        self._free = weakref.finalize(self, slow.horo_saver_free, self._pointer)
        self._free.atexit = False  # its callers wait for what it writes, and tell of errors

    def lock(self, folder):
        """Makes the folder and holds it against other jobs until close(), as begin(lock=True) does. Raises HoroError if
        another job holds it, or if it cannot be written."""
        _check(slow.horo_saver_lock(self._pointer, encoded(folder, "folder")))

    def unlock(self):
        """Gives the lock of the folder back: another process is to write there."""
        _check(quick.horo_saver_unlock(self._pointer))

    def begin(self, session, path, rest, tensors, step=0, seed=0, keep=0, lock=False):
        """Begins a save. Collective over the world of the session; blocks. SAVE_SKIPPED: that before is still being
        written on some rank. Raises ValueError or HoroError, on all ranks alike, if it cannot be written."""
        options = SaveOptions(ctypes.sizeof(SaveOptions), encoded(path, "path"), rest, step, seed, keep, int(lock))
        rows, _kept = _structs(tensors)
        with _collective(session) as pointer:
            return _check(slow.horo_save_begin(self._pointer, pointer, options, rows, len(tensors)))

    def part(self, place):
        """(first row, number of rows) of this tensor that this rank gives."""
        first, rows = c_uint64(), c_uint64()
        _check(quick.horo_save_part(self._pointer, place, first, rows))
        return first.value, rows.value

    def take(self, place, address):
        """Copies those rows, which begin at this address."""
        _check(slow.horo_save_take(self._pointer, place, address or None))

    def start(self):
        """All parts are taken: writes them in the background."""
        _check(quick.horo_save_start(self._pointer))

    def wait(self, timeout_ms=None):
        """Whether no save is being written any more. Raises HoroError if the last one has failed. None: blocks."""
        while _check(slow.horo_save_wait(self._pointer, WAIT_MS if timeout_ms is None else timeout_ms)) != _native.OK:
            if timeout_ms is not None:
                return False
        return True

    def progress(self):
        """A SaveProgress."""
        found = SaveProgress(ctypes.sizeof(SaveProgress))
        _check(quick.horo_save_progress_of(self._pointer, found))
        return found

    def give_up(self, reason):
        """The save that is being written is not published."""
        _check(slow.horo_save_give_up(self._pointer, encoded(reason, "reason")))

    def close(self):
        """Waits until the save in flight has ended."""
        self._free()


class Reader:
    """One checkpoint. Its index, headers and sizes are right, or the constructor raises HoroError with the file."""

    def __init__(self, path):
        self._pointer = slow.horo_checkpoint_open(encoded(path, "path"))
        if not self._pointer:
            raise error_of(quick.horo_error_status(None), None)
        self._free = weakref.finalize(self, slow.horo_checkpoint_close, self._pointer)
        self.index = json.loads(quick.horo_checkpoint_index(self._pointer))

    def load(self, session, tensors, verify_first=False):
        """Fills the memory of the tensors. Collective over the world of the session; blocks. Raises ValueError before
        anything is written if a name, dtype or shape differs; HoroError, on all ranks alike, for damage."""
        rows, _kept = _structs(tensors)
        with _collective(session) as pointer:
            _check(slow.horo_checkpoint_load(self._pointer, pointer, rows, len(tensors), int(verify_first)))

    def verify(self):
        """Reads all of it. Raises HoroError for damage."""
        _check(slow.horo_checkpoint_verify(self._pointer))

    def close(self):
        self._free()


def list_of(folder):
    """The checkpoints of a folder, newest first: [{"path", "step", "bytes", "error"}]; error: why it is not whole."""
    text = slow.horo_checkpoint_list(encoded(folder, "folder"))
    if text is None:
        raise error_of(quick.horo_error_status(None), None)
    return json.loads(text)
