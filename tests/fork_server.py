"""Starts the ranks of Python tests by a fork of a process that has imported torch, which takes a rank 1.5 s of a core.

A server imports torch and numpy, has one thread, and never loads horo. It forks a process per rank, which takes over
the environment, folder, words and files of the rank and runs its script as a new interpreter does, to its normal end.
Ranks of a job come from two servers in turn, so that the order of a set of strings differs between ranks. A rank gets a
process of its own (subprocess.Popen) where the interpreter itself has to start otherwise: other variables of Python,
of the loader or of threads, another interpreter, a prefix, or a script that does not import torch; and where a message
shows the rank's stack, because that of a forked rank begins in this file.
"""

import contextlib
import functools
import gc
import io
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import types

IMPORTS_TORCH = re.compile(r"^(?:import|from) (?:torch|horo\.torch|horovod\.torch|job)\b", re.M)
AT_START = re.compile(r"PYTHON|LD_|OMP_|MKL_|OPENBLAS_|KMP_|MALLOC_|GLIBC_|ASAN_|TSAN_|UBSAN_|TORCH_|ATEN_")
SHOWS_STACKS = {"HORO_STALL_WARNING_MS", "HORO_DEADLOCK_MS"}
SERVERS = 2
REQUEST_BYTES = 1 << 20


@functools.cache
def imports_torch(script):
    try:
        with open(script, encoding="utf-8") as file:
            return IMPORTS_TORCH.search(file.read()) is not None
    except OSError:
        return False


def variables_at_start(env):
    """The variables that an interpreter or a library reads before a script runs."""
    return frozenset((name, value) for name, value in env.items() if AT_START.match(name))


class Rank:
    """A forked process, with the part of subprocess.Popen's interface that ranks.py uses."""

    def __init__(self, pid, ending):
        self.pid = pid
        self.returncode = None
        self._ending = ending  # the server writes the exit status and closes it

    def poll(self):
        return self._read(0)

    def wait(self, timeout=None):
        code = self._read(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"rank {self.pid}", timeout)
        return code

    def kill(self):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _read(self, timeout):
        if self.returncode is None and select.select([self._ending], [], [], timeout)[0]:
            text = self._ending.read()
            self._ending.close()
            self.returncode = int(text) if text else -signal.SIGKILL  # the server is gone
        return self.returncode


class Server:
    """The parent's end of a server process."""

    def __init__(self, env):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES)
        self._lock = threading.Lock()
        self._socket = ours
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            env=env | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()

    def start(self, request, stdin, stdout, stderr):
        reading, writing = os.pipe()
        try:
            with self._lock:
                descriptors = [stdin, stdout, stderr, writing]
                socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
                answer = self._socket.recv(64)
        finally:
            os.close(writing)
        if not answer:
            os.close(reading)
            raise OSError(f"the fork server ended with {self._process.wait()}")
        return Rank(int(answer), os.fdopen(reading, "rb"))


class Starter:
    """start(command, env, output): a Rank or a Popen, with this output and no input."""

    MOST_KINDS = 3  # of variables at the start, each with its servers

    def __init__(self, start_process):
        self._start_process = start_process
        self._servers = {}
        self._turn = 0

    def __call__(self, command, env, output):
        servers = self._servers_for(command, env)
        if not servers:
            return self._start_process(command, env, output)
        self._turn += 1
        request = {"words": command[1:], "env": env, "folder": os.getcwd()}
        with open(os.devnull, "rb") as nothing:
            return servers[self._turn % SERVERS].start(request, nothing.fileno(), output.fileno(), output.fileno())

    def _servers_for(self, command, env):
        if command[0] != sys.executable or len(command) < 2 or not imports_torch(command[1]):
            return None
        if "LD_PRELOAD" in env or SHOWS_STACKS & env.keys():
            return None
        kind = variables_at_start(env)
        if kind not in self._servers and len(self._servers) < self.MOST_KINDS:
            self._servers[kind] = [Server(env) for _ in range(SERVERS)]
        return self._servers.get(kind)


# ---- the server


def text_file(descriptor, raw, **options):
    """A standard stream; raw: each write goes to the file."""
    binary = open(descriptor, "wb", buffering=0 if raw else -1, closefd=False)
    return io.TextIOWrapper(binary, encoding="utf-8", write_through=raw, **options)


def adopt(request, descriptors):
    """Makes this process that of the rank."""
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    sys.argv[:] = request["words"]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    raw = "PYTHONUNBUFFERED" in os.environ
    sys.stdin = sys.__stdin__ = open(0, closefd=False)
    sys.stdout = sys.__stdout__ = text_file(1, raw)
    sys.stderr = sys.__stderr__ = text_file(2, raw, line_buffering=True, errors="backslashreplace")
    sys.modules["numpy"].random.seed()
    sys.modules["torch"].default_generator.seed()
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
        sys.modules["torch"]._import_device_backends()


class Forks:
    """Forks ranks on request until the parent is gone."""

    def __init__(self, connection):
        self._connection = connection
        self._endings = {}
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def serve(self):
        """The words of a rank, in the rank's process; None in the server, at its end."""
        while True:
            ready = select.select([self._connection, self._wake], [], [])[0]
            if self._wake in ready:
                os.read(self._wake, 1 << 10)
                self._report()
            if self._connection in ready:
                text, descriptors, _, _ = socket.recv_fds(self._connection, REQUEST_BYTES, 4)
                if not text:
                    return None
                if self._fork(descriptors):
                    self._connection.detach()
                    adopt(json.loads(text), descriptors)
                    return sys.argv

    def _fork(self, descriptors):
        pid = os.fork()
        if pid == 0:
            return True
        self._endings[pid] = descriptors.pop()
        for descriptor in descriptors:
            os.close(descriptor)
        self._connection.send(str(pid).encode())
        return False

    def _report(self):
        for pid in list(self._endings):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done == pid:
                ending = self._endings.pop(pid)
                with contextlib.suppress(BrokenPipeError):
                    os.write(ending, str(os.waitstatus_to_exitcode(status)).encode())
                os.close(ending)


def run_script(words):
    """Runs the script as `python words` does."""
    if os.environ.get("TEST_DEVICE") == "fake":
        sys.path.append(os.path.dirname(os.path.abspath(__file__)))
        __import__("fake_devices").install()
    main = types.ModuleType("__main__")
    main.__file__ = words[0]
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    with open(words[0], "rb") as file:
        code = compile(file.read(), words[0], "exec")
    exec(code, main.__dict__)


def check_one_thread():
    """A fork copies the calling thread only."""
    deadline = time.monotonic() + 10
    while (tasks := len(os.listdir("/proc/self/task"))) > 1:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the fork server has {tasks} threads after the imports")


if __name__ == "__main__":
    import numpy  # noqa: F401
    import torch  # noqa: F401

    check_one_thread()
    gc.freeze()
    _words = Forks(socket.socket(fileno=int(sys.argv[1]))).serve()
    if _words is not None:
        run_script(_words)
