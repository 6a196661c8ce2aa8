"""Small gradients that come in the same bursts step after step need no hooks.

For autograd to call a hook that does next to nothing takes as long as all the rest that is done for a small gradient,
as caches miss on what belongs to it. So in the end two kinds of parameters have hooks: the first of all, the opener,
and those that submit a burst, the speakers. A gradient that was None when the opener's was complete, and is there when
its speaker's is, is complete too: autograd adds to a gradient once in a backward pass. Where that is not so, or
somebody else has a hook, which may throw a gradient away, everybody has a hook again, and step() submits what was
missed.
"""

import functools
import itertools
import operator

from horo.torch.bursts import Lists

_SAME = 3  # steps with the same bursts, before hooks go
_LONGER = 8  # times as many whenever the next step was another one after all

_GRADIENT = operator.attrgetter("grad")


def _have_none(params):
    return all(map(operator.is_, map(_GRADIENT, params), itertools.repeat(None)))


class Silence:
    """Of one optimizer's Gradients. Autograd may call the duties in any thread; one thread at a time the rest."""

    def __init__(self, gradients):
        self._gradients = gradients
        self._wait = _SAME
        self._last, self._same = [], 0
        self._silent = []  # Lists
        self._others = []  # for each of these slots, the hooks that are not ours
        self._opener = None
        self._whole = False  # no interrupt came between what belongs together
        self._holds = False  # in this step, so far

    def learn(self, bursts):
        """bursts: the Lists that a step had."""
        if self._opener is not None:
            if not self._holds or not set(map(id, self._silent)).issubset(map(id, bursts)):
                self._give_up()  # the opener or a speaker had no gradient
            self._holds = False  # until the opener comes
            return
        self._same = self._same + 1 if bursts == self._last else 0
        self._last = bursts
        if self._same >= self._wait and bursts and all(lists.speaker is not None for lists in bursts):
            self._begin()

    def end(self):
        """All have hooks again. After an interrupt the next step's opener does the rest."""
        self._whole = self._holds = False
        self._last, self._same = [], 0
        if self._opener is None:
            return
        for lists in self._silent:
            lists.speaker.duty = None
            for slot in lists.slots:
                self._gradients.hook(slot, in_bursts=True)
        opener, self._silent = self._opener, []
        opener.duty = self._opener = None
        self._gradients.hook(opener, in_bursts=True)

    def _begin(self):
        first, *others = self._last
        opener, *rest = first.slots
        self._opener = opener
        opener.duty = self._open  # first: if an interrupt comes from here on, the next step ends what has begun
        self._gradients.hook(opener, in_bursts=False)
        self._silent = [Lists(rest, first.speaker)] if rest else []
        self._silent += others
        self._others = []
        for lists in self._silent:
            lists.speaker.duty = functools.partial(self._speak, lists)
            for slot in lists.slots:
                self._others.append(self._gradients.unhook(slot))
        self._whole = True

    def _open(self):
        with self._gradients.flushing:
            is_known = self._whole and not any(self._others)
            self._holds = is_known and all(_have_none(lists.params) for lists in self._silent)
            if not self._holds:
                self._give_up()

    def _speak(self, lists):
        with self._gradients.flushing:
            if not self._holds or not self._gradients.submit_burst(lists):
                self._give_up()

    def _give_up(self):
        if self._opener is not None:  # else another thread was first
            self._wait *= _LONGER
            self.end()
