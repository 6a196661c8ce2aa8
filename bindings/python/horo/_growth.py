"""What a session has for jobs that grow: its ranks may be joined by others. See docs/elastic.md.

Until the library has these calls, a session never grows.

What the ranks count equally since the start of the job cannot be known to a rank that joins: rounds of an optimizer,
looks of the audit, layouts, the order of the forward, the streams of optimizers. They count these from
`session.joins[number of the process set]`, as after a join() of Horovod; at a growth the number of the world gets a new
value that all members have agreed on.
"""

GROWTH_BITS = 16  # of session.joins[0]: calls of join() since the last growth

_hooks = []  # functions that count_growth() calls


def on_growth(function):
    """function(growths) is called on each rank, survivors and joined ones, when ranks have joined the world, between
    two rounds. growths: a number that is equal on all ranks and greater than before."""
    _hooks.append(function)
    return function


def growths_of(session):
    """The last number of count_growth(); 0: none."""
    return session.joins[0] >> GROWTH_BITS


def count_growth(session, growths):
    """Ranks have joined the world. growths: see on_growth(). All ranks call it at the same place."""
    session.joins[0] = growths << GROWTH_BITS
    for hook in _hooks:
        hook(growths)


class Growth:
    """The part of Session for ranks that join."""

    is_joiner = False  # this process was started to join a job, and has not joined yet: its session is provisional
    census = None  # a Census, while a function of horo.elastic.run trains

    def can_grow(self, terms):
        """The script of this rank can go on with ranks that join. terms: lines name=value that a rank which joins must
        have, too. May be called again: the last call counts. Does not block."""

    def joiners(self):
        """The MemberIds of the ranks that are ready to join, a tuple. Does not block."""
        return ()

    def grow(self):
        """Ends the epoch of the world at one place of all ranks, and begins the next one with the ranks that are ready.
        Collective over the world; blocks. Returns the epoch. Ranks that have died meanwhile are not in it, and the
        ready ones may not be in it either."""
        raise NotImplementedError("Session.grow()")

    def synced(self, text):
        """This rank, which has joined, has the state. text: what was sent, for the log. Does not block."""
