"""Where tensors are: the only place that asks for a tensor's device, its memory and the stream that writes it.

A tensor is on the host, or on a CUDA device. `places` has the functions that decide; tests replace it."""

import contextlib
import threading

import torch

from horo import _native
from horo._submissions import DeviceAddress, streams

_side_streams = {}  # by device; never more, since torch has 32 streams of a device and gives them out in turn
_lock = threading.Lock()  # guards _side_streams


class Places:
    """The devices of the installed torch."""

    is_host = staticmethod(torch.Tensor.is_cpu.__get__)

    def is_known(self, tensor):
        """Whether horo moves tensors of this device."""
        return tensor.is_cpu or tensor.is_cuda

    def number_of(self, tensor):
        """The number of the device of a tensor that is not on the host."""
        return tensor.device.index

    def stream_of(self, number):
        """The current stream of this thread on the device, as a pointer."""
        return _raw_stream(number)

    def after_wait(self, number):
        """The current stream of the device waits for results from now on."""

    def settle(self, number):
        """Waits until the current stream of the device has done what it has."""
        torch.cuda.current_stream(number).synchronize()

    @contextlib.contextmanager
    def side_stream(self, number):
        """A context in which the device is the current one, and its current stream is one of this process that has
        only what it got here."""
        # A new thread is on device 0. Without the first context, the second one would go back to a stream of device 0
        # at its end, which makes a CUDA context there.
        with torch.cuda.device(number), torch.cuda.stream(_side_stream_of(number)):
            yield

    def record(self, number):
        """An event that passes when the current stream of the device has done what it has."""
        return torch.cuda.current_stream(number).record_event()

    def follow(self, number, event):
        """The current stream of the device waits for the event from now on."""
        torch.cuda.current_stream(number).wait_event(event)

    def has_passed(self, event):
        return event.query()

    def hold(self, tensor):
        """The memory of the tensor is given to no other tensor before the current stream has done what it has."""
        tensor.record_stream(torch.cuda.current_stream(tensor.device))

    def future(self, numbers):
        """A future whose callbacks, and threads that wait for it, have the tensors of these devices in streams that
        wait for them."""
        return torch.futures.Future(devices=[torch.device("cuda", number) for number in numbers])

    def copy_from_host(self, tensor, values):
        """Copies values of the host into a tensor of a device. They may be freed when this returns."""
        tensor.copy_(values)

    def copy_to_device_later(self, values, device):
        """A copy on the device of a tensor of the host, which the current stream makes."""
        return values.pin_memory().to(device, non_blocking=True)

    def copy_to_host_later(self, tensor):
        """A copy on the host of a tensor of a device. It has the values when the device has reached a later mark."""
        values = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
        return values.copy_(tensor, non_blocking=True)

    def mark(self, device):
        """A mark in the current stream of the device: query() tells whether the device has reached it, synchronize()
        waits, elapsed_time() has the milliseconds to another mark that is reached."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event

    def is_capturing(self):
        """Whether the current stream is captured into a graph, so that no work of it is done now."""
        return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _stream_by_object(number):
    return torch.cuda.current_stream(number).cuda_stream


# Each gradient asks for the stream. This function, private to torch, makes no object for that.
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _stream_by_object)


def _side_stream_of(number):
    with _lock:
        if number not in _side_streams:
            _side_streams[number] = torch.cuda.Stream(number)
        return _side_streams[number]


places = Places()
streams.current = lambda number: places.stream_of(number)
streams.after_wait = lambda number: places.after_wait(number)


def is_host(tensor):
    return places.is_host(tensor)


def is_known(tensor):
    return places.is_known(tensor)


def copy_from_host(tensor, values):
    places.copy_from_host(tensor, values)


def address_of(tensor):
    """The address of the tensor's memory. On a device it is ready when the current stream has done what it has now."""
    if places.is_host(tensor):
        return tensor.data_ptr()
    number = places.number_of(tensor)
    return DeviceAddress(tensor.data_ptr(), number, places.stream_of(number))


def numbers_of(tensors):
    """The numbers of the devices of tensors, which may be in lists; of the host none."""
    numbers = set()
    for each in tensors:
        if not isinstance(each, torch.Tensor):
            numbers |= numbers_of(each)
        elif not places.is_host(each):
            numbers.add(places.number_of(each))
    return numbers


def hold(tensor):
    if not places.is_host(tensor):
        places.hold(tensor)


def side_streams(numbers):
    """A context in which the current streams of these devices have only what the process's threads did in such
    contexts."""
    entered = contextlib.ExitStack()
    for number in numbers:
        entered.enter_context(places.side_stream(number))
    return entered


def type_of(tensor):
    """horo_tensor_spec.device_type"""
    return _native.HOST if places.is_host(tensor) else _native.CUDA
