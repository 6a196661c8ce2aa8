"""The process of a forked rank for a launcher or a tool that starts processes: fork_server.py makes a stand-in for the
interpreter, which calls main().

The rank has this process's network, mounts, cores, folder, variables and open files, and leads a process group. This
process passes signals on to the group, and ends as the rank does; the server kills the group if this process is killed.
Where no server suits, this process becomes that of the interpreter.
"""

import json
import os
import re
import resource
import signal
import socket
import sys

IMPORTS_TORCH = re.compile(r"^(?:import|from) (?:torch|horo\.torch|horovod\.torch|job)\b", re.M)
LOOKS_AT_IMPORTS = "not in sys.modules"
AT_START = re.compile(r"PYTHON.|LD_|OMP_|MKL_|OPENBLAS_|KMP_|MALLOC_|GLIBC_|ASAN_|TSAN_|UBSAN_|TORCH_|ATEN_")
SET_BY_FORKS = {"PYTHONUNBUFFERED", "PYTHONWARNINGS", "TORCH_DEVICE_BACKEND_AUTOLOAD"}  # a forked rank obeys them
SHOWS_STACKS = {"HORO_STALL_WARNING_MS", "HORO_DEADLOCK_MS"}
PASSED_ON = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
NUMBERS = ("HORO_RANK", "OMPI_COMM_WORLD_RANK", "RANK")
MOST_BYTES = 1 << 20


def variables_at_start(env):
    """The variables that an interpreter or a library reads before a script runs, and that no fork sets again."""
    return frozenset(item for item in env.items() if AT_START.match(item[0]) and item[0] not in SET_BY_FORKS)


def imports_torch(script):
    try:
        with open(script, encoding="utf-8") as file:
            text = file.read()
            return IMPORTS_TORCH.search(text) is not None and LOOKS_AT_IMPORTS not in text
    except OSError:
        return False


def may_be_forked(words, env):
    return bool(words) and "LD_PRELOAD" not in env and not SHOWS_STACKS & env.keys() and imports_torch(words[0])


def ask(server, words, env, files, group=0):
    """Asks for a rank in a process group (0: of its own) with these open files: (descriptor, its number in the rank).
    Returns its pid and a connection, which brings its exit status; None if the server does not suit."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
    namespaces = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in ("net", "mnt")]
    place = {"group": group, "cores": list(os.sched_getaffinity(0)), "folder": os.getcwd()}
    rank = {"words": words, "env": dict(env), "numbers": [number for _, number in files]}
    connection.connect(server)
    descriptors = [*(descriptor for descriptor, _ in files), *namespaces]
    socket.send_fds(connection, [json.dumps(place | rank).encode()], descriptors)
    answer = connection.recv(64)
    for namespace in namespaces:
        os.close(namespace)
    if answer:
        return int(answer), connection
    connection.close()
    return None


def is_open(descriptor):
    try:
        return os.fstat(descriptor) is not None
    except OSError:
        return False


def pass_on(number, group):
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass


def end_as(code):
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def main(servers, words):
    """Runs `python words`: words[0] may be an option, too."""
    files = [(number, number) for number in map(int, os.listdir("/proc/self/fd")) if is_open(number)]
    number = next((os.environ[name] for name in NUMBERS if name in os.environ), "0")
    server = servers[int(number) % len(servers)]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    rank = may_be_forked(words, os.environ) and ask(server, words, os.environ, files)
    if rank:
        for number in PASSED_ON:
            signal.signal(number, lambda number, _: pass_on(number, rank[0]))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if not rank:
        os.execv(sys.executable, [sys.executable, *words])
    for descriptor, _ in files:
        os.close(descriptor)
    end_as(int(rank[1].recv(64) or -signal.SIGKILL))
