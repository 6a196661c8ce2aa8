"""The memory of another process of this host, read without its help: process_vm_readv of Linux.

The kernel's Yama allows it to a parent or debugger alone, so the other process names the one process that may read it
(PR_SET_PTRACER), and takes that back. Without Yama the processes of one user may read one another anyway.
"""

import ctypes
import errno
import threading

from horo._native import slow

PR_SET_PTRACER = 0x59616D61
MOST_PARTS = 512  # of one call; the kernel takes 1,024

_libc = ctypes.CDLL(None, use_errno=True)


class _Part(ctypes.Structure):
    """iovec"""

    _fields_ = [("address", ctypes.c_void_p), ("nbytes", ctypes.c_size_t)]


class Unreadable(Exception):
    """The other process cannot be read. is_gone: because it has ended."""

    def __init__(self, number):
        super().__init__(f"process_vm_readv: {errno.errorcode.get(number, number)}")
        self.is_gone = number == errno.ESRCH


def allow(pid):
    """The process `pid`, and no other, may read this process's memory; 0: none may."""
    _libc.prctl(PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)  # EINVAL: a kernel without Yama asks for nothing


def read(pid, parts):
    """Copies memory of the process `pid`. parts: [(its address, address here, bytes)]. Raises Unreadable. Blocks for
    the copy, without the interpreter lock."""
    for first in range(0, len(parts), MOST_PARTS):
        some = parts[first : first + MOST_PARTS]
        theirs = (_Part * len(some))(*((address, nbytes) for address, _, nbytes in some))
        mine = (_Part * len(some))(*((address, nbytes) for _, address, nbytes in some))
        wanted = sum(nbytes for *_, nbytes in some)
        got = _read_once(pid, mine, theirs)
        if got != wanted:
            raise Unreadable(ctypes.get_errno() if got < 0 else errno.EFAULT)


def _read_once(pid, mine, theirs):
    call = _libc.process_vm_readv
    call.restype = ctypes.c_ssize_t
    return call(ctypes.c_int(pid), mine, ctypes.c_ulong(len(mine)), theirs, ctypes.c_ulong(len(theirs)), 0)


def hashes(parts):
    """The hash of each part, 64 bits as the audit has them. parts: [(address, bytes)]."""
    count = len(parts)
    if not count:
        return []
    pointers = (ctypes.c_void_p * count)(*(address for address, _ in parts))
    sizes = (ctypes.c_uint64 * count)(*(nbytes for _, nbytes in parts))
    out = (ctypes.c_uint64 * count)()
    if slow.horo_hash_many(pointers, sizes, count, ctypes.addressof(out)) != 0:
        raise ValueError("horo.elastic: the address of a tensor is null")
    return list(out)


def in_threads(count, work, items):
    """work(item) for each item, in `count` threads. Raises the first error after all threads have ended."""
    waiting, errors = iter(items), []
    lock = threading.Lock()

    def run():
        while not errors:
            with lock:
                item = next(waiting, None)
            if item is None:
                return
            try:
                work(item)
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=run, name="horo_transfer", daemon=True) for _ in range(count - 1)]
    for thread in threads:
        thread.start()
    run()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
