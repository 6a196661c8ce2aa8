"""A Python function as horo_exchange: an all-gather among ranks that are not connected yet."""

import ctypes

from horo import _native
from horo.errors import PeerLost


def _failed(call, error):
    """Stores the exception as a status and a text; horo_init_exchange returns both to Python."""
    text = str(error) if isinstance(error, (PeerLost, ValueError)) else f"{type(error).__name__}: {error}"
    line = text.encode(errors="replace")[: call.error_bytes - 1] + b"\0"
    ctypes.memmove(call.error, line, len(line))
    if isinstance(error, PeerLost):
        call.origin = error.origin
        return _native.PEER_LOST
    return _native.INVALID_ARGUMENT if isinstance(error, ValueError) else _native.INTERNAL


def foreign(exchange):
    """exchange(call, mine) returns every rank's bytes by rank; `call` has rank, size, start and timeout_ms.

    The caller keeps the result alive as long as the library may call it.
    """

    def exchange_blobs(_, pointer):
        call = pointer.contents
        try:
            blobs = exchange(call, ctypes.string_at(call.mine, call.mine_bytes))
            if len(blobs) != call.size or any(len(blob) > _native.EXCHANGE_BYTES for blob in blobs):
                raise ValueError(f"an exchange returns {call.size} values of at most {_native.EXCHANGE_BYTES} bytes")
            for rank, blob in enumerate(blobs):
                ctypes.memmove(call.all + rank * _native.EXCHANGE_BYTES, blob, len(blob))
                call.all_bytes[rank] = len(blob)
        except BaseException as error:  # none may cross the C ABI
            return _failed(call, error)
        return _native.OK

    return _native.Exchange(exchange_blobs)
