"""Messages with a length in front, over the socket between run() and a rank."""

import struct

_LENGTH = struct.Struct("!Q")


def send(channel, payload):
    channel.sendall(_LENGTH.pack(len(payload)))
    channel.sendall(payload)


def _read(channel, size):
    """size bytes; None if the other end has closed before."""
    data = bytearray()
    while len(data) < size:
        part = channel.recv(min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)


def receive(channel):
    """The next message; None at the end."""
    header = _read(channel, _LENGTH.size)
    return None if header is None else _read(channel, _LENGTH.unpack(header)[0])
