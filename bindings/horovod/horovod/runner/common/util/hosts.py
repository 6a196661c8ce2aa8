"""Hosts with their slots, and the places of ranks on them."""

import collections
import dataclasses

from horo import _hosts


class HostInfo:
    """A host and the number of ranks that it has room for."""

    def __init__(self, hostname, slots):
        self.hostname, self.slots = hostname, slots

    @staticmethod
    def from_string(host_string):
        return parse_hosts(host_string)[0]

    def __repr__(self):
        return f"HostInfo({self.hostname!r}, {self.slots})"


@dataclasses.dataclass
class SlotInfo:
    """The place of one rank."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int

    def to_response_string(self):
        numbers = (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        return ",".join(map(str, numbers))


INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def parse_hosts(hosts_string):
    """The HostInfos of "host:slots,host:slots"."""
    return [HostInfo(name, slots) for name, slots in _hosts.parse_hosts(hosts_string, "hosts")]


def parse_hosts_and_slots(hosts):
    """The names of "host:slots,host:slots", and the slots by name."""
    found = _hosts.parse_hosts(hosts, "hosts")
    return [name for name, _ in found], dict(found)


def parse_host_files(filename):
    """A file with lines "host slots=4" as "host:slots,host:slots"."""
    return ",".join(f"{name}:{slots}" for name, slots in _hosts.read_hostfile(filename, "hostfile"))


def get_host_assignments(hosts, min_np, max_np=None):
    """The SlotInfos of at least min_np ranks, and at most max_np: they fill the slots in the order of the hosts."""
    room = sum(host.slots for host in hosts)
    size = room if max_np is None else min(room, max_np)
    if size < min_np:
        raise ValueError(f"Requested more processes ({min_np}) than there are available slots ({size})")
    places, by_local_rank = [], collections.defaultdict(list)  # local rank: the hosts that have it
    left = size
    for host in hosts:
        count = min(host.slots, left)
        left -= count
        for local_rank in range(count):
            places.append((host.hostname, local_rank, count, len(by_local_rank[local_rank])))
            by_local_rank[local_rank].append(host.hostname)
    return [
        SlotInfo(name, rank, local_rank, cross_rank, size, local_size, len(by_local_rank[local_rank]))
        for rank, (name, local_rank, local_size, cross_rank) in enumerate(places)
    ]
