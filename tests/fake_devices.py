"""The tensors of a test's rank count as tensors of a CUDA device: they travel by the device path over the fake of the
plug-in (tests/ring/cuda/fake_cuda.h), whose copies are late. TEST_DEVICE=fake asks for it: the fork server installs it,
and tests/fake_site in PYTHONPATH does it in every interpreter.

torch's operators of such tensors run at once, as they are tensors of the CPU: where a stream waits for results, the
thread waits for the stream. What horo makes for itself stays one of the host where horo takes its address itself.
With HORO_NCCL_LIBRARY, the same library, the tensors are reduced by the fake of NCCL."""

import ctypes
import importlib.util
import os
import sys

NAME = "horo.torch.devices"


def places_of(devices):
    """The places of a module horo.torch.devices on which all tensors that users give are on device 0."""

    class FakePlaces(devices.Places):
        def is_host(self, tensor):
            return False

        def number_of(self, tensor):
            return 0

        def settle(self, number):
            pass

        def after_wait(self, number):
            if library := os.environ.get(
                "HORO_CUDA_LIBRARY"
            ):  # else the fake of the driver, whose streams are done at once
                ctypes.CDLL(library).fake_cuda_read(None, None, None, ctypes.c_size_t(0))

        def stream_of(self, number):
            return None  # the default stream

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
