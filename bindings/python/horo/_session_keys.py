"""The declared tensors of a session: equal specs share a key, and what nothing refers to any more is undeclared."""

import collections
import ctypes

from horo import _native
from horo._native import quick
from horo._specs import fill

MAX_KNOWN_SPECS = 1 << 16  # specs whose keys are cached here


def array_of(works):
    """The works as a ctypes array for a foreign call."""
    return works if isinstance(works, ctypes.Array) else (ctypes.c_int64 * len(works))(*works)


class Key(int):
    """A declared tensor. It is declared as long as an object refers to this one: a cache may drop it at any time."""

    unused = collections.deque(maxlen=0)  # until the session sets its own

    def __del__(self):
        self.unused.append(int(self))  # never blocks or locks; a later submit undeclares it


class Keys:
    """The half of Session that declares tensors."""

    def __init__(self):
        super().__init__()
        self._keys = {}  # spec: key
        self._unused = collections.deque()  # keys that nothing refers to any more; any thread appends
        self._once = set()  # specs that were submitted once
        self.repeats = {}  # name: Repeat of its last allreduce_async_, unless in flight

    def key(self, spec):
        """Declares a tensor. Equal specs have the same key."""
        found = self._keys.get(spec)
        if found is None:
            if len(self._keys) >= MAX_KNOWN_SPECS:
                self._keys.clear()
            if self._unused:
                self._undeclare()
            declared = fill(spec)
            while (status := quick.horo_declare(self.pointer, declared)) < 0 and self._gave_room(status):
                pass
            found = Key(self._check(status))
            found.unused = self._unused
            self._keys[spec] = found
        return found

    def _undeclare(self):
        keys = []
        while self._unused:
            try:
                keys.append(self._unused.popleft())
            except IndexError:  # another thread was faster
                break
        self._check(quick.horo_undeclare(self.pointer, array_of(keys), len(keys)))

    def _gave_room(self, status):
        """After a refused call: True if there was no room for another tensor, and the caches gave keys back."""
        full = status == _native.INVALID_ARGUMENT and b"HORO_MAX_TENSORS" in quick.horo_error_text(self.pointer)
        if full:
            self._keys.clear()
            self.repeats.clear()
        if not full or not self._unused:
            return False
        self._undeclare()
        return True

    def _key_of_second(self, spec):
        """The key of a spec that was submitted before, else None: a name that is used once costs no declaration."""
        if spec in self._once:
            self._once.discard(spec)
            return self.key(spec)
        if len(self._once) >= MAX_KNOWN_SPECS:
            self._once.clear()
        self._once.add(spec)
        return None
