"""The streams on which horo's own threads follow works of devices, on a stand-in of what torch.cuda's contexts call."""

import contextlib
import threading

import pytest
import torch

from horo.torch import devices


class Stream:
    def __init__(self, number):
        self.device = number


class Cuda(threading.local):
    """The current device and streams of a thread, as torch has them. contexts: the devices that have a context of
    CUDA, which all calls make but _maybe_exchange_device()."""

    contexts = set()

    def __init__(self):
        self.device, self.streams = 0, {}

    def current_stream(self, number=None):
        number = self.device if number is None else number
        return self.streams.setdefault(number, Stream(number))

    def set_stream(self, stream):
        self.exchange(stream.device)
        self.streams[stream.device] = stream

    def exchange(self, number):
        before, self.device = self.device, number
        if before != number:
            self.contexts.add(number)
        return before

    def maybe_exchange(self, number):
        before, self.device = self.device, number
        return before


@pytest.fixture
def cuda(monkeypatch):
    found = Cuda()
    monkeypatch.setattr(Cuda, "contexts", set())
    for name, call in {
        "_get_device_index": lambda device, optional=False: found.device if device is None else device,
        "_exchange_device": found.exchange,
        "_maybe_exchange_device": found.maybe_exchange,
        "current_stream": found.current_stream,
        "set_stream": found.set_stream,
        "Stream": Stream,
    }.items():
        monkeypatch.setattr(torch.cuda, name, call)
    monkeypatch.setattr(devices, "places", devices.Places())
    monkeypatch.setattr(devices, "_side_streams", {})
    return found


def in_threads(count, call):
    """The results of the call in new threads that are there at the same time."""
    results, together = [], threading.Barrier(count)

    def run():
        together.wait(60)
        results.append(call())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_thread_makes_no_context_on_another_device(cuda):
    def follow():
        with devices.side_streams({3}), devices.side_streams({3}):
            inside = cuda.device, cuda.current_stream() is devices._side_streams[3]
        return inside, cuda.device

    assert in_threads(1, follow) == [((3, True), 0)]
    assert cuda.contexts == {3}


def test_a_thread_has_its_streams_back_after_an_error(cuda):
    cuda.exchange(1)
    before = cuda.current_stream(1), cuda.current_stream(2)
    with contextlib.suppress(ZeroDivisionError), devices.side_streams({1, 2}):
        raise ZeroDivisionError
    assert (cuda.current_stream(1), cuda.current_stream(2)) == before
    assert cuda.device == 1 and cuda.contexts == {1, 2}


def test_all_threads_have_one_side_stream_of_a_device(cuda):
    def follow():
        with devices.side_streams({1, 2}):
            return cuda.current_stream(1), cuda.current_stream(2)

    assert len(set(in_threads(40, follow))) == 1
