"""Rank 1 ends in the way of the argument, while rank 0 waits for it and prints the error."""

import os
import signal
import sys
import threading
import time

import arrays

import horo


def exception():
    raise ArithmeticError("the loss is not a number")


def exception_past_another_hook():
    sys.excepthook = lambda kind, value, trace: print(f"shown by another hook: {value}", file=sys.stderr)
    exception()


def exception_with_work_in_flight():
    arrays.submit("alone here", arrays.numpy.zeros(1000, arrays.numpy.float32))
    exception()


def exception_without_a_text():
    class Silent(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    raise Silent


def exit_3():
    sys.exit(3)


def exit_0():
    raise SystemExit(0)


def exit_at_once():
    os._exit(4)


def end_with_work_in_flight():
    arrays.submit("alone here", arrays.numpy.zeros(1000, arrays.numpy.float32))


def interrupt():
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    arrays.reduce("alone here")


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()


def exception_in_a_thread():
    thread = threading.Thread(target=exception)
    thread.start()
    thread.join()
    arrays.reduce("awaited")


if os.environ["HORO_RANK"] == "1":
    horo.init()
    print(f"ends at {time.monotonic()}", flush=True)
    globals()[sys.argv[1]]()
    sys.exit(0)
try:
    horo.init()  # rank 1 may have ended before this returns
    arrays.reduce("awaited")
except horo.HoroError as error:
    print(f"{type(error).__name__}, origin {getattr(error, 'origin', None)}: {error}")
print(f"heard at {time.monotonic()}")
