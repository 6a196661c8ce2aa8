"""Reports the stacks of this rank's Python threads before a warning or a failure of a tensor that a rank has not
submitted, and to `horo why`.

Until then one daemon thread waits in a C call without the interpreter lock.
"""

import os
import sys
import threading

from horo._arguments import report
from horo._native import quick, slow

WAIT_MS = 1 << 30  # the session's end wakes the thread
MAX_FRAMES = 8  # of one thread
MAX_BYTES = 2048  # of an answer, the limit of the library
JOIN_S = 5  # for the end of the thread, which needs the interpreter lock

_HORO = os.path.dirname(os.path.abspath(__file__)) + os.sep
_THREADING = threading.__file__


def _shown(path):
    """The path; relative if it is below the working folder."""
    try:
        here = os.getcwd() + os.sep
    except OSError:  # the folder was deleted
        return path
    return path[len(here) :] if path.startswith(here) else path


def _folder_of(module):
    """The folder of an imported package; if it was not imported, a prefix that no path has."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return os.path.dirname(file) + os.sep if file else "\0"


def _stack(frame):
    """The innermost frames of the user's code, and whether the thread is in a call of horo."""
    lines, inside, torch = [], False, _folder_of("torch")
    while frame is not None and len(lines) < MAX_FRAMES:
        code = frame.f_code
        if code.co_filename.startswith(_HORO):
            inside = True
        elif code.co_filename != _THREADING and not code.co_filename.startswith(torch):
            lines.append(f"{_shown(code.co_filename)}:{frame.f_lineno} {code.co_name}")
        frame = frame.f_back
    return lines, inside


def describe():
    """The stacks of the main thread and of other threads in calls of horo, innermost frame first."""
    frames = sys._current_frames()
    main = threading.main_thread().ident
    lines, _ = _stack(frames.pop(main, None))
    for thread in threading.enumerate():
        stack, inside = _stack(frames.get(thread.ident))
        if inside and stack and thread.ident != threading.get_ident():
            lines += [f"thread '{thread.name}':", *(f"  {line}" for line in stack)]
    return _cut(lines) if lines else "(no Python code)"


def _cut(lines):
    """The first whole lines, at most MAX_BYTES bytes."""
    text = b""
    for line in lines:
        line = line.encode(errors="replace")
        if len(text) + len(line) + 1 > MAX_BYTES:
            break
        text += line + b"\n"
    return text.rstrip(b"\n").decode(errors="replace")


def described():
    """describe() as bytes for the library. Raises nothing."""
    try:
        text = describe()
    except Exception as error:  # threads start and end during the enumeration
        text = f"(the stacks could not be read: {error})"
    return report(text)


class Responder:
    """The thread that answers the questions of one session. The thread and the creator of this object share the
    session's memory; the last of the two to finish frees it."""

    def __init__(self, pointer):
        self._pointer = pointer
        self._uses = [pointer, None]  # one entry per owner; the last one popped is the pointer. pop() is atomic
        self._thread = threading.Thread(target=self._run, name="horo_stall", daemon=True)
        self._thread.start()

    def _run(self):
        try:
            while (question := slow.horo_next_question(self._pointer, WAIT_MS)) >= 0:
                if question > 0:
                    quick.horo_answer(self._pointer, question, described())
        finally:
            self._leave()

    def _leave(self):
        unused = self._uses.pop()
        if unused is not None:
            slow.horo_free(unused)

    def stop(self):
        """Waits until the thread has ended. Called after the session's shutdown, which ends it."""
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_S)

    def free(self):
        """Shuts the session down and releases it. Called once, by any thread, also from a finalizer."""
        slow.horo_shutdown_at_exit(self._pointer)
        self._leave()
