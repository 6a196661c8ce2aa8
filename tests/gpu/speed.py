"""Times of all_reduces of device tensors, beside the copies that they are made of."""

import statistics
import sys
import time

import place
import torch
from place import DEVICE

import horo.torch as hvd

SIZES = [int(word) for word in sys.argv[1:]] or [8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20]


def median_us(call, bytes_):
    rounds = max(5, min(100, (64 << 20) // max(bytes_, 1)))
    times = []
    for _ in range(rounds):
        place.synchronize()
        begun = time.perf_counter()
        call()
        place.synchronize()
        times.append(time.perf_counter() - begun)
    return round(1e6 * statistics.median(times[len(times) // 5 :]), 1)


place.start()
rows = {}
for nbytes in SIZES:
    tensor = torch.zeros(max(1, nbytes // 4), device=DEVICE)
    pinned = torch.zeros(tensor.shape, pin_memory=not place.IS_FAKE)
    rows[nbytes] = {
        "all_reduce_us": median_us(lambda t=tensor: hvd.allreduce_(t, op=hvd.Sum, name="speed"), nbytes),
        "copies_us": median_us(lambda t=tensor, p=pinned: t.copy_(p.copy_(t)), nbytes),
    }
place.tell(by_bytes=rows)
hvd.shutdown()
