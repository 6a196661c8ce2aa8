"""A collective on bytes, for the agreements of horo.elastic. No framework is used here."""

import ctypes
import itertools

from horo import _native
from horo._changes import held
from horo._specs import Spec

PREFIX = "horo.elastic"


def gather(session, name, data):
    """The bytes of each rank, a list by rank. data: bytes of any length. Collective over the world; blocks. Runs again
    without ranks that die meanwhile: the rows are those of the ranks that took part, the same on all of them."""
    memory = ctypes.create_string_buffer(data, len(data) or 1)
    spec = Spec(f"{PREFIX} {name}", _native.ALL_GATHER, _native.SUM, _native.UINT8, (len(data),))
    work = session.submit(spec, ctypes.addressof(memory), None, memory)
    with held:
        try:
            session.wait([work])
            result = session.result(work)
            counts = list(result.counts[: result.count_count])
            everything = ctypes.string_at(result.data, result.bytes) if result.bytes else b""
        finally:
            session.drop([work])
    ends = list(itertools.accumulate(counts))
    return [everything[end - count : end] for end, count in zip(ends, counts)]
