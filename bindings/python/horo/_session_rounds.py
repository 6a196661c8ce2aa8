"""The rounds of optimizers: what is submitted in one is agreed on together."""

from horo import _native
from horo._arguments import report
from horo._native import quick
from horo._specs import Spec


class Rounds:
    """The part of Session that tells them."""

    def step_end(self, number=0):
        """All gradients of a step were submitted to the process set and waited for."""
        self._check(quick.horo_end_round(self.pointer, number))

    def begin_round(self, number, stream, step, round):
        """What this rank submits from now on of this round stream belongs to this round.

        A tensor that ranks submit in different rounds fails on all of them. (step, round) rises. Sends nothing."""
        if self.is_early:
            self.refuse_early(call="backward() of a DistributedOptimizer")
        self._check(quick.horo_begin_round(self.pointer, number, stream, step, round))

    def fail_round(self, number, stream, reason):
        """This rank will not submit the rest of its present round: what others submit of it fails with the reason."""
        self._check(quick.horo_fail_round(self.pointer, number, stream, report(reason)))

    def commit(self, number, stream):
        """All tensors of the present round of this round stream are submitted on this rank. In an elastic job the works
        of the round end with this work: all of them on all ranks, or none. Returns a work; None in a static job."""
        if not self.is_elastic:
            return None
        key = self.key(Spec(f"commit of round stream {stream}", _native.BARRIER, set=number, round_stream=stream))
        return self.submit_key(key, None, None, None)
