"""One look of the audit: the exchanges in which ranks compare their Snapshots.

All exchanges are all_reduces with the maximum, which continue without ranks that have joined. The maximum of a number
and of its complement shows whether all ranks have the same number. The first exchange has a few numbers: a digest of
all entries. If it differs, a second one has the keys and the hashes of all entries, and finds the first difference; a
third one has a row per rank about this entry.

If tensors are on devices, their hashes arrive some steps later, and a look in step() waits for nothing before it has
found a difference: it begins the first exchange in a later step, and asks at each one whether it has ended. The other
exchanges, which wait, begin in a step that is the same on all ranks, so that all know the difference after that step.
"""

import dataclasses
import os
import struct

import torch

from horo import _native
from horo._specs import Max, Spec
from horo.errors import HoroError
from horo.torch.arrays import DTYPES

_LARGEST = (1 << 63) - 1  # the key of no entry
_ROW = struct.Struct("<BBq200s100s")  # takes part, has the entry, its hash, label and value
_MOST_NAMED = 8  # entries that a Finding names
_MOST_WAITS = 5  # steps that wait for an exchange after a difference
_UNTIL_KNOWN = 2  # steps from the last rank's exchange on; in the first one it may still be on its way to some


@dataclasses.dataclass
class Finding:
    """The first difference."""

    label: str
    groups: list  # (text of the value or None if the entry is absent, ranks), the largest group first
    keys: list  # of the entries that differ, ascending; the first one's is the label's
    others: list  # labels of the next ones
    is_complete: bool  # all entries were compared; else those up to the last key, from which on entries are missing

    @property
    def ranks(self):
        """The ranks that differ from the largest group."""
        return sorted(rank for _, ranks in self.groups[1:] for rank in ranks)

    @property
    def participants(self):
        """The ranks that take part in the look."""
        return sorted(rank for _, ranks in self.groups for rank in ranks)


@dataclasses.dataclass
class Result:
    """What all ranks of a look know after it."""

    finding: Finding | None
    is_valid: bool  # all ranks have looked after the same step; else nothing was compared
    steps: int  # the most of all ranks
    cost_us: int  # the longest that a rank took to hash
    steps_us: int  # the longest duration of a step since the last look
    known_after: int  # steps; all ranks know it after this one, or at once where tensors are on the host
    is_given_up: bool = False  # not valid, because a rank has taken part without having looked


class _Hold:
    """A pause of a look, until the rank has made this number of steps."""

    def __init__(self, steps, steps_now):
        self._steps, self._steps_now = steps, steps_now

    def is_over(self):
        return self._steps_now() >= self._steps

    def wait(self, until):
        """The caller, which waits for all ranks, ends the pause at once."""
        return True


def compare(take, steps_now, process_set, failed):
    """A generator that yields (name, tensor) for each all_reduce, which is made in place, and pauses. Returns a Result.

    take: a function that returns a Snapshot, and the microseconds of the hashing on the host, and of the steps since
    the last look. steps_now: a function, the steps that this rank has made. failed: a function that gets the error of
    this rank's hashing; the rank takes part all the same, because others wait for it."""
    steps = known_after = steps_now()
    row = _row_without_look(steps)
    try:
        snapshot, times = take()
        if snapshot.arrival is not None:
            yield snapshot.arrival
            snapshot.complete()
            known_after = steps_now() + _UNTIL_KNOWN
        digest = _digest_of(snapshot)
        row = [digest, ~digest, steps, -steps, len(snapshot), times[0] + snapshot.device_us, times[1], known_after]
    except Exception as error:  # of the state of the optimizer, or of the memory of a device
        failed(error)
    numbers = torch.tensor(row, dtype=torch.int64, device="cpu")
    yield "digest", numbers
    high, low, most_steps, least_steps, count, *others = numbers.tolist()
    result = Result(None, most_steps == -least_steps, most_steps, *others, least_steps == _LARGEST)
    if result.is_valid and high != ~low:
        if result.known_after > steps:
            yield _Hold(result.known_after, steps_now)
        result.finding = yield from _find(snapshot, count, process_set)
    return result


def _row_without_look(steps):
    """The row of a rank that has not looked: with it the result is never valid."""
    return [0, 0, steps, _LARGEST, 0, 0, 0, steps]


def _digest_of(snapshot):
    both = torch.cat([snapshot.keys, snapshot.hashes])
    out = torch.empty(1, dtype=torch.int64, device="cpu")
    pointers, sizes = (_native.c_void_p * 1)(both.data_ptr()), (_native.c_uint64 * 1)(both.nbytes)
    _native.slow.horo_hash_many(pointers, sizes, 1, out.data_ptr())
    return int(out)


def _padded(values, count, filler):
    padding = torch.full((count - len(values),), filler, dtype=torch.int64, device="cpu")
    return torch.cat([values, padding])


def _find(snapshot, count, process_set):
    keys, hashes = _padded(snapshot.keys, count, _LARGEST), _padded(snapshot.hashes, count, 0)
    both = torch.cat([keys, ~keys, hashes, ~hashes])
    yield "entries", both
    most_key, least_key, most_hash, least_hash = both.split(count)
    other_keys = (most_key != ~least_key).nonzero().flatten()
    compared = count if len(other_keys) == 0 else int(other_keys[0])
    places = (most_hash[:compared] != ~least_hash[:compared]).nonzero().flatten()
    different = most_key[places].tolist()
    if compared < count:  # the least key at the first place where keys differ: some ranks do not have it
        different.append(~int(least_key[compared]))
    rows = yield from _rows(_row_of(snapshot, int(places[0]) if len(places) else compared, different[0]), process_set)
    others = [snapshot.label(each) for each in places[1:_MOST_NAMED].tolist()]
    return Finding(*_groups(rows), different, others, compared == count)


