"""Tensors that are reduced in place, alone or in a unit: one memory is in flight once."""

import weakref

from horo import _default
from horo._handles import is_in_flight

MOST = 1 << 16  # addresses that are known


class InPlace:
    """The first allreduce_async_ under each name, by the address of its tensor: another one of the same memory would
    reduce what the first one is reducing. The repeated calls of a name are not noted, so that they cost nothing: two
    names of one tensor meet in their first step."""

    def __init__(self):
        self._found = {}  # address: session, name, number of the handle, the Repeat of later calls or None (weak)

    def check(self, session, address, name, call="allreduce_async_"):
        """Raises ValueError if the memory at the address is in flight under another name. None: a tensor without
        elements."""
        found = self._found.get(address)
        if found is None or found[0]() is not session or (found[1] == name and name):
            return
        _, before, number, repeat = found
        if is_in_flight(number) or ((repeat := repeat()) is not None and repeat.is_in_flight(address)):
            raise ValueError(
                f"horo.{call}: the memory of {name or 'a tensor without a name'} is in flight on rank "
                f"{_default.rank()} as that of {before or 'a tensor without a name'}: both would be reduced in the "
                "same place. Synchronize the handle of the first call before, or call allreduce_async, which makes a "
                "new tensor"
            )

    def add(self, session, address, name, handle, repeat):
        if address is None:
            return
        if len(self._found) >= MOST:
            self._found.clear()
        weak = (lambda: None) if repeat is None else weakref.ref(repeat)
        self._found[address] = weakref.ref(session), name, int(handle), weak


def check_apart(memories, place, name):
    """Raises ValueError if two tensors of a unit would be reduced in the same memory. place: as Arrays.place."""
    spans = sorted((place(each), each.nbytes, i) for i, each in enumerate(memories, 1) if each.nbytes)
    for (begin, nbytes, one), (after, _, other) in zip(spans, spans[1:]):
        if after < begin + nbytes:
            raise ValueError(
                f"horo.grouped_allreduce_: tensors {min(one, other)} and {max(one, other)} of {name or 'the unit'} "
                "share memory; expected each tensor once"
            )
