"""A plain copy between two processes: process_vm_readv of touched memory into touched memory, by one thread."""

import ctypes
import mmap
import os
import statistics
import time

ROUNDS = 9


class _Span(ctypes.Structure):  # struct iovec
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.process_vm_readv.restype = ctypes.c_ssize_t
_span = ctypes.POINTER(_Span)
_libc.process_vm_readv.argtypes = [
    ctypes.c_int,
    _span,
    ctypes.c_ulong,
    _span,
    ctypes.c_ulong,
    ctypes.c_ulong,
]


def _touched(size):
    """Anonymous memory of which every page is there. Returns (its owner, its address)."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ctypes.memset(address, 1, size)
    return memory, address


def _read(pid, to, address, size):
    done = 0
    while done < size:
        here, there = _Span(to + done, size - done), _Span(address + done, size - done)
        got = _libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if got <= 0:
            raise OSError(ctypes.get_errno(), "process_vm_readv of a child process")
        done += got


def copy_us(size):
    """Microseconds in which this process reads `size` bytes from a child process: the median of ROUNDS copies."""
    (told, tell), (until, end) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        kept, address = _touched(size)
        os.write(tell, address.to_bytes(8, "little"))
        os.read(until, 1)  # the end of this pipe
        del kept
        os._exit(0)
    try:
        address = int.from_bytes(os.read(told, 8), "little")
        kept, to = _touched(size)
        times = []
        for _ in range(ROUNDS + 1):
            begin = time.perf_counter()
            _read(child, to, address, size)
            times.append(1e6 * (time.perf_counter() - begin))
        del kept
        return statistics.median(times[1:])
    finally:
        for one in (told, tell, until, end):
            os.close(one)
        os.waitpid(child, 0)
