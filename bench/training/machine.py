"""Facts about the machine of a measurement, and a wait until no other program uses it."""

import os
import platform
import time

IDLE = 0.94
SAMPLE_S, PATIENCE_S = 0.1, 20


def _ticks():
    """Clock ticks of all cores since boot: (idle, all)."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def wait_until_quiet(patience_s=PATIENCE_S):
    """Blocks until the machine is idle, at most patience_s seconds; returns whether it is idle."""
    end = time.monotonic() + patience_s
    while True:
        idle, everything = _ticks()
        time.sleep(SAMPLE_S)
        idle_after, everything_after = _ticks()
        if idle_after - idle > IDLE * (everything_after - everything):
            return True
        if time.monotonic() > end:
            return False


def _first(path, key):
    """The value of the first line "key : value" of a file in /proc."""
    with open(path) as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith(key)), "unknown")


def host():
    """The machine, and the version of Python."""
    return {
        "cpu": _first("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def facts(transport):
    """The machine, the versions of the libraries, and the transport."""
    import torch

    import horo

    return host() | {"torch": torch.__version__, "horo": horo.__version__, "transport": transport}
