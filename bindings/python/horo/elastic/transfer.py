"""transfer: gives the bytes of a state to the ranks that have joined, from the memory of all ranks that have it."""

import typing


class Moved(typing.NamedTuple):
    """What a transfer has moved to this rank. is_complete: this rank has the state; else a donor was lost, and the
    caller begins another transfer. text: for Session.synced(), empty at a donor."""

    is_complete: bool
    nbytes: int
    by_messages: bool
    text: str


def transfer(session, tensors, has_state):
    """Fills the tensors of the ranks without the state. tensors: Buffers, on all ranks the same ones but for the
    addresses, in one order.

    Collective over the world, between two steps; blocks. Returns Moved. Raises ValueError on a joining rank whose
    tensors differ, with the first difference; the other ranks go on when it has left. Raises HoroError if bytes arrive
    with another hash."""
    rows = [(one.name, one.form, one.address, one.nbytes, one.of_first) for one in tensors]
    moved = session.transfer(rows, has_state)
    return Moved(bool(moved.is_complete), moved.bytes, bool(moved.by_messages), moved.text.decode(errors="replace"))
