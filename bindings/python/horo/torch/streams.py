"""Round streams: which optimizers reduce gradients in a process set, and how their tensors are named.

A stream is the sequence of rounds of one optimizer. Its number follows from the names of the optimizer's parameters,
so that it is the same on all ranks, in whatever order a rank wraps its optimizers. If two streams share
the name of a parameter, the tensors of both carry the number of their stream.
"""

import contextlib
import hashlib
import threading
import weakref

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from horo._growth import on_growth

GROWN = 1 << 32  # the numbers of _Streams.anew after a growth begin here
MAX_STREAMS = 1024  # per process set, and places of the vector in which ranks tell which streams a backward has reached

_sets = weakref.WeakKeyDictionary()  # Session: {number of a process set: _Streams}; not of the world
_joined = WeakTensorKeyDictionary()  # parameter: the Stream in which it was wrapped last
_lock = threading.Lock()
_local = threading.local()

# Autograd runs the hooks of a GPU in one thread of its own, whatever threads call backward, and has further threads for
# deep nesting. What torch stores for a thread under a key is also there in those that work for its backward. These
# functions are private to torch.
_KEY = "horo.backward"
_store = getattr(torch._C, "_stash_obj_in_tls", None)
_stored = getattr(torch._C, "_get_obj_in_tls", None)
_is_stored = getattr(torch._C, "_is_key_in_tls", None)
_remove = getattr(torch._C, "_remove_obj_from_tls", None)  # of recent versions
CARRIES = None not in (_store, _is_stored, _stored)


class Thread:
    """A thread that uses optimizers. The system reuses its numbers of threads."""

    __slots__ = ("backward", "unfinished", "_number")

    def __init__(self):
        self.backward = None  # the BackwardPass of its outermost backward
        self.unfinished = None  # the exchange of its last round; see rounds.py
        self._number = threading.get_ident()

    @property
    def is_main(self):
        return self._number == threading.main_thread().ident


def own_thread():
    """The Thread that calls, whatever it works for."""
    if not hasattr(_local, "thread"):
        _local.thread = Thread()
    return _local.thread


def this_thread():
    """The Thread that calls. In a thread of autograd it is the one for whose backward that works."""
    found = carried()
    return found.thread if found is not None and found.is_active else own_thread()


def carry(backward):
    """From now on carried() of this thread is this BackwardPass, or None. In the threads of autograd it is what it was
    in the calling thread when backward began."""
    if not CARRIES:
        return
    if backward is None and _remove is not None:  # the end of a thread with an object would wait for the interpreter
        _remove(_KEY)
    else:
        _store(_KEY, backward)


def carried():
    """The BackwardPass for which this thread works. None: there is none, or torch does not tell it."""
    return _stored(_KEY) if CARRIES and _is_stored(_KEY) else None


class Stream:
    """The rounds of one optimizer. An optimizer that is wrapped again keeps its stream."""

    def __init__(self, streams, tag, names):
        self._streams = streams
        self.tag, self.names = tag, list(names)
        self.is_attached = False
        self._anew = streams.anew
        self._set_label(f"{tag}.copy", True)
        self.is_exchanged = True  # a backward tells the other ranks that it has reached the stream
        self.steps = 0  # of its optimizers, one more for each optimizer after the first
        self.wraps = 1  # how often its parameters were wrapped
        self.thread = this_thread()  # that used the optimizer last

    def _set_label(self, label, is_twin):
        self.label, self.number = label, _number(label)
        self.is_twin = is_twin  # another stream has the same names

    def attach(self):
        """The optimizer is used: from now on the stream counts among those of its process set, on all ranks alike."""
        if not self.is_attached:
            self.is_attached = True
            self._anew = self._streams.anew
            self._set_label(*self._streams.add(self))

    def add_names(self, names):
        """The optimizer has got parameters of these names."""
        self.names += names
        if self.is_attached:
            self._streams.add_names(self.tag, names)

    def start_anew(self):
        """A round of this stream has shown that the ranks of the set have different optimizers: the streams of the set
        count from here, on all ranks alike. Optimizers that are used again are added again. Once, for however many
        rounds of these streams."""
        with _lock:
            if self._anew == self._streams.anew:
                self._streams.start_anew()

    def tensor_name(self, name):
        """The name of a parameter's tensor in the process set."""
        shared = self.is_twin or len(self._streams.names.get(name, ())) > 1
        return f"{name} (optimizer {self.label})" if shared else name

    @property
    def version(self):
        """Changes whenever tensor_name() may change."""
        return self._streams.version

    def companions(self):
        """The exchanged streams of this set that the same thread uses, this one included, by number."""
        found = (one for one in self._streams.recent if one.is_exchanged and one.thread == self.thread)
        return sorted({one.number for one in found})


