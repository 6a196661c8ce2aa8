"""Threads that complete the futures of works, and submit works that had to wait.

A future's callbacks may start collectives and wait for them, as PowerSGD's do. What two callbacks start has to have one
order on all ranks. So a lane runs its jobs one after another in the order of submission, and a job that asks for a
future of its own gets it completed in another lane, that of the job. A lane has a thread only while it has jobs.

What a callback starts, and what the program starts meanwhile, has no common order on the ranks. So what a callback
starts has in its name the work and the number of the callback (cause(), futures.py).

The threads are no daemons, because Python may end a daemon inside a torch call. They end with the main thread.
"""

import collections
import hashlib
import logging
import threading

IDLE_S = 0.2  # how long a thread waits for another job
MOST_OF_NAME = 200  # characters of a name that are part of other names

_log = logging.getLogger("horo")
_now = threading.local()  # .lane: for what the running job asks for; .cause: see cause()


def main_has_ended():
    """Whether the interpreter waits for these threads at its end."""
    return not threading.main_thread().is_alive()


class Lane:
    """Runs jobs in the order in which they were put."""

    def __init__(self, name):
        self._name = name
        self._condition = threading.Condition()
        self._jobs = collections.deque()
        self._has_thread = False

    def put(self, job):
        with self._condition:
            self._jobs.append(job)
            if self._has_thread:
                self._condition.notify()
                return
            self._has_thread = True
        threading.Thread(target=self._run, name=self._name, daemon=False).start()

    def is_idle(self):
        with self._condition:
            return not self._jobs and not self._has_thread

    def _next(self):
        with self._condition:
            if not self._jobs and not main_has_ended():
                self._condition.wait(IDLE_S)
            if self._jobs:
                return self._jobs.popleft()
            self._has_thread = False
            return None

    def _run(self):
        while (job := self._next()) is not None:
            _now.lane = Lane(self._name + "+")
            try:
                job()
            except Exception:  # the next jobs have their own waiters
                _log.exception("a job of %s has failed", self._name)
            del job


def cause():
    """The name of the callback that this thread runs, or None."""
    return getattr(_now, "cause", None)


def run_callbacks_of(name, run):
    """Returns run(), which is a callback that is known by this name."""
    before, _now.cause = cause(), name if len(name) < MOST_OF_NAME else hashlib.sha256(name.encode()).hexdigest()[:16]
    try:
        return run()
    finally:
        _now.cause = before


def lane_of(otherwise):
    """The lane for a future that is asked for now: that of the running job, else the given one."""
    return getattr(_now, "lane", None) or otherwise
