"""One look of the audit: the exchanges in which ranks compare their Snapshots.

All exchanges are all_reduces with the maximum, which continue without ranks that have joined. The maximum of a number
and of its complement shows whether all ranks have the same number. The first exchange has a few numbers: a digest of
all entries. If it differs, a second one has the keys and the hashes of all entries, and finds the first difference; a
third one has a row per rank about this entry.
"""

import dataclasses
import struct

import torch

from horo import _native
from horo._specs import Max, Spec
from horo.torch.arrays import DTYPES

_LARGEST = (1 << 63) - 1  # the key of no entry
_ROW = struct.Struct("<BBq200s100s")  # takes part, has the entry, its hash, label and value
_MOST_NAMED = 8  # entries that a Finding names


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


def compare(snapshot, steps, times, process_set):
    """A generator that yields (name, tensor) for each all_reduce, which is made in place, and returns a Result.

    steps: of this rank. times: microseconds of the hashing, and of the steps since the last look."""
    digest = _digest_of(snapshot)
    numbers = torch.tensor([digest, ~digest, steps, -steps, len(snapshot), *times], dtype=torch.int64, device="cpu")
    yield "digest", numbers
    high, low, most_steps, least_steps, count, cost_us, steps_us = numbers.tolist()
    result = Result(None, most_steps == -least_steps, most_steps, cost_us, steps_us)
    if result.is_valid and high != ~low:
        result.finding = yield from _find(snapshot, count, process_set)
    return result


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
    for rank, (has, number, name, value) in sorted(rows.items()):
        text = value.rstrip(b"\0").decode(errors="replace") if has else None
        groups.setdefault((has, number), (text, []))[1].append(rank)
        label = label or name.rstrip(b"\0").decode(errors="replace")
    return label, sorted(groups.values(), key=lambda group: (-len(group[1]), group[1]))


class Look:
    """A comparison in progress. It continues when advance() is called."""

    def __init__(self, session, name, number, exchanges):
        """name: equal on all ranks. number: of the process set. exchanges: compare()."""
        self.session = session
        self.result = None
        self._name, self._number, self._exchanges = name, number, exchanges
        self._work = None
        self._continue()

    def _continue(self):
        try:
            part, tensor = next(self._exchanges)
        except StopIteration as end:
            self.result = end.value
            return
        shape = tuple(tensor.shape)
        spec = Spec(f"{self._name}.{part}", _native.ALL_REDUCE, Max, DTYPES[tensor.dtype], shape, set=self._number)
        self._work = self.session.submit(spec, tensor.data_ptr(), tensor.data_ptr(), tensor)

    def advance(self, until):
        """Continues until the end, at most until this time of time.monotonic(); None: without a limit. Returns whether
        it has ended. Raises the error of the exchange; the look cannot continue then."""
        while self.result is None:
            if until is None:
                self.session.wait([self._work])
            elif not self.session.wait_until([self._work], until):
                return False
            work, self._work = self._work, None
            self.session.release([work])
            self._continue()
        return True

    def drop(self):
        """Its exchange is not waited for any more."""
        if self._work is not None:
            self.session.drop([self._work])
            self._work = None
