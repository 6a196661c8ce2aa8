"""The memory of a submission: addresses on the host, or on a CUDA device; and the works of devices."""

import ctypes

from horo import _native
from horo._specs import on_device


class DeviceAddress(int):
    """The address of memory on a CUDA device, the number of the device, and the stream (a pointer, 0: the default
    stream) on which the memory has its values, as it was when this object was made."""

    def __new__(cls, address, device, stream):
        self = super().__new__(cls, address)
        self.device, self.stream = device, stream
        return self


def is_on_device(data_in, data_out):
    """Whether the memory of a submission, of which one may be None, is on a device."""
    return type(data_out if data_in is None else data_in) is DeviceAddress


def submission_of(data_in, data_out, splits=None, absent=False, out_bytes=0):
    """horo_submission"""
    place = {}
    if is_on_device(data_in, data_out):
        memory = data_out if data_in is None else data_in
        place = {"device_type": _native.CUDA, "device": memory.device, "stream": memory.stream}
        out_bytes = _native.OUT_ON_DEVICE if data_out is None else out_bytes
    return _native.Submission(
        struct_bytes=ctypes.sizeof(_native.Submission),
        absent=absent,
        splits=None if splits is None else (ctypes.c_int64 * len(splits))(*splits),
        split_count=0 if splits is None else len(splits),
        out=data_out,
        out_bytes=out_bytes,
        **{"in": data_in},
        **place,
    )


def placed(spec, data_in, data_out):
    """The spec, on the device of this memory."""
    return on_device(spec) if is_on_device(data_in, data_out) else spec


class Streams:
    """The streams of the calling thread; horo.torch knows them.

    current(device): the current stream of the device, as a pointer. after_wait(device): the current stream waits for
    the results of works from now on."""

    current = after_wait = None


streams = Streams()


class DeviceWorks(dict):
    """The works of tensors on devices that were not released: the number of the device, and the stream, by work."""

    device = None  # the number of the one that was used last

    def add(self, works, addresses):
        """addresses: (data_in, data_out) of each work"""
        for work, (data_in, data_out) in zip(works, addresses):
            if is_on_device(data_in, data_out):
                memory = data_out if data_in is None else data_in
                self[work] = (memory.device, memory.stream)
                self.device = memory.device

    def devices_of(self, works):
        return {place[0] for place in map(self.get, works) if place is not None}

    def is_followed(self, work):
        """Whether the work is one of these, and was submitted on the current stream. Then what is done with the work's
        memory after a wait is enqueued behind the work, also by an allocator that gives the memory to another tensor.
        """
        place = self.get(work)  # once: another thread may release it
        if place is None:
            return False
        device, stream = place
        return (streams.current(device) or 0) == (stream or 0)
