"""Addresses of this host."""

import socket

from horo import _hosts


def get_local_host_addresses():
    """IPv4 addresses of this host, as far as its name tells, and the loopback address."""
    try:
        found = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    except OSError:
        found = set()
    return found | {"127.0.0.1"}


def get_local_intfs(nic=None):
    """The loopback interfaces; with nic only that one."""
    return {name for _, name in socket.if_nameindex() if name.startswith("lo") and nic in (None, name)}


def resolve_host_address(host_name):
    """The IPv4 address, or None."""
    try:
        return socket.gethostbyname(host_name)
    except OSError:
        return None


def filter_local_addresses(all_host_names):
    """Those of these hosts that are not this one."""
    return [name for name in all_host_names if not _hosts.are_here([(name, 1)])]
