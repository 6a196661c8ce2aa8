"""A process of tools/soak cycles: repeatedly joins and leaves jobs, and prints its resources.

Arguments: "cycles" or "failures", and the number of jobs. A rank of "cycles" ends each job in good order; the one
process of "failures" is rank 0 of jobs whose rank 1, a new process for each job, is killed.
"""

import gc
import json
import os
import pathlib
import random
import signal
import sys

import ranks

WARM_UP_SHARE = 5  # the first fifth of the jobs fills caches


def held():
    """This process's descriptors, threads, bytes of memory, and mapped segments of shared memory."""
    gc.collect()
    maps = pathlib.Path("/proc/self/maps").read_text()
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "segments": maps.count("/memfd:") + maps.count("/dev/shm/"),
        "rss_bytes": pages * os.sysconf("SC_PAGE_SIZE"),
    }


def reduce(horo, count):
    """Runs collectives, so that the job allocates all its resources."""
    import steps

    session = horo._default.session()
    arrays = steps.ones(*[4096] * 4)
    for _ in range(count):
        steps.average(session, arrays)


def cycles(count):
    import horo

    for number in range(count):
        if number == count // WARM_UP_SHARE:
            yield held()
        horo.init()
        reduce(horo, 3)
        horo.shutdown()
    yield held()


def failures(count):
    ask, told = start_partners()
    import horo

    for number in range(count):
        if number == count // WARM_UP_SHARE:
            yield held()
        with ranks.reserved_address() as address:
            os.write(ask, f"{address} {number}\n".encode())
            try:
                horo.init(settings=settings(0, address))
                reduce(horo, 1 << 30)
            except horo.PeerLost as lost:
                assert lost.origin == 1, str(lost)
            horo.shutdown()
            assert os.read(told, 1) == b"."
    yield held()


def settings(rank, address):
    world = {"HORO_RANK": rank, "HORO_SIZE": 2, "HORO_LOCAL_RANK": rank, "HORO_LOCAL_SIZE": 2, "HORO_ADDR": address}
    return world | {"HORO_START_TIMEOUT_MS": 20000}


def start_partners():
    """Starts a process that forks a rank 1 for each line that it reads, and writes a dot after that rank has ended."""
    mine, ask = os.pipe()
    told, answer = os.pipe()
    if os.fork() != 0:
        os.close(mine)
        os.close(answer)
        return ask, told
    os.close(ask)
    for line in os.fdopen(mine):
        address, number = line.split()
        child = os.fork()
        if child == 0:
            partner(address, int(number))
        os.waitpid(child, 0)
        os.write(answer, b".")
    os._exit(0)


def partner(address, number):
    import horo

    horo.init(settings=settings(1, address))
    reduce(horo, random.Random(number).randrange(4))
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    for measured in {"cycles": cycles, "failures": failures}[sys.argv[1]](int(sys.argv[2])):
        print(json.dumps(measured), flush=True)
