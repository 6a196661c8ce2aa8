"""Starts the ranks of Python tests by a fork of a process that has imported torch, which takes a rank 1.5 s of a core.
The first optimizer of a rank takes another second, because it imports torch._dynamo.

A server imports torch, torch._dynamo, numpy and sklearn, has one thread, and never loads horo. It forks a process per
rank, which takes over the environment, folder, words and files of the rank and runs its script as a new interpreter
does, to its normal end. Ranks of a job come from two servers in turn, so that the order of a set of strings differs
between ranks. A rank gets a process of its own (subprocess.Popen) where the interpreter itself has to start otherwise:
other variables of Python, of the loader or of threads, another interpreter, a prefix, or a script that does not import
torch; where the script looks at what is imported; and where a message shows the rank's stack, because that of a forked
rank begins in this file.

ranks.py starts ranks so. Launchers and tools do it with a stand-in for the interpreter, Starter.python().
"""

import contextlib
import ctypes
import fcntl
import gc
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
import warnings

sys.path.append(os.path.dirname(os.path.abspath(__file__)))

import forked_rank  # noqa: E402

SERVERS = 2
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
MOST_FILES = 250  # of a rank at its start
MOST_KINDS = 3  # of variables at the start, each with its servers
STAND_IN = """#!{} -IS
import sys
sys.path.append({!r})
import forked_rank
forked_rank.main({}, sys.argv[1:])
"""


class Rank:
    """A forked process, with the part of subprocess.Popen's interface that ranks.py uses."""

    def __init__(self, pid, connection):
        self.pid = pid
        self.returncode = None
        self._connection = connection  # brings the exit status

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
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            text = self._connection.recv(64)
            self._connection.close()
            self.returncode = int(text) if text else -signal.SIGKILL  # the server is gone
        return self.returncode


def start_server(env, name):
    """Starts a server with this socket, which ends when this process does; returns the name and what stays open."""
    ours, theirs = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(name)
        listener.listen(128)
        process = subprocess.Popen(
            [sys.executable, __file__, str(listener.fileno()), str(ours)],
            env=env | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
            pass_fds=[listener.fileno(), ours],
            stdin=subprocess.DEVNULL,
        )
    os.close(ours)
    return name, (process, theirs)


class Starter:
    """start(command, env, output): a Rank or a Popen, with this output and no input."""

    def __init__(self, start_process):
        self._start_process = start_process
        self._servers = {}
        self._turn = 0
        self._folder = tempfile.TemporaryDirectory()  # of stand-ins

    def __call__(self, command, env, output):
        is_ours = command[0] == sys.executable and forked_rank.may_be_forked(command[1:], env)
        servers = self._servers_for(env) if is_ours else []
        if servers:
            self._turn += 1
            name = servers[self._turn % SERVERS][0]
            with open(os.devnull, "rb") as nothing:
                files = [(nothing.fileno(), 0), (output.fileno(), 1), (output.fileno(), 2)]
                rank = forked_rank.ask(name, command[1:], env, files, os.getpgrp())
            if rank:
                return Rank(*rank)
        return self._start_process(command, env, output)

    def python(self):
        """The path of a stand-in for the interpreter, for commands of a launcher or tool. It forks a rank whose
        OMP_NUM_THREADS is 1, and whose other variables at the start are those of this process."""
        names = [name for name, _ in self._servers_for(os.environ | ONE_THREAD)]
        if not names:
            return sys.executable
        path = f"{names[0]}.python"
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(STAND_IN.format(sys.executable, os.path.dirname(forked_rank.__file__), names))
            os.chmod(path, 0o755)
        return path

    def tool(self):
        """The words before the path of a tool in Python that starts ranks with sys.executable."""
        return [sys.executable, os.path.join(os.path.dirname(__file__), "with_python.py"), self.python()]

    def _servers_for(self, env):
        kind = forked_rank.variables_at_start(env)
        if kind not in self._servers and len(self._servers) < MOST_KINDS:
            names = [os.path.join(self._folder.name, f"{len(self._servers)}.{i}") for i in range(SERVERS)]
            self._servers[kind] = [start_server(env, name) for name in names]
        return self._servers.get(kind, [])


# ---- the server


def text_file(descriptor, raw, **options):
    """A standard stream; raw: each write goes to the file."""
    binary = open(descriptor, "wb", buffering=0 if raw else -1, closefd=False)
    return io.TextIOWrapper(binary, encoding="utf-8", write_through=raw, **options)


