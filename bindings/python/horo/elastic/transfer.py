"""transfer: gives the bytes of a state to the ranks that have joined, from the memory of all ranks that have it.

All ranks of the world call it between two steps, so the memory of the donors does not change. The table of the first
donor (name, form and bytes of each tensor) is compared with that of a joining rank before a byte is overwritten. The
tensors are cut into pieces, which are dealt to the donors in turn. On one host the joining rank reads the pieces from
the donors' memory, where the kernel lets it, which a byte of each donor shows; else the donors give them to gathers.
Both ends hash each piece. Ranks that join at the same time read one after the other, because a process can allow one
other to read its memory. A donor that dies meanwhile is seen by all ranks in the next gather; the transfer then ends
without a result for this rank, and the caller begins another one.
"""

import ctypes
import hashlib
import os
import time
import typing

from horo.elastic import gathers, memory
from horo.elastic.fields import from_json, to_json
from horo.errors import HoroError

PIECE_BYTES = 2 << 20  # of a piece; smaller tensors are put together
MOST_PARTS = 256  # tensors of a piece
THREADS = 2  # of the rank that joins
READ, CANNOT_READ, LOST = "read", "cannot read", "lost"  # what a joining rank says after its turn
REFUSED = (
    "rank {}: the state of this rank differs from that of the ranks that it joins: {}. Give all ranks the same script, "
    "settings and data"
)


class Moved(typing.NamedTuple):
    """What a transfer has moved to this rank; bytes and milliseconds are 0 at a donor."""

    is_complete: bool
    nbytes: int
    donors: tuple  # their MemberIds, the numbers that horo run prints
    milliseconds: float
    by_messages: bool

    @property
    def text(self):
        """Of Session.synced()."""
        ranks = ", ".join(map(str, self.donors))
        size = f"{self.nbytes / (1 << 20):.4g} MiB" if self.nbytes >= 1 << 20 else f"{self.nbytes / 1024:.4g} KiB"
        return f"{size} from rank{'s' * (len(self.donors) > 1)} {ranks} in {self.milliseconds:.0f} ms" + (
            " by messages" if self.by_messages else ""
        )


class _Peer(typing.NamedTuple):
    """What a rank tells of itself."""

    rank: int  # at the beginning of the transfer
    member: int
    pid: int
    has_state: bool
    digest: str
    addresses: list


def transfer(session, tensors, has_state):
    """Fills the tensors of the ranks without the state. tensors: Buffers, the same names, forms and order on all ranks.

    Collective over the world; blocks. Returns Moved. Raises ValueError on a joining rank whose tensors differ, with the
    first difference; the other ranks go on when it has left. Raises HoroError if pieces arrive with other hashes."""
    table = [[one.name, one.form, one.nbytes] for one in tensors]
    peers, first_table = _meet(session, tensors, table, has_state)
    donors = [peer for peer in peers if peer.has_state and peer.digest == _digest(first_table)]
    if first_table is None or not donors:
        return Moved(has_state, 0, (), 0, False)
    me = peers[_my_rank(session, peers)]
    if not has_state and (difference := difference_of(table, first_table)):
        raise ValueError(REFUSED.format(me.member, difference))
    pieces = cut([one.nbytes for one in tensors])
    moved = Moved(has_state, 0, tuple(peer.member for peer in donors), 0, False)
    for joiner in (peer for peer in peers if not peer.has_state):
        turn = _Turn(session, tensors, (me, joiner, donors), pieces)
        moved = turn.run() or moved
    return moved


def _digest(table):
    return None if table is None else hashlib.sha256(to_json(table)).hexdigest()


def _my_rank(session, peers):
    return next(peer.rank for peer in peers if peer.pid == os.getpid())


def _meet(session, tensors, table, has_state):
    """A _Peer for each rank, by rank, and the table of the first one with the state, or None."""
    mine = {
        "member": session.world.members[session.topology.rank],
        "pid": os.getpid(),
        "has_state": has_state,
        "digest": _digest(table),
    }
    mine["addresses"] = [one.address for one in tensors] if has_state else []
    mine["table"] = table if has_state else None
    rows = [from_json(row) for row in gathers.gather(session, "state", to_json(mine))]
    peers = [_Peer(rank, *(row[name] for name in _Peer._fields[1:])) for rank, row in enumerate(rows)]
    return peers, next((row["table"] for row in rows if row["has_state"]), None)


def difference_of(mine, theirs):
    """The first difference of two tables of [name, form, bytes], as a text; "": there is none."""
    known = {name: form for name, form, _ in theirs}
    for name, form, _ in mine:
        if name not in known:
            return f"{name} is {form} here and missing there"
        if known[name] != form:
            return f"{name} is {form} here and {known[name]} there"
    missing = known.keys() - {name for name, *_ in mine}
    for name in known:
        if name in missing:
            return f"{name} is missing here and {known[name]} there"
    return "" if mine == theirs else "the tensors have another order"