class _Streams:
    """The streams of one process set in one session; those of the world remain in the next session."""

    def __init__(self):
        self.names = {}  # name of a parameter: the tags of the streams that have it
        self.recent = []  # the last MAX_STREAMS streams
        self.version = 0
        self._counts = {}  # tag: number of streams
        self.anew = 0  # how often they were forgotten: the rounds of later ones are others

    def add(self, stream):
        """Returns the label of the stream, and whether another one has its tag."""
        count = self._counts.get(stream.tag, 0)
        self._counts[stream.tag] = count + 1
        self.recent.append(stream)
        if len(self.recent) > MAX_STREAMS:
            self._forget(self.recent.pop(0))
        self.add_names(stream.tag, stream.names)
        label = stream.tag if count == 0 else f"{stream.tag}.{count}"
        return f"{label}.anew{self.anew}" if self.anew else label, count > 0

    def start_anew(self):
        """Forgets all streams. Those that are used again are added again, in the order of use."""
        for stream in self.recent:
            stream.is_attached = False
        for each in (self.names, self.recent, self._counts):
            each.clear()
        self.version += 1
        self.anew += 1

    def add_names(self, tag, names):
        for name in names:
            self.names.setdefault(name, set()).add(tag)
        self.version += 1

    def _forget(self, stream):
        if any(one.tag == stream.tag for one in self.recent):
            return
        for name in stream.names:
            tags = self.names[name]
            tags.discard(stream.tag)
            if not tags:
                del self.names[name]


_world = _Streams()


@on_growth
def _count_from_growth(growths):
    """A rank that has joined does not know how often the others had wrapped optimizers before: the streams of the world
    count from here. Optimizers that are used again are added again, in the order of use."""
    with _lock:
        _world.start_anew()
        _world.anew = GROWN + growths


@contextlib.contextmanager
def detached():
    """A context in which new streams do not count until they are used: one rank may copy an optimizer alone."""
    _local.is_detached = True
    try:
        yield
    finally:
        _local.is_detached = False


def stream_of(session, number, names, params):
    """Returns the Stream of an optimizer. names: of its parameters when it was wrapped."""
    text = "\n".join(sorted(map(str, names)))
    tag = hashlib.sha256(text.encode()).hexdigest()[:8]
    is_detached = getattr(_local, "is_detached", False)
    with _lock:
        streams = _world if number == 0 else _sets.setdefault(session, {}).setdefault(number, _Streams())
        before = {_joined.get(param) for param in params}
        stream = before.pop() if len(before) == 1 else None
        if stream is None or stream not in streams.recent or stream.tag != tag:
            stream = Stream(streams, tag, names)
            if not is_detached:
                stream.attach()
        else:
            stream.steps += 1
            stream.wraps += 1
        for param in params:
            _joined[param] = stream
        return stream


def _number(label):
    """63 bits that are the same on all ranks, and never 0."""
    return int.from_bytes(hashlib.sha256(label.encode()).digest()[:8], "big") >> 1 | 1
