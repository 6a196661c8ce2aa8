"""Tells the other ranks where this one's Python threads are, when a tensor is about to fail because some rank never
submitted it. Costs nothing before: one daemon thread sits in a C call without the interpreter lock.
"""

import os
import sys
import threading

from horo._native import quick, slow

WAIT_MS = 1 << 30  # the session's end wakes the thread
MAX_FRAMES = 8  # of one thread
MAX_BYTES = 2048  # of an answer, as the library takes it
JOIN_S = 5  # the thread needs the interpreter lock to end

_HORO = os.path.dirname(os.path.abspath(__file__)) + os.sep
_THREADING = threading.__file__


def _shown(path):
    """A path below the working folder is shown from there on."""
    try:
        here = os.getcwd() + os.sep
    except OSError:  # the folder is gone
        return path
    return path[len(here) :] if path.startswith(here) else path


def _folder_of(module):
    """Where an imported package lies; a path that no file begins with if it was not imported."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return os.path.dirname(file) + os.sep if file else "\0"


def _stack(frame):
    """The user's innermost frames, and whether the thread is inside horo."""
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
    """Where the main thread is, and the other threads that are in calls of horo, innermost frame first."""
    frames = sys._current_frames()
    main = threading.main_thread().ident
    lines, _ = _stack(frames.pop(main, None))
    for thread in threading.enumerate():
        stack, inside = _stack(frames.get(thread.ident))
        if inside and stack and thread.ident != threading.get_ident():
            lines += [f"thread '{thread.name}':", *(f"  {line}" for line in stack)]
    return _cut(lines) if lines else "(no Python code)"


def _cut(lines):
    """As many whole lines as an answer may have."""
    text = b""
    for line in lines:
        line = line.encode(errors="replace")
        if len(text) + len(line) + 1 > MAX_BYTES:
            break
        text += line + b"\n"
    return text.rstrip(b"\n").decode(errors="replace")


def _answer(pointer, question):
    try:
        text = describe()
    except Exception as error:  # threads come and go while one looks at them
        text = f"(the stacks could not be read: {error})"
    quick.horo_answer(pointer, question, text.encode(errors="replace"))


class Teller:
    """The thread that answers for one session. It shares the session's memory with whoever made it, and the second of
    the two that has no more use for that frees it."""

    def __init__(self, pointer):
        self._pointer = pointer
        self._uses = [pointer, None]  # one for each of the two; popping is atomic
        self._thread = threading.Thread(target=self._run, name="horo_where", daemon=True)
        self._thread.start()

    def _run(self):
        try:
            while (question := slow.horo_next_question(self._pointer, WAIT_MS)) >= 0:
                if question > 0:
                    _answer(self._pointer, question)
        finally:
            self._leave()

    def _leave(self):
        unused = self._uses.pop()
        if unused is not None:
            slow.horo_free(unused)

    def stop(self):
        """After the session's shutdown, which ends the thread: waits until it has ended."""
        if threading.current_thread() is not self._thread:
            self._thread.join(JOIN_S)

    def free(self):
        """Shuts the session down and lets go of it. Once; any thread, in a finalizer too."""
        slow.horo_shutdown(self._pointer)
        self._leave()
