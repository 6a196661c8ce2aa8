"""Census: which ranks have contributed to a round, and whether one of them knows of ranks that are ready to join, or of
a notice.

A small all_reduce belongs to each round of an optimizer in an elastic job and ends with it: on all ranks or on none,
of the ranks that contributed to the gradients. So all ranks know the same at the end of a round, and no exchange
between batches is needed. It has the dtype and the operation of most gradients, so it is a part of their last bucket
and costs no collective of its own. Its words: whether this rank knows of joiners; whether it has a notice; how many
batches it has taken, and the square; and a word for each member, 1 for this rank. A word of a member that is not 0 in
the sum or the average has come from that member. The numbers of batches are equal on all ranks if the mean of their
squares is the square of their mean.
"""

import ctypes

from horo import _native
from horo._specs import Average, Spec, Sum
from horo.errors import Mismatch

BATCHES = 8  # numbers of batches are compared modulo this: their means are exact enough in float32
HEAD = 4  # words before those of the members
TOLERANCE = 5e-5  # of the variance; that of 8,192 ranks, of which one differs by 1, is 1.2e-4
_SUM = Spec(None, _native.ALL_REDUCE, Sum, _native.FLOAT32)


class Found:
    """What the ranks have told in one all_reduce."""

    __slots__ = ("contributors", "knows_joiners", "knows_notice")

    def __init__(self, words, members):
        knows, notice, numbers, squares, *ones = words
        self.contributors = frozenset(member for member, one in zip(members, ones) if one != 0)
        self.knows_joiners, self.knows_notice = knows != 0, notice != 0
        scale = sum(ones)
        if squares / scale - (numbers / scale) ** 2 > TOLERANCE:
            raise Mismatch(
                "horo.elastic: ranks are at different batches of State.batches(): take the same number of batches on "
                "all ranks"
            )


class Census:
    """The words of one rank. Rounds may end in any thread, one at a time for each optimizer."""

    def __init__(self, session):
        self.session = session
        self.members, self._place = (), 0
        self.batches = 0  # that this rank has taken since begin()
        self.found = []  # a Found for each round since the last border
        self.told = {}  # number of each round stream that has told since then: the name of its first parameter

    def begin(self, members, me):
        """The members that may contribute from now on, a tuple of MemberIds, equal on all ranks; `me` is this one's."""
        self.members, self._place = tuple(members), members.index(me)
        self.batches, self.found, self.told = 0, [], {}

    def submit(self, stream=0, common=_SUM, label=""):
        """Adds the words of this rank to the present round of a round stream; 0: to none. common: the Spec of the
        gradients. label: for `told`. Returns a work and its memory."""
        if stream:
            self.told[stream] = label
        number, count = self.batches % BATCHES, HEAD + len(self.members)
        has_notice = self.session.notice() is not None
        words = (ctypes.c_float * count)(bool(self.session.joiners()), has_notice, number, number * number)
        words[HEAD + self._place] = 1
        name = f"members of round stream {stream}" if stream else "members at a border"
        fields = {"dtype": _native.FLOAT32, "shape": (count,), "round_stream": stream, "stepwise": int(stream != 0)}
        spec = (common if common.op in (Average, Sum) else _SUM)._replace(name=name, set=0, codec=None, **fields)
        address = ctypes.addressof(words)
        return self.session.submit_key(self.session.key(spec), address, address, words), words

    def take(self, words):
        """The work of these words has ended."""
        self.found.append(Found(words, self.members))

    def exchange(self):
        """Asks all ranks outside of a round. Collective over the world; blocks."""
        work, words = self.submit()
        try:
            self.session.wait([work])
        except BaseException:
            self.session.drop([work])
            raise
        self.session.release([work])
        self.take(words)
