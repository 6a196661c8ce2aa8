"""The division in an elastic job: a rank that is lost takes no state with it.

Each rank updates the pieces of its buddy, too: all ranks have the whole gradients, so that costs no message. After a
death the buddy gives the lost pieces to all, and the state is dealt anew to the ranks that are there. The members in
the gather of a step are the same on all ranks, and are the agreement on what comes next.
"""

import contextlib
import functools

from horo.zero.division import Division, kind_of
from horo.zero.exchange import Changed, my_id
from horo.zero.gather import pack, unpack
from horo.zero.loss import givers


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
        present, layout, is_change, parts = self._gather_step(is_change, step is not None)
        if layout is None:  # before the first step of all ranks
            with contextlib.suppress(Changed):
                self._deal(present.ids, present.hosts)
            return False
        if step is not None and not is_change:
            if self.layout is None:
                self.update(step)  # of no piece, for what the user's class counts
            present = self._spread(layout, present, parts)
        if present.ids != layout.members or is_change:
            self._move(layout, present, *self.tracked())
        return not is_change

    def _spread(self, layout, present, parts):
        """Gives the parameters the values of all members, also of those that were lost. Returns the Present."""
        for kind, of_kind in parts.items():
            self._put(present, of_kind, lambda one: layout.parts(layout.members.index(one), kind), layout)
        have = {layout.members.index(one) for one in present.ids if one in layout.members}
        while len(have) < len(layout.members):
            present = self._rescue(layout, present, have)
        return present

    def _gather_step(self, is_change, has_values):
        """The Present, the layout that they have, or None, whether their parameters are others, and the values by kind
        and member. A rank that has joined gets the parameters of the layout."""
        places = {param: place for place, param in enumerate(self.everything)}
        firsts = {kind_of(param): param for param in reversed(self.everything)}
        kinds, header, parts_of = sorted(firsts, key=str), (), lambda kind: ()
        if self.layout is not None:
            members, place = self.layout.members, self.layout.members.index(my_id())
            mine = [places[param] for param in self.params if param in places]
            header = (int(is_change), len(members), *members, *self.layout.hosts, *mine)
            if has_values:
                parts_of = functools.partial(self.layout.parts, place)
        tensors = [pack(self.params, parts_of(kind=kind), like=firsts[kind]) for kind in kinds]
        present, headers, parts = self.exchange.tensors(tensors, "step", header)
        found = next((header for header in headers if header), None)
        if found is None:
            return present, None, False, {}
        is_change, count, *rest = found
        if self.layout is not None:
            return present, self.layout, bool(is_change), dict(zip(kinds, parts))
        self.params = [self.everything[place] for place in rest[2 * count :]]
        self.kinds = [(param.numel(), kind_of(param)) for param in self.params]
        layout = self._layout_of(rest[:count], rest[count : 2 * count], self.kinds)
        return present, layout, bool(is_change), dict(zip(kinds, parts))

    def _put(self, present, values, parts_of, layout):
        """Writes what the other members have sent into the parameters."""
        for one, of_member in zip(present.ids, values):
            if one != my_id() and one in layout.members:
                unpack(self.params, parts_of(one), of_member)

    def _rescue(self, layout, present, have):
        """The buddies of members that were lost in the step give their values. Adds to `have`, the places whose values
        are here. Returns the Present."""
        found = self._givers(layout, present, have)
        missing = {one: [place for place, giver in found.items() if giver == one] for one in found.values()}

        def parts_of(one, kind):
            return [part for place in missing.get(one, ()) for part in layout.parts(place, kind)]

        first = {kind: param for param, (_, kind) in zip(self.params, self.kinds)}
        tensors = [pack(self.params, parts_of(my_id(), kind), like=first[kind]) for kind in layout.kinds]
        present, _, parts = self.exchange.tensors(tensors, "rescue")
        for kind, of_kind in zip(layout.kinds, parts):
            self._put(present, of_kind, lambda one: parts_of(one, kind), layout)
        have.update(place for one in present.ids for place in missing.get(one, ()))
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

    def whole(self, wanted):
        """See Division."""
        while True:
            self._settle()
            if self.layout is None:
                continue  # a member was lost before all had a layout
            with contextlib.suppress(Changed):
                return {param: entry for param, entry in self._collected(self.layout.members) if wanted(param)}
