"""Reports to the other ranks how this rank's program ends.

The text of an exception that ends the program is sent to all other ranks immediately; otherwise they would wait for
this rank. sys.exit() is an orderly end for any exit code: the other ranks learn that this rank has left. In an elastic
job horo run sees the code, and a rank with another one than 0 is lost. As in plain Python, an exception in a thread
other than the main thread ends only that thread.
"""

import os
import sys
import traceback

from horo.errors import PeerLost

_HORO = os.path.dirname(os.path.abspath(__file__)) + os.sep
MAX_TEXT = 2000  # characters of an exception's text that are sent

_session_of_now = None  # a function; set once
_previous_hook = None
_sent = None  # the exception that was sent to the other ranks


def watch(session_of_now):
    """From now on an exception that ends this program is sent to the other ranks."""
    global _session_of_now, _previous_hook
    if _session_of_now is None:
        _session_of_now = session_of_now
        _previous_hook, sys.excepthook = sys.excepthook, _on_exception


def send_if_failed():
    """At exit: if another hook has replaced ours, the exception is in sys.last_value."""
    if sys.excepthook is not _on_exception:
        _send(getattr(sys, "last_value", None))


def _on_exception(kind, value, trace):
    if not hasattr(sys, "ps1"):  # at a prompt an exception ends nothing
        _send(value.with_traceback(trace) if isinstance(value, BaseException) else None)
    _previous_hook(kind, value, trace)


def _send(error):
    global _sent
    session = None if _session_of_now is None else _session_of_now()
    if session is None or error is None or error is _sent or comes_from_a_loss(error):
        return
    _sent = error
    try:
        session.abort(_reason(session, error), type(error).__name__ + _place(error))
    except Exception:  # the user's exception is shown instead
        pass


def comes_from_a_loss(error):
    """Whether the exception follows from the loss of another rank, which the other ranks have detected themselves."""
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, PeerLost):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _reason(session, error):
    """The text for the other ranks: rank, host, source line and exception."""
    rank = session.topology.rank
    at_start = session.world.members[rank]  # its name in the story of `horo run`
    place = os.uname().nodename + ("" if rank == at_start else f", rank {at_start} at the start")
    text = _text_of(error)
    what = type(error).__name__ + (": " if text else "") + text
    return f"rank {rank} (host {place}) ended by an exception{_place(error)}: {what}"


def _text_of(error):
    try:
        text = str(error)
    except Exception:
        return "(its text cannot be formatted)"
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + " ..."


def _place(error):
    """The innermost source line of the exception outside horo."""
    frames = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in frames if not frame.filename.startswith(_HORO)] or frames
    if not frames:
        return ""
    frame = frames[-1]
    return f" at {os.path.basename(frame.filename)}:{frame.lineno} in {frame.name}"
