"""Giving: the fields of a State from the ranks that have it to those that have joined."""

from horo.elastic import gathers
from horo.elastic.buffers import Sharded, buffer_of, buffer_to_set, finish
from horo.elastic.fields import from_json, to_json
from horo.elastic.transfer import transfer


class Giving:
    """One growth as one rank sees it."""

    def __init__(self, state, border, has_state):
        self._state, self._border, self.has_state = state, border, has_state

    def give(self, rows):
        """One attempt: the small values of the first rank with the state, then the bytes of all of them. rows: of
        Border.agree(). Sets has_state if all is here. Collective over the world; blocks. Raises ValueError, on a rank
        that has joined alone, if its State has other fields, shapes or types."""
        first = next((row.member for row in rows if row.has_state), None)
        session, me = self._border.session, self._border.me
        fields = self._state._fields()
        mine = self._state._rest(fields) if self.has_state and me == first else None
        told = gathers.gather(session, "small values", to_json([me, mine]))
        rest = next((rest for _, rest in map(from_json, told) if rest is not None), None)
        if rest is None:  # that rank is gone: the caller asks again
            return
        buffers = self._own(fields) if self.has_state else self._room(fields, rest)
        moved = transfer(session, buffers, self.has_state)
        if self.has_state or not moved.is_complete:
            return
        finish(buffers)
        self._state._take(fields, rest)
        self._border.take_place(rest["members"], rest["seen"])
        self.has_state = True
        session.synced(moved.text)

    def _own(self, fields):
        return [buffer_of(*row) for field in fields for row in field.horo_state() if not isinstance(row[2], Sharded)]

    def _room(self, fields, rest):
        """The Buffers of this rank, made by what the others have told."""
        here, there = [field.name for field in fields], list(rest["fields"])
        if here != there:
            raise ValueError(
                f"rank {self._border.me}: the State has the fields "
                f"{', '.join(here)} here and {', '.join(there)} on the ranks that it joins"
            )
        rows = [row for field in fields for row in field.prepare(rest["fields"][field.name])]
        return [buffer_to_set(*row) for row in rows if not isinstance(row[2], Sharded)]
