"""The program of a rank of run(): receives a function over an inherited socket, calls it, and sends its result."""

import os
import pickle
import signal
import socket
import sys
import threading
import traceback

import cloudpickle

from horo import _frames
from horo._exits import comes_from_a_loss


def _own_channel():
    """The socket of this rank; those of the other ranks are closed."""
    numbers = [int(number) for number in sys.argv[1].split(",")]
    own = numbers[int(os.environ["HORO_RANK"])]
    for number in numbers:
        if number != own:
            os.close(number)
    os.set_inheritable(own, False)
    return socket.socket(fileno=own)


def _end_with_caller(channel):
    """The caller keeps its end open until the job has ended: if it closes before, the caller has ended."""
    if not channel.recv(1):
        print("the process that called run() has ended, and its ranks end with it", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def _portable(error):
    """The exception for the caller, pickled; None if that is not possible."""
    try:
        data = cloudpickle.dumps(error)
        pickle.loads(data)
    except Exception:
        return None
    return data


def _report_of(error):
    return {
        "error": "".join(traceback.format_exception_only(type(error), error)).strip(),
        "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
        "exception": _portable(error),
        "is_loss": comes_from_a_loss(error),
    }


def main():
    channel = _own_channel()
    request = _frames.receive(channel)
    if request is None:
        sys.exit("the process that called run() has ended")
    threading.Thread(target=_end_with_caller, args=[channel], daemon=True).start()
    try:
        path, call = pickle.loads(request)
        sys.path[:] = path
        function, args, kwargs = pickle.loads(call)
        reply = {"result": cloudpickle.dumps(function(*args, **kwargs))}
    except Exception as error:
        _frames.send(channel, pickle.dumps(_report_of(error)))
        raise
    _frames.send(channel, pickle.dumps(reply))
