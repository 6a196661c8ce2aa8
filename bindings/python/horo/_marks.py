"""What the training thread does when, for the accounting of steps (docs/scaling.md): marks in a buffer, which the end
of the step hands over in one call.

The thread that ends a step is the training thread from then on. Marks of other threads, and of forked children, are
ignored. Nothing is known before the first end.
"""

import array
import contextlib
import ctypes
import itertools
import math
import os
import struct
import sys
from threading import get_ident
from time import monotonic_ns

from horo import _native
from horo._native import quick
from horo._submissions import streams

INPUT, BACKWARD, OPTIMIZER = _native.MARK_INPUT, _native.MARK_BACKWARD, _native.MARK_OPTIMIZER
CHECKPOINT, COLLECTION = _native.MARK_CHECKPOINT, _native.MARK_COLLECTION
CAPACITY = 512  # marks; more of them in a step are handed over earlier
MOST_BATCHES = 4096  # that wait for a backward
LARGEST = 1 << 48  # number of samples or elements of a batch or step: sums over steps fit in 64 bits
NOT_KNOWN = -1


_ENDED = struct.Struct("@IIQqqIIP")  # _native.EndedStep, which is filled in one call
assert _ENDED.size == ctypes.sizeof(_native.EndedStep)


class Marks:
    """The marks of this process. Training has displaced this code from the caches when it runs, so its time is that of
    the functions and objects that it touches: there are few in the ways of each step."""

    def __init__(self):
        self._buffer = array.array("q", bytes(16 * CAPACITY))
        self._address = self._buffer.buffer_info()[0]
        self._count = 0
        self._ended = _native.EndedStep()
        self._ended_pointer = ctypes.pointer(self._ended)
        self._session = None
        self._is_on = False  # the accounting of the session
        self._kinds = 0  # that are marked in this process, by 1 << kind
        self.has_input = False  # among them
        self.batches = []  # that no backward has used yet: (number of the iterator, rows, elements)
        self._gone = set()  # numbers of iterators that have ended since the last backward
        self._iterators = itertools.count(1)
        self._samples = self._work = NOT_KNOWN
        self._shape, self._rows, self._elements = (), 1, 1  # of the last batch that was used
        self.thread = None  # the training thread
        self._place = None  # horo_stream: of the device whose stream reaches the marks; None: the host does

    def makes(self, *kinds):
        """From now on marks of these kinds are made: a step without them has none."""
        for kind in kinds:
            self._kinds |= 1 << kind
        self.has_input = bool(self._kinds & 1 << INPUT)

    def forget(self):
        """In a forked child."""
        self.thread = self._session = None
        self._count = 0

    def begin(self, kind):
        self.add(2 * kind + 1)

    def end(self, kind):
        self.add(2 * kind)

    def add(self, code):
        """2 * kind: its end; one more: its begin."""
        if self.thread != get_ident():
            return
        at = self._count
        if at == CAPACITY:
            self._flush()
            at = 0
        buffer = self._buffer
        buffer[2 * at] = code
        buffer[2 * at + 1] = monotonic_ns()
        self._count = at + 1
        if self._place is not None and code >> 1 != COLLECTION:
            self._record(at)

    def _record(self, mark):
        """The current stream of the device reaches the mark later."""
        if self._session is None or self._session.closed:
            return
        try:
            self._place.stream = streams.current(self._place.device)
        except Exception:  # the step has no device time; it is not what fails where the device is gone
            self._place = None
            return
        quick.horo_record_mark(self._session.pointer, mark, self._place)

    def _look_at_device(self, device):
        if device is None:
            self._place = None
        elif self._place is None or self._place.device != device:
            self._place = _native.DeviceStream(ctypes.sizeof(_native.DeviceStream), device, None)

    def _flush(self):
        count, self._count = self._count, 0
        if self._session is not None and not self._session.closed:
            quick.horo_add_marks(self._session.pointer, self._address, count)

    def has_batch(self, iterator, batch, before):
        """The training thread has got this batch from an iterator of a loader, with gradients on: it counts when a
        backward follows. What it gets without gradients, as a validation that may end early does, is for none.

        before: len(batches) before the iterator made it. Batches that it took from other iterators meanwhile are in it,
        or in one that it makes later: they do not count."""
        if self.thread != get_ident():
            return
        batches = self.batches
        if len(batches) > before:
            del batches[before:]
        if (shape := shape_of(batch)) is None:
            return
        try:
            if shape != self._shape and not self._measure(shape):
                return
        except Exception:  # of an odd shape
            return
        try:
            number = iterator._horo_number
        except AttributeError:
            number = iterator._horo_number = next(self._iterators)
        if len(batches) >= MOST_BATCHES:  # of a script that has gradients on and no backward
            batches.clear()
            self._gone.clear()
        batches.append((number, self._rows, self._elements))

    def _measure(self, shape):
        """Whether it has sizes that are known: those of a nested tensor are not."""
        sizes = tuple(shape)
        for size in sizes:
            if type(size) is not int or size < 0:
                return False
        self._shape = sizes
        self._rows, self._elements = min(sizes[0] if sizes else 1, LARGEST), min(math.prod(sizes), LARGEST)
        return True

    def has_no_batch(self, iterator, before):
        """It has ended: batches that it gave for no backward yet are those of a validation, if others follow."""
        if self.thread != get_ident():
            return
        del self.batches[before:]
        if (number := getattr(iterator, "_horo_number", None)) is not None:
            if len(self._gone) >= MOST_BATCHES:
                self.batches = [batch for batch in self.batches if batch[0] not in self._gone]
                self._gone.clear()
            self._gone.add(number)
            iterator._horo_number = next(self._iterators)  # a loader may use it for its next pass

    def takes_back(self, before):
        """What an iterator took from others when it was made is in the batches that it makes."""
        if self.thread == get_ident():
            del self.batches[before:]

    def uses_batch(self):
        """An outermost backward begins. It uses all batches since the last one; those of iterators that have ended only
        if there are no others."""
        batches, gone = self.batches, self._gone
        if not (batches or gone) or self.thread != get_ident():
            return
        self.batches = []
        if gone:
            self._gone = set()
            batches = [batch for batch in batches if batch[0] not in gone] or batches
        samples, work = self._samples, self._work
        if samples < 0:
            samples = work = 0
        for _, rows, elements in batches:
            samples += rows
            work += elements
        self._samples = samples if samples < LARGEST else LARGEST
        self._work = work if work < LARGEST else LARGEST

    def end_step(self, session, stream=0, flags=0):
        """The calling thread ends a step."""
        if self._session is not session:
            self._session, self.thread = session, None
            self._is_on = session.setting("HORO_ACCOUNTING") == "on"
        if not self._is_on:
            return
        if self.thread != get_ident():
            self.thread, self._count = get_ident(), 0
            self.batches, self._gone = [], set()
            self._samples = self._work = NOT_KNOWN
        if self._place is not None or session.device is not None:
            self._look_at_device(session.device)
        if self._place is not None:
            self._record(_native.END_OF_STEP)
        figures = self._samples, self._work, self._kinds, self._count, self._address
        _ENDED.pack_into(self._ended, 0, _ENDED.size, flags, stream, *figures)
        quick.horo_end_step(session.pointer, self._ended_pointer)
        self._count = 0
        self._samples = self._work = NOT_KNOWN


