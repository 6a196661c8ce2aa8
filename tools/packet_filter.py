"""Packet filters of the hosts of hosts.py: a host drops what arrives at a device, without a word to the sender.

    packet_filter.drop("B", hosts.DEVICE)                       # all that A sends to B
    packet_filter.drop("B", hosts.DEVICE, Only(29401))          # TCP segments from or to this port
    packet_filter.drop("B", hosts.DEVICE, Only(29401, False))   # all others
    packet_filter.pass_all("B", hosts.DEVICE)

They are programs of tc's classifier bpf, which needs no compiler and no package beside iproute2.
"""

import contextlib
import dataclasses

import hosts

DROP, PASS = 2, 0xFFFFFFFF  # TC_ACT_SHOT, TC_ACT_UNSPEC
LOAD_BYTE, LOAD_HALF, JUMP_IF_EQUAL, RETURN = 0x30, 0x28, 0x15, 0x06
PROTOCOL, SOURCE, DESTINATION = 23, 34, 36  # offsets in a frame without options of IP
TCP = 6


@dataclasses.dataclass
class Only:
    """The packets to drop: TCP segments of a port, or all packets but these."""

    port: int
    is_of_port: bool = True


def drop(host, device, only=None):
    """Begins to drop; replaces an earlier filter of the device."""
    pass_all(host, device)
    hosts.tc("-n", hosts.name_of(host), "qdisc", "add", "dev", device, "clsact")
    place = ["dev", device, "ingress", "pref", "1", "protocol", "ip" if only else "all"]
    program = _program(only) if only else [(RETURN, 0, 0, DROP)]
    text = ",".join([str(len(program)), *(" ".join(map(str, one)) for one in program)])
    hosts.tc("-n", hosts.name_of(host), "filter", "add", *place, "bpf", "da", "bytecode", text)


def pass_all(host, device):
    with contextlib.suppress(RuntimeError):  # there is no filter
        hosts.tc("-n", hosts.name_of(host), "qdisc", "del", "dev", device, "clsact")


def _program(only):
    others, own = (PASS, DROP) if only.is_of_port else (DROP, PASS)
    return [
        (LOAD_BYTE, 0, 0, PROTOCOL),
        (JUMP_IF_EQUAL, 0, 4, TCP),
        (LOAD_HALF, 0, 0, SOURCE),
        (JUMP_IF_EQUAL, 3, 0, only.port),
        (LOAD_HALF, 0, 0, DESTINATION),
        (JUMP_IF_EQUAL, 1, 0, only.port),
        (RETURN, 0, 0, others),
        (RETURN, 0, 0, own),
    ]
