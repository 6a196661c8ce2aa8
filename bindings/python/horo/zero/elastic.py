"""The division in an elastic job: a rank that is lost takes no state with it.

Each rank updates the pieces of its buddy, too: all ranks have the whole gradients, so that costs no message. After a
death the buddy gives the lost pieces to all, and the state is dealt anew to the ranks that are there. The members in
the gather of a step are the same on all ranks, and are the agreement on what comes next.
"""

import contextlib
import functools

from horo.zero.division import Division, kind_of
from horo.zero.exchange import Changed, my_id
from horo.zero.gather import chunks_of, give, pack, put
from horo.zero.shard_lost import givers


class ElasticDivision(Division):
    """Of a job that loses ranks, and that ranks join. A rank that has joined has no layout before its first step."""

    def __init__(self, *options, has_buddies):
        super().__init__(*options)
        self.has_buddies = has_buddies

    def run(self, step):
        """See Division."""
        is_settled = False
        while not is_settled:
            if self.layout is not None:
                self.update(step)
            is_settled = self._settle(step)

    def _settle(self, step=None, is_change=False):
        """Gives the members that are there a layout, and after a step the parameters the values of all members. step:
        of the user's class; None: there was none. is_change: the parameters are others. Returns False if no member has
        updated its pieces yet."""
        present, layout, is_change, values = self._gather_step(is_change, step is not None)
        if layout is None:  # before the first step of all ranks
            with contextlib.suppress(Changed):
                self._deal(present.ids, present.hosts)
            return False
        if step is not None and not is_change:
            if self.layout is None:
                self.update(step)  # of no piece, for what the user's class counts
            present = self._spread(layout, present, values)
        if present.ids != layout.members or is_change:
            self._move(layout, present, *self.tracked())
        return not is_change

    def _spread(self, layout, present, values):
        """Gives the parameters the values of all members, also of those that were lost. values: of the first chunk, by
        kind and member. The members of the last chunk decide. Returns the Present."""
        for number, chunk in enumerate(self._chunks_of(layout)):
            parts_of = functools.partial(self._parts_of, layout, chunk)
            if number == 0:
                put(self.params, present, values, parts_of)
            else:
                present = give(self.exchange, "step", self.params, layout.kinds, parts_of)
        have = {layout.members.index(one) for one in present.ids if one in layout.members}
        while len(have) < len(layout.members):
            present = self._rescue(layout, present, have)
        return present

    def _chunks_of(self, layout):
        if layout is not self.layout:
            return chunks_of(layout, layout.kinds)
        self._chunks = self._chunks or chunks_of(layout, layout.kinds)
        return self._chunks

    @staticmethod
    def _parts_of(layout, chunk, member, kind):
        """What a member sends in a chunk."""
        return chunk[kind][layout.members.index(member)] if member in layout.members and kind in chunk else ()

    def _gather_step(self, is_change, has_values):
        """The Present, the layout that they have, or None, whether their parameters are others, and the values of the
        first chunk by kind and member. A rank that has joined gets the parameters of the layout."""
        places = {param: place for place, param in enumerate(self.everything)}
        kinds, header, chunk = sorted(set(map(kind_of, self.everything)), key=str), (), {}
        if self.layout is not None:
            members, mine = self.layout.members, [places[param] for param in self.params if param in places]
            header = (int(is_change), len(members), *members, *self.layout.hosts, *mine)
            if has_values:
                chunk = self._chunks_of(self.layout)[0]
        mine = [self._parts_of(self.layout, chunk, my_id(), kind) if chunk else () for kind in kinds]
        tensors = [pack(self.params, parts, kind=kind) for parts, kind in zip(mine, kinds)]
        present, headers, values = self.exchange.tensors(tensors, "step", header)
        found = next((header for header in headers if header), None)
        if found is None:
            return present, None, False, {}
        is_change, count, *rest = found
        layout = self.layout
        if layout is None:
            self.params = [self.everything[place] for place in rest[2 * count :]]
            self.kinds = [(param.numel(), kind_of(param)) for param in self.params]
            layout = self._layout_of(rest[:count], rest[count : 2 * count], self.kinds)
        return present, layout, bool(is_change), dict(zip(kinds, values))

    def _rescue(self, layout, present, have):
        """The buddies of members that were lost in the step give their values. Adds to `have`, the places whose values
        are here. Returns the Present."""
        found = self._givers(layout, present, have)

        def parts_of(one, kind):
            return [part for place, giver in found.items() if giver == one for part in layout.parts(place, kind)]

        present = give(self.exchange, "rescue", self.params, layout.kinds, parts_of)
        have.update(place for place, giver in found.items() if giver in present.ids)
        return present

    def _givers(self, layout, present, have=()):
        return givers(layout, present.ids, have, self.has_buddies, self.owner)

    def _move(self, layout, present, params, kinds):
        """Deals the state anew to these members, for these parameters. A death meanwhile begins it anew: until the end
        all members keep what they had."""
        while True:
            found = self._givers(layout, present)
            try:
                moved = self._collected(present.ids, lambda piece: found[piece.place] == my_id())
                self._deal(present.ids, present.hosts, params, kinds, moved)
                return
            except Changed as change:
                present = change.present

    def _deal(self, ids, hosts, params=None, kinds=None, moved=()):
        self.adopt(
            self._layout_of(ids, hosts, kinds or self.kinds),
            params or self.params,
            moved,
            lambda: self.exchange.tensors([], "dealt", expected=ids),
        )

    def change(self, params, kinds):
        """See Division."""
        self._settle(is_change=True)

    def whole(self, wanted, take=dict):
        """See Division."""
        while True:
            self._settle()
            if self.layout is None:
                continue  # a member was lost before all had a layout
            with contextlib.suppress(Changed):
                found = self._collected(self.layout.members)
                return {param: take(entry) for param, entry in found if wanted(param)}