def _row_of(snapshot, place, key):
    if place >= len(snapshot) or int(snapshot.keys[place]) != key:
        return _row(False)
    return _row(True, int(snapshot.hashes[place]), snapshot.label(place), snapshot.value(place))


def _row(has, number=0, label="", value=""):
    cut = [text.encode(errors="replace") for text in (label, value)]
    return _ROW.pack(1, has, number, cut[0][:200], cut[1][:100])


def _rows(mine, process_set):
    """The rows of all ranks of the look, by rank."""
    ranks = process_set.ranks
    table = torch.zeros(process_set.members() * _ROW.size, dtype=torch.uint8, device="cpu")
    begin = process_set.rank() * _ROW.size
    table[begin : begin + _ROW.size] = torch.frombuffer(bytearray(mine), dtype=torch.uint8)
    yield "rows", table
    rows = _ROW.iter_unpack(bytes(table.tolist()))
    return {rank: row[1:] for rank, row in zip(ranks, rows) if row[0]}


def _groups(rows):
    """The label of the entry, and (text of the value, ranks) by decreasing number of ranks."""
    groups, label = {}, ""
    texts = {rank: row[3].rstrip(b"\0").decode(errors="replace").split("\n") for rank, row in rows.items() if row[0]}
    choice = -1 if len({len(text) for text in texts.values()}) == 1 else 0  # not if only some are on devices
    for rank, (has, number, name, _) in sorted(rows.items()):
        text = texts[rank][choice] if has else None
        groups.setdefault((has, number), (text, []))[1].append(rank)
        label = label or name.rstrip(b"\0").decode(errors="replace")
    return label, sorted(groups.values(), key=lambda group: (-len(group[1]), group[1]))


class Debt:
    """The first exchange of a look, for which other ranks may wait. Keeps nothing of the optimizer alive."""

    def __init__(self):
        self._look = None  # session, spec and row of an exchange that has not begun

    def begin(self, session, spec, steps):
        self._look = session, spec, _row_without_look(steps)

    def end(self):
        self._look = None

    def pay(self):
        """Takes part without having looked. Never blocks, so that a finalizer may call it."""
        look, self._look = self._look, None
        if look is None:
            return
        session, spec, row = look
        if session.closed or session.pid != os.getpid():
            return
        numbers = torch.tensor(row, dtype=torch.int64, device="cpu")
        try:
            session.drop([session.submit(spec, numbers.data_ptr(), numbers.data_ptr(), numbers)])
        except (HoroError, ValueError):  # the session ends, or the process set was removed
            pass


class Look:
    """A comparison in progress. It continues when advance() is called."""

    def __init__(self, place, name, steps, exchanges, debt):
        """place: the session, and the number of the process set. name: equal on all ranks. steps: after which it is
        made. exchanges: compare(). debt: a Debt of no other look that is in progress."""
        self.session, self._number = place
        self.result = None
        self._name, self._steps, self._exchanges = name, steps, exchanges
        self._debt = debt
        self._waits = 0
        self._work = self._pause = None
        self.is_late = False  # hashes come from devices
        self._is_asked = False  # whether the exchange has ended; step() does not wait for it
        debt.begin(self.session, self._spec("digest", torch.int64, (8,)), steps)
        self._continue()

    def _continue(self, error=None):
        """error: of the pause."""
        try:
            step = next(self._exchanges) if error is None else self._exchanges.throw(error)
        except StopIteration as end:
            self.result = end.value
            return
        if not isinstance(step, tuple):
            self.is_late, self._pause = True, step
            return
        part, tensor = step
        self._is_later = part != "digest"
        self._is_asked = self.is_late and not self._is_later
        if part == "digest":
            self._debt.end()
        spec = self._spec(part, tensor.dtype, tuple(tensor.shape))
        self._work = self.session.submit(spec, tensor.data_ptr(), tensor.data_ptr(), tensor)

    def _spec(self, part, dtype, shape):
        """The later exchanges have the step in their names, because a rank may leave them in flight."""
        name = f"{self._name}.{part}" if part == "digest" else f"{self._name}.{self._steps}.{part}"
        return Spec(name, _native.ALL_REDUCE, Max, DTYPES[dtype], shape, set=self._number)

    def advance(self, until, in_step=False):
        """Continues until the end, at most until this time of time.monotonic(); None: without a limit. Returns whether
        it has ended. Raises the error of the exchange; the look cannot continue then."""
        while self.result is None:
            error = None
            if self._pause is not None:
                try:
                    if not (self._pause.is_over() if in_step else self._pause.wait(until)):
                        return False
                except Exception as found:  # of a device; the other ranks wait for the exchange
                    error = found
                self._pause = None
            elif not self._has_exchanged(0 if in_step and self._is_asked else until):
                self._count_wait(in_step)
                return False
            self._continue(error)
        return True

    def _count_wait(self, in_step):
        """Raises HoroError if other ranks have left a look in which a difference was found."""
        self._waits += in_step and self._is_later
        if self._waits > _MOST_WAITS:
            raise HoroError(f"ranks have left the look after step {self._steps}")

    def _has_exchanged(self, until):
        if until is None:
            self.session.wait([self._work])
        elif not self.session.wait_until([self._work], until):
            return False
        work, self._work = self._work, None
        self.session.release([work])
        return True

    def drop(self):
        """Its exchange is not waited for any more."""
        self._debt.pay()
        if self._work is not None:
            self.session.drop([self._work])
            self._work = None


def raise_first(errors):
    """Raises the first of these errors. The frames of its traceback do not hold it: no cycle keeps an optimizer."""
    if errors:
        first = errors[0]
        errors.clear()
        try:
            raise first
        finally:
            del first