def enter(namespaces):
    """Enters the network and the mounts of the process that has asked for the rank, if they are others."""
    for descriptor, name in zip(namespaces, ("net", "mnt")):
        if os.fstat(descriptor).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
            if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0) != 0:
                raise OSError(ctypes.get_errno(), f"setns of {name}")


def take_files(descriptors, numbers):
    """Gives the open files their numbers, and closes all others."""
    above = max(*numbers, *descriptors) + 1
    os.closerange(above, os.sysconf("SC_OPEN_MAX"))
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for descriptor in descriptors]
    os.closerange(0, above)
    for copy, number in zip(copies, numbers):
        os.dup2(copy, number)
    os.closerange(above, os.sysconf("SC_OPEN_MAX"))


def adopt(request, descriptors):
    """Makes this process that of the rank."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    count = len(request["numbers"])
    enter(descriptors[count:])
    take_files(descriptors[:count], request["numbers"])
    os.setpgid(0, request["group"])
    os.sched_setaffinity(0, request["cores"])
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    sys.argv[:] = request["words"]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    raw = "PYTHONUNBUFFERED" in os.environ
    sys.stdin = sys.__stdin__ = open(0, closefd=False)
    sys.stdout = sys.__stdout__ = text_file(1, raw)
    sys.stderr = sys.__stderr__ = text_file(2, raw, line_buffering=True, errors="backslashreplace")
    for option in filter(None, os.environ.get("PYTHONWARNINGS", "").split(",")):
        warnings._setoption(option)
    sys.modules["numpy"].random.seed()
    sys.modules["torch"].default_generator.seed()
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
        sys.modules["torch"]._import_device_backends()


def kill(pid):
    """Kills a rank, and its group if it leads one."""
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if os.getpgid(pid) == pid else os.kill)(pid, signal.SIGKILL)


class Forks:
    """Forks ranks on request until the parent is gone."""

    def __init__(self, listener, parent, variables):
        self._listener = listener
        self._parent = parent
        self._connections = {}  # of running ranks, by their pids
        self._variables = variables
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def serve(self):
        """The words of a rank, in the rank's process; None in the server, at its end."""
        while True:
            pids = {connection: pid for pid, connection in self._connections.items() if connection}
            ready = select.select([self._listener, self._parent, self._wake, *pids], [], [])[0]
            if self._parent in ready:
                return None
            for connection in pids.keys() & set(ready):  # the process that asked for the rank is gone
                kill(pids[connection])
                self._connections[pids[connection]] = None
                connection.close()
            if self._wake in ready:
                os.read(self._wake, 1 << 10)
                self._report()
            if self._listener in ready:
                request = self._accept()
                if request:
                    adopt(*request)
                    return sys.argv

    def _accept(self):
        """In a rank: what was asked for; in the server: None."""
        connection, _ = self._listener.accept()
        text, descriptors, _, _ = socket.recv_fds(connection, forked_rank.MOST_BYTES, MOST_FILES)
        request = json.loads(text or "{}")
        if request and forked_rank.variables_at_start(request["env"]) == self._variables:
            pid = os.fork()
            if pid == 0:
                # Their numbers may be those of the rank's files: the end of these objects closes nothing.
                for one in (connection, self._listener, *filter(None, self._connections.values())):
                    one.detach()
                return request, descriptors
            self._connections[pid] = connection
            with contextlib.suppress(OSError):  # the rank does it too, whichever is first
                os.setpgid(pid, request["group"])
            with contextlib.suppress(BrokenPipeError):
                connection.send(str(pid).encode())
        else:
            connection.close()
        for descriptor in descriptors:
            os.close(descriptor)
        return None

    def _report(self):
        for pid in list(self._connections):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done == pid:
                connection = self._connections.pop(pid)
                if connection:
                    with contextlib.suppress(BrokenPipeError):
                        connection.send(str(os.waitstatus_to_exitcode(status)).encode())
                    connection.close()


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
    _variables = forked_rank.variables_at_start(os.environ)  # sklearn sets some
    import numpy  # noqa: F401
    import torch  # noqa: F401
    import torch._dynamo  # noqa: F401

    with contextlib.suppress(ImportError):  # examples/digits.py has its images from there
        import sklearn.datasets  # noqa: F401
    check_one_thread()
    gc.freeze()
    _words = Forks(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), _variables).serve()
    if _words is not None:
        run_script(_words)
