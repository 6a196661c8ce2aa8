"""Rank 1 holds the interpreter lock in a foreign call while rank 0 waits for it: the error reports a missing answer.

The first argument is a FIFO through which rank 0 ends that call.
"""

import ctypes
import os
import sys

import arrays

import horo

WAIT_MS = 180_000


class PollFd(ctypes.Structure):
    """struct pollfd"""

    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


def hold():
    """Returns after rank 0 has written; no other Python thread can run meanwhile."""
    wanted = PollFd(os.open(sys.argv[1], os.O_RDWR | os.O_NONBLOCK), 1, 0)
    assert ctypes.PyDLL(None).poll(ctypes.byref(wanted), 1, WAIT_MS) == 1


horo.init()
if horo.rank() == 1:
    hold()
else:
    try:
        arrays.reduce("lonely")
    except horo.Mismatch as error:
        text = str(error)
    with open(sys.argv[1], "w") as fifo:
        fifo.write("go on")
    assert "\nrank 1 did not answer within 500 ms (HORO_ANSWER_TIMEOUT_MS)" in text, text
assert arrays.reduce("after") == 2
