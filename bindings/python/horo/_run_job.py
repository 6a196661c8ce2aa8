"""A job of run(): `horo run` as a child process, and one socket to each of its ranks."""

import collections
import contextlib
import pickle
import signal
import socket
import subprocess
import sys
import threading

from horo import _frames
from horo._executable import horo_executable

TAIL_LINES = 40  # of the job's error output, for the message about a failure
STOP_WAIT_S = 10  # for the job's end after an interrupt, until it is killed
PROGRAM = "from horo._run_rank import main; main()"


class RankJob:
    """Starts the ranks at once."""

    def __init__(self, size, options, executable, payload):
        self._request = pickle.dumps((sys.path, payload))
        program = horo_executable()
        pairs = [socket.socketpair() for _ in range(size)]
        self.replies = {}  # rank: its message, in the order of arrival
        self._tail = collections.deque(maxlen=TAIL_LINES)
        numbers = [theirs.fileno() for _, theirs in pairs]
        command = [program, "run", "-n", str(size), *options, "--"]
        command += [executable or sys.executable, "-c", PROGRAM, ",".join(map(str, numbers))]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        try:
            self._process = subprocess.Popen(command, pass_fds=numbers, text=True, errors="replace", **pipes)
        finally:
            for _, theirs in pairs:
                theirs.close()
        self._channels = [ours for ours, _ in pairs]
        self._threads = [self._thread(self._talk, rank, ours) for rank, ours in enumerate(self._channels)]
        self._threads.append(self._thread(self._forward, self._process.stdout, lambda: sys.stdout, None))
        self._threads.append(self._thread(self._forward, self._process.stderr, lambda: sys.stderr, self._tail))

    @staticmethod
    def _thread(function, *args):
        thread = threading.Thread(target=function, args=args, daemon=True)
        thread.start()
        return thread

    def _talk(self, rank, channel):
        """Sends the function to a rank and keeps its answer. Ends with the job at the latest."""
        try:
            _frames.send(channel, self._request)
            reply = _frames.receive(channel)
        except OSError:  # the rank has ended
            return
        if reply is not None:
            self.replies[rank] = pickle.loads(reply)

    @staticmethod
    def _forward(stream, target, tail):
        """Passes lines on to the present sys.stdout or sys.stderr, which in a notebook are no files."""
        for line in stream:
            if tail is not None:
                tail.append(line)
            with contextlib.suppress(Exception):  # a stream that is closed or missing holds up no rank
                print(line, end="", file=target(), flush=True)

    def wait(self):
        """Blocks until all ranks have ended; returns the exit code of the job. An exception ends the job first."""
        try:
            self._process.wait()
        except BaseException:
            self._stop()
            raise
        for thread in self._threads:
            thread.join()
        for channel in self._channels:
            channel.close()
        return self._process.returncode

    def _stop(self):
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def story(self):
        """The end of the job's error output, without the lines of single ranks where horo run has told the reason."""
        lines = list(self._tail)
        first = next((i for i, line in enumerate(lines) if line.startswith(("horo run:", "horo:"))), 0)
        return "".join(lines[first:]).rstrip()
