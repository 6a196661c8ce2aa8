"""The tensors of a test's rank count as tensors of a CUDA device: they travel by the device path over the fake of the
plug-in (tests/ring/cuda/fake_cuda.h), whose copies are late. TEST_DEVICE=fake asks for it: the fork server installs it,
and tests/fake_site in PYTHONPATH does it in every interpreter.

torch's operators of such tensors run at once, as they are tensors of the CPU: where a stream waits for results, the
thread waits for the stream. What horo makes for itself stays one of the host where horo takes its address itself.
Copies to the host and marks are late, too: a mark is reached when it was asked `late` times, or when a caller waits.
With HORO_NCCL_LIBRARY, the same library, the tensors are reduced by the fake of NCCL."""

import contextlib
import ctypes
import importlib.util
import os
import sys
import threading

NAME = "horo.torch.devices"


def fake():
    """The library, or None over the fake of the driver, which has one stream that is done at once."""
    path = os.environ.get("HORO_CUDA_LIBRARY")
    return ctypes.CDLL(path) if path else None


class SideStream:
    """The streams of threads: that of Places.side_stream(), which the process makes when it is needed first, or the
    default stream."""

    def __init__(self):
        self._lock, self._pointer = threading.Lock(), None
        self._here = threading.local()  # .stream

    def current(self):
        """The stream of this thread; None: the default stream."""
        return getattr(self._here, "stream", None)

    @contextlib.contextmanager
    def entered(self):
        before, self._here.stream = self.current(), self._made()
        try:
            yield
        finally:
            self._here.stream = before

    def _made(self):
        with self._lock:
            if self._pointer is None and (library := fake()):
                library.fake_cuda_stream.restype = ctypes.c_void_p
                self._pointer = library.fake_cuda_stream(False)
            return self._pointer


side_stream = SideStream()


class FakeMark:
    """See Places.mark()."""

    def __init__(self, places, copies):
        self._places, self._copies, self._left = places, copies, places.late

    def query(self):
        self._left -= 1
        if self._left < 0:
            self._arrive()
        return self._left < 0

    def synchronize(self):
        self._places.waits += 1
        self._left = 0
        self._arrive()

    def elapsed_time(self, other):
        assert not other._copies, "the other mark is not reached"
        return self._places.hash_ms

    def _arrive(self):
        for target, values in self._copies:
            target.copy_(values)
        self._copies.clear()


def places_of(devices):
    """The places of a module horo.torch.devices on which all tensors that users give are on device 0."""

    class FakePlaces(devices.Places):
        late = 1
        marks = 0
        waits = 0  # of callers for marks
        hash_ms = 0.01  # what a pair of marks tells

        def __init__(self):
            self._copies = []  # since the last mark

        def copy_to_device_later(self, values, device):
            return values.clone()

        def copy_to_host_later(self, tensor):
            target = sys.modules["torch"].full_like(tensor, -1)
            self._copies.append((target, tensor.clone()))
            return target

        def mark(self, device):
            copies, self._copies = self._copies, []
            self.marks += 1
            return FakeMark(self, copies)

        def is_host(self, tensor):
            return False

        def number_of(self, tensor):
            return 0

        def settle(self, number):
            pass

        def side_stream(self, number):
            return side_stream.entered()

        def record(self, number):
            return None

        def follow(self, number, event):
            pass

        def has_passed(self, event):
            return True

        def hold(self, tensor):
            pass

        def future(self, numbers):
            return sys.modules["torch"].futures.Future()

        def after_wait(self, number):
            if library := fake():
                stream = ctypes.c_void_p(self.stream_of(number))
                library.fake_cuda_read(stream, None, None, ctypes.c_size_t(0))

        def stream_of(self, number):
            return side_stream.current()

        def copy_from_host(self, tensor, values):
            with sys.modules["torch"].no_grad():
                super().copy_from_host(tensor, values)

    return FakePlaces()


class Finder:
    """Finds the module, and replaces its places as soon as it is imported."""

    def find_spec(self, name, path, target=None):
        if name != NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def run_and_replace(module):
            run(module)
            module.places = places_of(module)

        spec.loader.exec_module = run_and_replace
        return spec


def install():
    """From now on, or from the import of horo.torch on."""
    if NAME in sys.modules:
        sys.modules[NAME].places = places_of(sys.modules[NAME])
    elif not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())


def on_host(call):
    """The result of a call whose tensors are on the CPU."""
    devices = sys.modules[NAME]
    before, devices.places = devices.places, devices.Places()
    try:
        return call()
    finally:
        devices.places = before
