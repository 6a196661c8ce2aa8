"""One rank of tools/soak death: all_reduces until somebody is lost, and says when that was, in JSON.

Its arguments: who will be killed, how many MiB that rank has touched, and how many KiB are reduced.
"""

import json
import mmap
import signal
import sys
import time

import steps

import horo

POPULATE_WRITE = 23  # MADV_POPULATE_WRITE: every page, small ones, in one call
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
        signal.pause()  # so that the end of this interpreter takes no core from who has yet to hear
    del held


if __name__ == "__main__":
    main()
