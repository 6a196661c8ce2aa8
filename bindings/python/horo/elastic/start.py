"""The start of a State: the fields of rank 0 on all ranks.

Ranks that begin with other values would train other models, and a rank that joins would get parts of several of them.
"""

import ctypes
import hashlib
import itertools
import warnings

from horo._native import slow
from horo.elastic import gathers
from horo.elastic.buffers import REPLICATED, buffer_of
from horo.elastic.fields import from_json, to_json
from horo.elastic.giving import Giving


def make_equal(state, border):
    """Gives the fields of rank 0 to the ranks whose fields differ, with a warning there. Tensors that are per rank stay
    as they are where nothing else differs. Collective over the world; blocks: each rank reads its fields once, and only
    those of ranks that differ are moved. Raises ValueError on all ranks if fields differ in type or shape."""
    if len(border.members) == 1:
        return
    terms = state.terms()
    mine = _digests(state) | {"": _digest(terms, [])}
    rows = [from_json(row) for row in gathers.gather(border.session, "start", to_json([border.me, mine]))]
    first = rows[0][1]
    differing = sorted(name for name in first.keys() | mine.keys() if first.get(name) != mine.get(name))
    if all(digests == first for _, digests in rows):
        return
    if any(digests[""] != first[""] for _, digests in rows):
        _name_difference(border, terms)
    giving = Giving(state, border, not differing)
    border.until_all_have_the_state(giving.give, lambda: giving.has_state, state.step)
    if differing:
        warnings.warn(
            f"rank {border.members.index(border.me)} begins with the values of rank 0: its own differed in "
            f"{', '.join(differing)} of the State",
            stacklevel=5,
        )


def _name_difference(border, terms):
    rows = [from_json(row) for row in gathers.gather(border.session, "terms", to_json([border.me, terms]))]
    for rank, (_, theirs) in enumerate(rows):
        for here, there in itertools.zip_longest(theirs, rows[0][1], fillvalue="no more fields"):
            if here != there:
                raise ValueError(
                    f"horo.elastic.State: rank {rank} has {here}, and rank 0 has {there}: give all ranks the same "
                    "script, settings and data"
                )


def _digests(state):
    """{field: a text that differs where the field does}; of what ranks have in common."""
    fields = state._fields()
    rest = state._rest(fields)
    digests = {name: _digest([to_json(value)], []) for name, value in rest["fields"].items()}
    for field in fields:
        buffers = [buffer_of(*row) for row in field.horo_state() if row[2] == REPLICATED]
        digests[field.name] += _digest([f"{one.name} {one.form}" for one in buffers], buffers)
    return digests | {"pass": rest["pass"], "step": rest["step"]}


def _digest(texts, buffers):
    digest = hashlib.sha256("\n".join(text if type(text) is str else str(text) for text in texts).encode())
    count = len(buffers)
    if count:
        hashes = (ctypes.c_uint64 * count)()
        addresses = (ctypes.c_void_p * count)(*(one.address or None for one in buffers))
        sizes = (ctypes.c_uint64 * count)(*(one.nbytes for one in buffers))
        slow.horo_hash_many(addresses, sizes, count, ctypes.cast(hashes, ctypes.c_void_p))
        digest.update(bytes(hashes))
    return digest.hexdigest()[:32]