def cut(sizes):
    """The pieces of tensors of these numbers of bytes: lists of (number of the tensor, offset, bytes)."""
    pieces, piece, room = [], [], PIECE_BYTES
    for number, size in enumerate(sizes):
        offset = 0
        while offset < size:
            if room == 0 or len(piece) == MOST_PARTS:
                pieces.append(piece)
                piece, room = [], PIECE_BYTES
            count = min(room, size - offset)
            piece.append((number, offset, count))
            offset, room = offset + count, room - count
    return [*pieces, piece] if piece else pieces


class _Turn:
    """The transfer to one joining rank."""

    def __init__(self, session, tensors, roles, pieces):
        """roles: this rank, the joining rank, the donors, each a _Peer. Piece i is that of donor i modulo their
        number."""
        self._session, self._tensors, self._pieces = session, tensors, pieces
        self._me, self._joiner, self._donors = roles
        self._is_joiner = self._me is self._joiner
        self._hashes = {}  # number of a piece: the hashes of its parts here
        self._started = time.monotonic()

    def run(self):
        """Returns Moved at the joining rank, else None."""
        gives = any(donor is self._me for donor in self._donors)
        if gives:
            memory.allow(self._joiner.pid)
        try:
            self._tell("may be read", None)
            said = self._read() if self._is_joiner else self._hashes_of(self._me)
            rows = self._tell("was read", said)
        finally:
            if gives:
                memory.allow(0)
        said = rows.get(self._joiner.rank, LOST)
        by_messages = said == CANNOT_READ
        if by_messages:
            said = self._by_messages()
        if not self._is_joiner:
            return None
        is_complete = said == READ and all(donor.rank in rows for donor in self._donors)
        for donor in self._donors if is_complete else ():
            self._check(donor, rows[donor.rank])
        nbytes = sum(one.nbytes for one in self._tensors)
        ms = 1000 * (time.monotonic() - self._started)
        return Moved(is_complete, nbytes, tuple(donor.member for donor in self._donors), ms, by_messages)

    def _tell(self, what, value):
        """{rank: value} of the ranks that are left, by the ranks at the beginning of the transfer."""
        mine = to_json([self._me.rank, value])
        return dict(from_json(row) for row in gathers.gather(self._session, f"state {what}", mine))

    def _donor_of(self, number):
        return self._donors[number % len(self._donors)]

    def _parts(self, number):
        """[(address here, bytes)] of a piece."""
        return [(self._tensors[tensor].address + offset, count) for tensor, offset, count in self._pieces[number]]

    def _hashes_of(self, donor):
        """The hashes of the parts of the donor's pieces in this rank's memory."""
        numbers = [number for number in range(len(self._pieces)) if self._donor_of(number) is donor]
        for number in numbers:
            if number not in self._hashes:
                self._hashes[number] = memory.hashes(self._parts(number))
        return [one for number in numbers for one in self._hashes[number]]

    def _read(self):
        """Reads all pieces from the memory of the donors; what to say."""

        def copy(number, most=None):
            donor = self._donor_of(number)
            theirs = [donor.addresses[tensor] + offset for tensor, offset, _ in self._pieces[number]]
            parts = [(address, here, count) for address, (here, count) in zip(theirs, self._parts(number))]
            memory.read(donor.pid, [(*parts[0][:2], most)] if most else parts)
            if not most:
                self._hashes[number] = memory.hashes(self._parts(number))

        try:
            for number in range(min(len(self._donors), len(self._pieces))):
                copy(number, 1)  # a byte of each donor shows whether the kernel allows it
            memory.in_threads(THREADS, copy, range(len(self._pieces)))
            return READ
        except memory.Unreadable as error:
            return LOST if error.is_gone else CANNOT_READ

    def _by_messages(self):
        """The same by gathers: each donor contributes one of its pieces at a time. What to say: equal on all ranks,
        which see the same rows, so that none waits for another."""
        count = len(self._donors)
        for first in range(0, len(self._pieces), count):
            numbers = range(first, min(first + count, len(self._pieces)))
            mine = next((number for number in numbers if self._donor_of(number) is self._me), None)
            content = b"" if mine is None else b"".join(ctypes.string_at(*part) for part in self._parts(mine))
            rows = gathers.gather(self._session, "state piece", self._me.rank.to_bytes(4, "little") + content)
            found = {int.from_bytes(row[:4], "little"): row[4:] for row in rows}
            if any(self._donor_of(number).rank not in found for number in numbers):
                return LOST
            for number in numbers if self._is_joiner else ():
                self._store(number, found[self._donor_of(number).rank])
        return READ

    def _store(self, number, content):
        offset = 0
        for address, count in self._parts(number):
            ctypes.memmove(address, content[offset : offset + count], count)
            offset += count

    def _check(self, donor, theirs):
        """Raises HoroError if a part of this donor has another hash here."""
        mine = self._hashes_of(donor)
        parts = [part for i, piece in enumerate(self._pieces) if self._donor_of(i) is donor for part in piece]
        for one, other, (tensor, *_) in zip(mine, theirs, parts):
            if one != other:
                name = self._tensors[tensor].name
                raise HoroError(f"horo.elastic: {name} has arrived from rank {donor.member} with other bytes")
