"""Census: which ranks have contributed to a round, and whether one of them knows of ranks that are ready to join.

A small all_reduce belongs to each round of an optimizer in an elastic job and ends with it: on all ranks or on none, of
the ranks that contributed to the gradients. So all ranks know the same at the end of a round, and no exchange between
batches is needed. Its words: how many ranks know of joiners; the sum of the ranks' numbers of batches and of the
squares of these, which are equal on all ranks if n times the second is the square of the first; and a bit for each
member. Each rank adds its own bit, so the sum has the bits of those that contributed.
"""

import ctypes

from horo import _native
from horo._specs import Spec
from horo.errors import Mismatch

BITS = 62  # of a word, a sum of int64
BATCHES = 1 << 20  # numbers of batches are compared modulo this


class Found:
    """What the ranks have told in one all_reduce."""

    __slots__ = ("contributors", "knows_joiners")

    def __init__(self, words, members):
        knows, numbers, squares, *masks = words
        places = (place for place in range(len(members)) if masks[place // BITS] >> (place % BITS) & 1)
        self.contributors = frozenset(members[place] for place in places)
        self.knows_joiners = knows > 0
        if len(self.contributors) * squares != numbers**2:
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

    def begin(self, members, me):
        """The members that may contribute from now on, a tuple of MemberIds, equal on all ranks; `me` is this one's."""
        self.members, self._place = tuple(members), members.index(me)
        self.batches, self.found = 0, []

    def submit(self, stream):
        """Adds the words of this rank to the present round of a round stream. Returns a work and its memory."""
        number = self.batches % BATCHES
        count = 3 + -(-len(self.members) // BITS)
        words = (ctypes.c_int64 * count)(bool(self.session.joiners()), number, number * number)
        words[3 + self._place // BITS] = 1 << self._place % BITS
        name = f"members of round stream {stream}" if stream else "members at a border"
        spec = Spec(
            name,
            _native.ALL_REDUCE,
            _native.SUM,
            _native.INT64,
            (count,),
            stepwise=int(stream != 0),
            round_stream=stream,
        )
        address = ctypes.addressof(words)
        return self.session.submit_key(self.session.key(spec), address, address, words), words

    def take(self, words):
        """The work of these words has ended."""
        self.found.append(Found(words, self.members))

    def exchange(self):
        """Asks all ranks outside of a round. Collective over the world; blocks."""
        work, words = self.submit(0)
        try:
            self.session.wait([work])
        except BaseException:
            self.session.drop([work])
            raise
        self.session.release([work])
        self.take(words)
