"""The thread that reports the stacks of this rank's callers: its report, and its end with the session."""

import gc
import os
import subprocess
import sys
import threading

import pytest

from horo import _stall_diagnosis
from horo._session import Session


@pytest.fixture
def alone(monkeypatch):
    for name in [name for name in os.environ if name.startswith("HORO_") and name not in ("HORO_LIBRARY", "HORO_EXE")]:
        monkeypatch.delenv(name)


def responders():
    return [thread for thread in threading.enumerate() if thread.name == "horo_stall"]


def called_from(filename, call):
    """call(), from a function that has this file name."""
    scope = {"call": call}
    exec(compile("def caller():\n    return call()\n", filename, "exec"), scope)
    return scope["caller"]()


def nested(depth, call):
    return nested(depth - 1, call) if depth else call()


def test_the_innermost_frames_come_first_and_there_are_few():
    lines = nested(30, lambda: called_from("inner.py", _stall_diagnosis.describe)).splitlines()
    assert lines[0] == "inner.py:2 caller"
    assert len(lines) == _stall_diagnosis.MAX_FRAMES
    assert lines[-1].endswith(" nested") and "test_stall_diagnosis.py:" in lines[-1]


def test_an_answer_is_cut_between_lines():
    text = called_from("ü" * 1500 + ".py", lambda: called_from("inner.py", _stall_diagnosis.describe))
    assert text.startswith("inner.py:2 caller\n") and "ü" not in text
    assert len(text.encode()) <= _stall_diagnosis.MAX_BYTES and text.splitlines()[-1].endswith(" <lambda>")


def test_frames_of_horo_are_left_out_and_a_thread_inside_it_is_shown():
    inside = os.path.join(os.path.dirname(_stall_diagnosis.__file__), "imagined.py")
    stay, there = threading.Event(), threading.Event()

    def wait():
        there.set()
        stay.wait(60)

    thread = threading.Thread(target=lambda: called_from("user.py", lambda: called_from(inside, wait)), name="loader")
    other = threading.Thread(target=lambda: stay.wait(60), name="elsewhere")
    thread.start(), other.start(), there.wait(60)
    text = _stall_diagnosis.describe()
    stay.set(), thread.join(), other.join()
    assert "thread 'loader':" in text and "  user.py:2 caller" in text
    assert "imagined.py" not in text and "elsewhere" not in text


def test_the_thread_ends_with_its_session(alone):
    for _ in range(20):
        session = Session()
        assert len(responders()) == 1
        session.close()
        assert responders() == []


def test_a_session_that_is_dropped_is_freed(alone):
    session = Session()
    (thread,) = responders()
    del session
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_the_thread_does_not_keep_the_interpreter_from_ending(alone):
    code = "from horo._session import Session; kept = Session(); print('here')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stdout, done.stderr) == (0, "here\n", "")
