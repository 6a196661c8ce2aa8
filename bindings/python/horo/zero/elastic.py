"""The division in an elastic job: a rank that is lost takes no state with it.

Each rank updates the pieces of its buddy, too: all ranks have the whole gradients, so that costs no message. After a
death the buddy gives the lost pieces to all, and the state is dealt anew to the ranks that are there. The members in
the gather of a step are the same on all ranks, and are the agreement on what comes next.
"""

import contextlib

from horo.torch.sharding import MembersChanged, PartGather, kind_of, pack
from horo.zero.division import Division


class ElasticDivision(Division):
    """Of a job that loses ranks, and that ranks join. A rank that has joined has no layout before its first step."""

    def __init__(self, *options, has_copies):
        super().__init__(*options)
        self.has_copies = has_copies

    def run(self, step):
        """See Division."""
        is_settled = False
        while not is_settled:
            if self.layout is not None:
                self.update(step)
            is_settled = self._settle(step)

    def divide(self):
        """Not here: the members of a step agree on the layout."""

    def change(self, params):
        """See Division."""
        self._settle(is_change=True)

    def whole(self, *options):
        """See Division."""
        while True:
            self._settle()
            with contextlib.suppress(MembersChanged):
                if self.layout is not None:  # None: a member was lost before all had a layout
                    return super().whole(*options)

    def _settle(self, step=None, is_change=False):
        """Gives the members that are there a layout, and after a step the parameters the values of all members. step:
        of the user's class; None: there was none. is_change: the parameters are others. Returns False if no member has
        updated its pieces yet."""
        present, layout, is_change, values = self._first_gather(is_change, step is not None)
        if layout is None:  # before the first step of all ranks
            with contextlib.suppress(MembersChanged):
                self._deal(present, self.params)
            return False
        if step is not None and not is_change:
            if self.layout is None:
                self.update(step)  # of no piece, for what the user's class counts
            present = self._parts_of(layout).end(self.params, present, values)
        if present.members != layout.members or is_change:
            self._move(layout, present)
        return not is_change

    def _parts_of(self, layout):
        return PartGather(layout, self.gather, f"the state of {self.owner}")

    def _first_gather(self, is_change, has_values):
        """The Present, the layout that they have, or None, whether their parameters are others, and by kind what the
        members have given. A rank that has joined gets the parameters of the layout."""
        layout, places = self.layout, {param: place for place, param in enumerate(self.everything)}
        kinds, header = sorted(set(map(kind_of, self.everything)), key=str), ()
        if layout is not None:
            mine = [places[param] for param in self.params if param in places]
            header = (int(is_change), len(layout.members), *layout.members, *layout.hosts, *mine)
        if has_values and layout is not None:
            tensors = [self._parts_of(layout).begin(self.params, kind) for kind in kinds]
        else:
            tensors = [pack(self.everything, (), kind) for kind in kinds]
        present, headers, values = self.gather.tensors(tensors, "step", header)
        found = next((header for header in headers if header), None)
        if found is None:
            return present, None, False, {}
        is_change, count, *rest = found
        if layout is None:
            self.params = [self.everything[place] for place in rest[2 * count :]]
            layout = self.layout_of(rest[:count], rest[count : 2 * count], self.params)
        return present, layout, bool(is_change), dict(zip(kinds, values))

    def _move(self, layout, present):
        """Deals the state of a layout anew, to those that are present. A death meanwhile begins it anew: the pieces
        before are kept until all have theirs."""
        params = self.tracked()
        while True:
            givers = layout.givers(present.members, (), f"the state of {self.owner}")
            try:
                return self._deal(present, params, self.collected(givers, present.members))
            except MembersChanged as change:
                present = change.present

    def _deal(self, present, params, moved=()):
        layout = self.layout_of(*present, params)
        self.adopt(layout, params, moved, lambda: self.gather.tensors([], "dealt", expected=present.members))
