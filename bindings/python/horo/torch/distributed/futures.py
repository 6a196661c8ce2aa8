"""Futures of works, whose callbacks know whose they are.

A callback may run in the thread that completes the future or, if it is attached later, in the program's. So that what
it starts has the same names on all ranks either way, it is known by the work and by its number among the work's
callbacks. Only a class that torch makes can carry an error to DDP's reducer, and it takes no attributes: `then` and
`add_done_callback` of that class look up whether a future is one of these.
"""

import functools
import itertools
import weakref

import torch

from horo.torch.distributed.completion import run_callbacks_of

_Future = torch._C.Future
_then, _add_done_callback = _Future.then, _Future.add_done_callback
_marked = weakref.WeakKeyDictionary()  # future: _Callbacks, which must not reach the future, nor the work that has it


class _Callbacks:
    """Numbers the callbacks of a future."""

    def __init__(self, name_now):
        self._name_now, self._numbers = name_now, itertools.count()

    def next(self, callback):
        """(name, the callback under that name)"""
        name = f"{self._name_now()}+{next(self._numbers)}"
        return name, lambda done: run_callbacks_of(name, functools.partial(callback, done))


def mark(future, name_now):
    """The callbacks of the future are those of the work whose name this function returns. The function must not hold
    the work: the work holds the future, and neither would ever be released."""
    _marked[future] = _Callbacks(name_now)
    return future


@functools.wraps(_then)
def then(self, callback):
    callbacks = _marked.get(self)
    if callbacks is None:
        return _then(self, callback)
    name, named = callbacks.next(callback)
    return mark(_then(self, named), lambda: name)


@functools.wraps(_add_done_callback)
def add_done_callback(self, callback):
    callbacks = _marked.get(self)
    _add_done_callback(self, callback if callbacks is None else callbacks.next(callback)[1])


_Future.then, _Future.add_done_callback = then, add_done_callback
