"""Reduces tensors of 8 MiB and prints the number of bytes that this process sent over TCP meanwhile."""

import contextlib
import os
import socket
import struct

import numpy

import horo.numpy as hvd

ACKED = 120  # tcp_info.tcpi_bytes_acked of linux/tcp.h


def bytes_of_sockets():
    total = 0
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(fd))) as one:
            info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, ACKED + 8)
            total += struct.unpack_from("<Q", info, ACKED)[0]
    return total


hvd.init()
assert hvd.mpi_enabled() == hvd.mpi_built() == (os.environ["HORO_BACKEND"] == "mpi")
before = bytes_of_sockets()
for _ in range(3):
    hvd.allreduce(numpy.ones(1 << 20), name="x")
print("sent", bytes_of_sockets() - before, flush=True)
hvd.shutdown()