marks = Marks()


@contextlib.contextmanager
def marked(kind):
    """A context of the training thread that does something of this kind."""
    marks.begin(kind)
    try:
        yield
    finally:
        marks.end(kind)


def collected(phase, info):
    """A function of gc.callbacks."""
    del info
    marks.add(2 * COLLECTION + (phase == "start"))


def shape_of(batch):
    """That of the first object with a shape in a batch, depth first; None: there is none, or it is no tuple. Looks at a
    few objects, and never raises, whatever they do."""
    try:
        for _ in range(4):
            if isinstance(batch, (tuple, list)) and batch:
                batch = batch[0]
            elif isinstance(batch, dict):
                batch = next(iter(batch.values()), None)
            else:
                shape = batch.shape
                return shape if isinstance(shape, tuple) else None
    except Exception:  # of the batch: it has no shape
        pass
    return None


def has_gradients():
    """Whether the calling thread records gradients. Without torch it always does."""
    torch = sys.modules.get("torch")
    try:
        return torch is None or torch.is_grad_enabled()
    except AttributeError:  # another thread imports it
        return True


class _Input:
    """An iterator whose next() is marked."""

    def __init__(self, iterator):
        self._iterator = iterator

    def __iter__(self):
        return self

    def __next__(self):
        before = len(marks.batches)
        marks.begin(INPUT)
        try:
            batch = next(self._iterator)
        except StopIteration:
            marks.has_no_batch(self, before)
            raise
        finally:
            marks.end(INPUT)
        if has_gradients():
            marks.has_batch(self, batch, before)
        return batch


class _Loader:
    """An iterable whose iterators are marked; everything else is the loader's."""

    def __init__(self, loader):
        self._loader = loader

    def __iter__(self):
        marks.makes(INPUT)  # the process may have a copy of the loader alone
        before = len(marks.batches)
        with marked(INPUT):
            iterator = iter(self._loader)
        marks.takes_back(before)
        return _Input(iterator)

    def __len__(self):
        return len(self._loader)

    def __getattr__(self, name):
        # Copies and pickles look for methods of this object, also before it has a loader.
        if name == "_loader" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._loader, name)


def input(loader):
    """An iterable over the same batches whose waits count as input in horo.last_step(): for loaders that are no
    torch.utils.data.DataLoader, which needs no such call. The first tensor of a batch gives the number of samples."""
    marks.makes(INPUT)
    return _Loader(loader)


def is_wanted(session):
    """Whether marks are made in this session."""
    return session.setting("HORO_ACCOUNTING") == "on" and session.setting("HORO_MARKS") == "on"


def module(name):
    """The module, if it is imported."""
    return sys.modules.get(name)


os.register_at_fork(after_in_child=marks.forget)
