"""The timeline of this rank: a file for trace viewers. docs/timeline.md describes it."""

import os

from horo import _default


def start_timeline(file_path, mark_cycles=False):
    """Writes what this rank does when to a file, until stop_timeline() or shutdown(). All ranks call it, or some. Rank
    0 writes to file_path, rank 3 to trace.rank3.json for trace.json; `horo timeline merge` joins them.

    mark_cycles is Horovod's and has no effect: horo has no cycles. Raises ValueError if a timeline is on already or the
    file cannot be written.
    """
    path = os.fsencode(file_path)
    if b"\0" in path:
        raise ValueError(f"start_timeline: {file_path!r} has the character NUL, which no path has")
    _default.session().start_timeline(path)


def stop_timeline():
    """Ends the timeline. Blocks until the file is complete; without a timeline it has no effect."""
    _default.session().stop_timeline()
