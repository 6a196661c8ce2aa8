"""Lists of hosts as Horovod writes them: "host:slots,host:slots", and hostfiles with lines "host slots=4"."""

import contextlib
import functools
import re
import socket

HERE = ("localhost", "127.0.0.1", "::1", "[::1]")


@functools.cache
def _is_here(name):
    own = socket.gethostname()
    return name in (*HERE, own, own.partition(".")[0]) or _has_address_here(name.strip("[]"))


def _has_address_here(name):
    """Whether an address of the name is one of this host: a socket can be bound to it."""
    with contextlib.suppress(OSError, UnicodeError):  # a name that no address is known of
        for family, kind, _, _, address in socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
                probe.bind(address)
                return True
    return False


def parse_hosts(text, option):
    """[(host, slots)]; a host without a number has one slot. option: its name in messages."""
    hosts = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*([A-Za-z0-9_][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+\])(?::(\d+))?\s*", part)
        if not found or found[2] == "0":
            raise ValueError(f"{option} {text}: {part!r}; expected HOST:SLOTS, as in localhost:4")
        hosts.append((found[1], int(found[2] or 1)))
    return hosts


def read_hostfile(path, option):
    """The hosts of a file with lines "host slots=4"; empty lines and comments after # are skipped."""
    hosts = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.partition("#")[0].strip()
            found = re.fullmatch(r"(\S+)(?:\s+slots\s*=\s*(\d+))?", line)
            if line and (not found or found[2] == "0"):
                raise ValueError(f"{option} {path}, line {number}: {line!r}; expected HOST slots=SLOTS")
            if line:
                hosts += parse_hosts(f"{found[1]}:{found[2] or 1}", f"{option} {path}, line {number}:")
    if not hosts:
        raise ValueError(f"{option} {path}: no host in it; expected lines such as: localhost slots=4")
    return hosts


def are_here(hosts):
    """Whether all of them are this host."""
    return all(_is_here(name) for name, _ in hosts)


def slots_here(hosts, option):
    """The number of slots, if all hosts are this one. Raises ValueError that names the others."""
    others = sorted({name for name, _ in hosts if not _is_here(name)})
    if others:
        raise ValueError(
            f"{option}: no ranks are started on {', '.join(others)}: run() starts them on its own host, "
            f"{socket.gethostname()}, alone. For several hosts: horo run --hosts HOST:RANKS,HOST:RANKS PROGRAM"
        )
    return sum(slots for _, slots in hosts)
