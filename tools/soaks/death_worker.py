"""One rank of tools/soak death: runs all_reduces until a rank is lost, and prints the time of the error as JSON.

Arguments: the rank that will be killed, the MiB that it touches, and the KiB of each all_reduce.
"""

import json
import mmap
import signal
import sys
import time

import steps

import horo

POPULATE_WRITE = 23  # MADV_POPULATE_WRITE: touches every page in one call, without huge pages
STEPS_BEFORE = 20


def say(**what):
    print(json.dumps(what), flush=True)


def touch(size):
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(POPULATE_WRITE)
    return memory


def main():
    victim, mib, kib = map(int, sys.argv[1:])
    horo.init()
    held = touch(mib << 20) if horo.rank() == victim else None
    session = horo._default.session()
    arrays = steps.ones(kib << 8)
    try:
        for _ in range(STEPS_BEFORE):
            steps.average(session, arrays)
        say(event="ready")
        while True:
            steps.average(session, arrays)
    except horo.PeerLost as lost:
        at = time.monotonic()
        say(event="lost", at=at, origin=lost.origin, text=str(lost))
        signal.pause()  # the end of this interpreter must not delay the error on the other ranks
    del held


if __name__ == "__main__":
    main()
