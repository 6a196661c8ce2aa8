"""The members that have the state of those that were lost."""

import horo


class ShardLost(horo.HoroError):
    """A member and its buddy were lost together: what they updated is gone. That part of the parameters is that of
    the step before, or a mix of both. The same on all ranks."""


def givers(layout, ids, have, has_buddies, owner):
    """{place: the member that gives its pieces}, of the places that are not in `have`. ids: of the members that are
    there. owner: the name of the optimizer's class. Raises ShardLost."""
    found = {}
    for place, member in enumerate(layout.members):
        if place in have:
            continue
        buddy = layout.buddies[place] if has_buddies else None
        buddy = None if buddy is None else layout.members[buddy]
        if member not in ids and buddy not in ids:
            raise ShardLost(
                f"horo.zero: member {member} was lost, and "
                + ("there is no copy of its state" if buddy is None else f"so was its buddy, member {buddy}")
                + f": a part of the state of {owner} is gone. Go on from a checkpoint"
            )
        found[place] = member if member in ids else buddy
    return found
