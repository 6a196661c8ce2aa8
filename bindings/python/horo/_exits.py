"""How a rank's program ends, and what the other ranks are told of it.

An exception that ends the program is told to all others at once, in its own words: they would wait for this rank
otherwise. sys.exit() is an orderly end, whatever its number: the others hear that this rank has left. An exception in a
thread beside the main one ends that thread alone, in Python, and so it does here.
"""

import os
import sys
import traceback

from horo.errors import PeerLost

JOB_VARIABLES = ("HORO_RANK", "HORO_SIZE", "HORO_ADDR", "HORO_JOB", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_HORO = os.path.dirname(os.path.abspath(__file__)) + os.sep
MAX_TEXT = 2000  # characters of an exception's text that travel

_session_of_now = None  # a function; set once
_previous_hook = None
_told = None  # the exception that the others have been told of


def job():
    """What the environment says about the job of this process."""
    return [os.environ.get(name) for name in JOB_VARIABLES]


def watch(session_of_now):
    """From now on an exception that ends this program is told to the other ranks."""
    global _session_of_now, _previous_hook
    if _session_of_now is None:
        _session_of_now = session_of_now
        _previous_hook, sys.excepthook = sys.excepthook, _on_exception


def tell_if_failed():
    """At exit. Somebody may have put another hook in the place of ours: Python notes the exception all the same."""
    if sys.excepthook is not _on_exception:
        _tell(getattr(sys, "last_value", None))


def _on_exception(kind, value, trace):
    if not hasattr(sys, "ps1"):  # at a prompt an exception ends nothing
        _tell(value.with_traceback(trace) if isinstance(value, BaseException) else None)
    _previous_hook(kind, value, trace)


def _tell(error):
    global _told
    session = None if _session_of_now is None else _session_of_now()
    if session is None or error is None or error is _told or _comes_from_a_loss(error):
        return
    _told = error
    try:
        session.abort(_reason(session.topology.rank, error))
    except Exception:  # the user's exception is the one to show
        pass


def _comes_from_a_loss(error):
    """Whether the session has ended already, by somebody else's doing: the others know better who it was."""
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, PeerLost):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _reason(rank, error):
    """Who, where and what."""
    text = _text_of(error)
    what = type(error).__name__ + (": " if text else "") + text
    return f"rank {rank} (host {os.uname().nodename}) ended by an exception{_place(error)}: {what}"


def _text_of(error):
    try:
        text = str(error)
    except Exception:
        return "(its text cannot be made)"
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + " ..."


def _place(error):
    """Where the exception came from: the innermost line that is not horo's own."""
    frames = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in frames if not frame.filename.startswith(_HORO)] or frames
    if not frames:
        return ""
    frame = frames[-1]
    return f" at {os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}"
