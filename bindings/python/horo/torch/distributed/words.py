"""Names of calls for the library, and the same names in words for error texts.

The n-th call of a kind in a group has the name "<group>: <kind>; call <PERIOD>k+<n mod PERIOD>".
"""

import re

from horo import _native
from horo._specs import DTYPES

PERIOD = 8
DTYPE_NAMES = {number: name for name, number in DTYPES.items()}
OP_NAMES = {
    _native.AVERAGE: "average",
    _native.SUM: "sum",
    _native.MIN: "minimum",
    _native.MAX: "maximum",
    _native.PRODUCT: "product",
    _native.BIT_AND: "bitwise and",
    _native.BIT_OR: "bitwise or",
    _native.BIT_XOR: "bitwise xor",
}
_NAME = re.compile(rf"(?:tensor )?'(\d+)\.([^:']*): ([^']*); call {PERIOD}k\+(\d+)'")


class Names:
    """The names of the calls of one group. Counts them in the order of the program."""

    def __init__(self, group):
        self._group = group
        self._counts = {}  # kind: how many calls there were, for ever
        self._known = {}  # kind: its names, if it was called more than PERIOD times

    def next(self, kind):
        """(name, number) of the next call of the kind, a tuple of words. Numbers begin with 0."""
        number = self._counts.get(kind, 0)
        self._counts[kind] = number + 1
        known = self._known.get(kind)
        if known is None:
            text = ", ".join(kind)
            if number < PERIOD:
                return self._name(text, number), number
            known = self._known[kind] = [self._name(text, place) for place in range(PERIOD)]
        return known[number % PERIOD], number

    def _name(self, text, number):
        return f"{self._group}: {text}; call {PERIOD}k+{number % PERIOD}"

    def of_callbacks(self, kind, number):
        """What callbacks of the call are known by, which are attached now: with its number, if the name was used
        again."""
        name = self._name(", ".join(kind), number)
        return name if self._counts[kind] - number <= PERIOD else f"{name}, number {number}"

    def explain(self, text, call):
        """The text with names in words. call: (kind, number) of this rank's own, whose number is known."""
        own = call and self._name(", ".join(call[0]), call[1])

        def in_words(found):
            _, group, kind, place = found.groups()
            number = call[1] if own and f"'{own}'" in found.group() else f"{PERIOD}k+{place}"
            return f"call {number} of ({kind}) in process group '{group}'"

        return _NAME.sub(in_words, text)
