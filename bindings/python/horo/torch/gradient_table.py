"""The gradients in flight of one round: one row per gradient in the order of submission, one list per column.

A row holds the memory of a submitted gradient until the work has ended or was abandoned. It also holds the
address, size and version of the gradient at the submit. So one pass over the columns finds every gradient that changed
in flight.
"""

import array
import ctypes
import operator

import torch

from horo import _default
from horo._handles import moved_text
from horo._native import quick
from horo.errors import HoroError

_WORK_BYTES = ctypes.sizeof(ctypes.c_int64)
_GRADIENT = operator.attrgetter("param.grad")
_NBYTES = operator.attrgetter("nbytes")
_VERSION = operator.attrgetter("_version")


class GradientTable:
    """The rows of one round in one session. A caller that adds rows holds the lock of Gradients."""

    def __init__(self, session, capacity):
        """capacity: expected number of rows; the table grows when it needs more."""
        self.session = session
        self.sparse = {}  # ParameterState: handle of a sparse gradient in flight; has no row
        self.commit = None  # work that commits the round, in an elastic job
        self.census = None  # the Census of the session, its work and its words, if it has one
        self.states = []  # ParameterState of each row
        self.memory = []  # tensor that receives the result: the gradient itself or a buffer
        self.addresses = []  # address of the memory at the submit; None if this rank has no gradient
        self._storages = []  # keeps the memory alive if the tensor gets another storage
        self._nbytes = []  # size of the memory at the submit
        self._versions = []  # version counter of the tensor at the submit
        self._works = (ctypes.c_int64 * capacity)()  # work of each row; 0 until the submit has returned
        self._given = {}  # ParameterState: its gradient at the submit, of rows that the session keeps

    def __len__(self):
        return len(self.states)

    def has_begun(self):
        """Whether a gradient was submitted."""
        return bool(self.states or self.sparse)

    def submitted(self):
        """The set of the ParameterStates with a gradient in flight."""
        return {*self.states, *self.sparse}

    def works(self):
        """The works of all rows, as an array that shares memory with the table."""
        return (ctypes.c_int64 * len(self)).from_buffer(self._works)

    def work(self, row):
        return self._works[row]

    def submit(self, state, memory, storage, address):
        """Submits one gradient in place. Returns its work, or a negative status; then there is no row."""
        # The row is written before the call, because an interrupt can arrive right after it.
        row = self._append(state, memory, storage, address, state.nbytes)
        work = quick.horo_submit(self.session.pointer, state.key, address, address)
        if work > 0:
            self._works[row] = work
        else:
            del self.states[row:]
        return work

    def submit_batch(self, layout):
        """Submits the gradients of a BatchTemplate in place, or in their views, in one foreign call. Returns False and
        submits nothing if a gradient is not as the layout expects, or if the session is closed."""
        gradients = list(map(_GRADIENT, layout.states))
        found = layout.locate(gradients)
        if found is None:
            return False
        storages, addresses = found
        count = len(gradients)
        row = self._extend(layout, gradients, storages, addresses)
        data = (ctypes.c_void_p * count).from_buffer(array.array("Q", addresses))  # faster than (*addresses)
        works = (ctypes.c_int64 * count).from_buffer(self._works, row * _WORK_BYTES)
        status = quick.horo_submit_many_in_place(self.session.pointer, layout.keys, data, count, works)
        if status >= 0:
            return True
        del self.states[row:]
        if not self.session.closed:
            self.session.fail(status)
        return False

    def add(self, state, memory, work, absent=False, gradient=None):
        """Adds the row of a submit that has returned. The session keeps the memory alive. gradient: the parameter's, of
        which the memory may be a copy; None: whether it is replaced is not looked at."""
        if gradient is not None:
            self._given[state] = gradient
        address = None if absent else memory.data_ptr()
        row = self._append(state, memory, None, address, memory.nbytes)
        self._works[row] = work

    def _append(self, state, memory, storage, address, nbytes):
        """Adds one row without a work, and returns its number."""
        row = self._begin(1)
        self.memory.append(memory)  # first: see _begin()
        self._storages.append(storage)
        self.addresses.append(address)
        self._nbytes.append(nbytes)
        self._versions.append(version_of(memory))
        self.states.append(state)  # last: the row exists from here on
        return row

    def _extend(self, layout, memory, storages, addresses):
        """Adds the rows of a batch without works, and returns the number of the first."""
        row = self._begin(len(memory))
        self.memory.extend(memory)
        self._storages.extend(storages)
        self.addresses.extend(addresses)
        self._nbytes.extend(layout.nbytes)
        self._versions.extend(versions_of(memory))
        self.states.extend(layout.states)
        return row

    def _begin(self, count):
        """Returns the number of the next row, and makes room for new works. Removes entries that an interrupt or a
        failed submit has left behind the last row: then the column `memory` is longer than the column `states`."""
        row = len(self.states)
        if len(self.memory) > row:
            for column in (self._storages, self.addresses, self._nbytes, self._versions, self.memory):
                del column[row:]
        if row + count > len(self._works):
            works = (ctypes.c_int64 * (2 * (row + count)))()
            works[:row] = self._works[:row]
            self._works = works
        return row

    def without_interrupted(self):
        """This table, or a copy without the rows whose submit was interrupted. The session keeps the memory of these
        rows for good, because the library may use it and no work number tells when that ends."""
        works = self._works[: len(self)]
        if 0 not in works:
            return self
        self._keep(row for row, work in enumerate(works) if work == 0)
        copy = GradientTable(self.session, len(works))
        copy.sparse, copy._given = self.sparse, self._given
        rows = [row for row, work in enumerate(works) if work != 0]
        for name in ("memory", "_storages", "addresses", "_nbytes", "_versions", "states"):
            setattr(copy, name, [getattr(self, name)[row] for row in rows])
        copy._works[: len(rows)] = [works[row] for row in rows]
        return copy

    def end_commit(self):
        """Waits for the commit of the round, whose works have ended."""
        if self.commit is not None:
            self.session.wait([self.commit])
            self.session.release([self.commit])
            self.commit = None
        if self.census is not None:
            census, work, words = self.census
            self.session.wait([work])
            self.session.release([work])
            self.census = None
            census.take(words)

    def abandon(self):
        """The session keeps the memory of all rows until their works have ended. Returns the works, which the caller
        drops."""
        self._keep(range(len(self)))
        works = [work for work in self._works[: len(self)] if work != 0]
        works += [] if self.commit is None else [self.commit]
        return works if self.census is None else [*works, self.census[1]]

    def _keep(self, rows):
        for row in rows:
            if self._storages[row] is not None:  # else the session keeps it already
                self.session.kept[self._works[row] or object()] = self.memory[row], self._storages[row]

    def forget(self, row):
        """The work of this row has ended and was released."""
        self._works[row] = 0
        self.memory[row] = self._storages[row] = None
        self._given.pop(self.states[row], None)

    def changed_rows(self):
        """The rows whose gradient is not the submitted memory, or was moved, resized or written to since the submit;
        and those of absent gradients. All other gradients hold their result."""
        memory = self.memory
        columns = (memory, self.addresses, self._nbytes, self._versions)
        gradients = list(map(_GRADIENT, self.states))
        now = (gradients, addresses_of(memory), list(map(_NBYTES, memory)), versions_of(memory))
        if all(map(operator.is_, gradients, memory)) and now[1:] == columns[1:]:
            return []
        same = zip(
            map(operator.is_, gradients, memory), *(map(operator.eq, a, b) for a, b in zip(now[1:], columns[1:]))
        )
        return [row for row, equal in enumerate(same) if not all(equal)]

    def check_in_place(self):
        """Raises HoroError if a gradient that was submitted is not the parameter's gradient any more."""
        for state, memory, storage in zip(self.states, self.memory, self._storages):
            given = self._given.get(state) if storage is None else memory
            if given is not None and state.param.grad is not given:
                raise HoroError(
                    f"gradient {state.name} was replaced on rank {_default.rank()} while it was in flight. With "
                    "cross_barrier=True call optimizer.synchronize() before you change gradients"
                )

    def check_memory(self, row):
        """Raises HoroError if the submitted memory was moved, resized or written to since the submit."""
        name, memory = f"gradient {self.states[row].name}", self.memory[row]
        if memory.data_ptr() != self.addresses[row] or memory.nbytes != self._nbytes[row]:
            raise HoroError(moved_text(name, self._nbytes[row], memory.nbytes))
        if version_of(memory) != self._versions[row]:
            raise HoroError(
                f"{name} was written to on rank {_default.rank()} while it was in flight, by a hook or another thread: "
                "what it was and what was written are mixed. Change gradients after backward(), and with "
                "cross_barrier=True after optimizer.synchronize()"
            )


def addresses_of(tensors):
    return list(map(torch.Tensor.data_ptr, tensors))


def version_of(tensor):
    """The version counter of autograd, which counts writes; 0 for a tensor made in inference mode, which has none."""
    try:
        return tensor._version
    except RuntimeError:
        return 0


def versions_of(tensors):
    try:
        return list(map(_VERSION, tensors))
    except RuntimeError:
        return [version_of(tensor) for tensor in tensors]
