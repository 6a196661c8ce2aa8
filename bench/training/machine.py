"""Where a figure was measured, and whether anybody else was computing meanwhile."""

import os
import platform
import time

IDLE = 0.94
LOOK_S, PATIENCE_S = 0.1, 20


def _ticks():
    """Of all cores since the start: (idle, all)."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def wait_until_quiet(patience_s=PATIENCE_S):
    """Returns once the machine is idle, or else when patience ends; whether it was."""
    end = time.monotonic() + patience_s
    while True:
        idle, everything = _ticks()
        time.sleep(LOOK_S)
        idle_after, everything_after = _ticks()
        if idle_after - idle > IDLE * (everything_after - everything):
            return True
        if time.monotonic() > end:
            return False


def _first(path, key):
    """The value of the first line "key : value" of a file of /proc."""
    with open(path) as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith(key)), "unknown")


def facts(transport):
    """Of the machine and of what was compared."""
    import torch

    import horo

    return {
        "cpu": _first("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "horo": horo.__version__,
        "transport": transport,
    }
