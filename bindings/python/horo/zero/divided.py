"""The mixin of a divided optimizer, between the class of hvd.DistributedOptimizer and the user's class."""

import torch

from horo.zero.state_dicts import StateDicts

_OWN = ("_zero", "_zero_whole", "_zero_all_have_it")  # attributes of a Divided


class Divided(StateDicts):
    """step() and its state."""

    def divide(self, division):
        """Before all else."""
        self._zero, self._zero_whole, self._zero_all_have_it = division, None, False

    @torch.optim.Optimizer.profile_hook_step
    def step(self, closure=None):
        """Updates this rank's pieces by the step() of the user's class, and gathers the parameters."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        division = self._zero
        if not division.process_set.included():
            self._zero_step(self)
            return loss
        self._zero_whole = None
        with torch.no_grad():
            division.begin(self.param_groups, self.state)
            division.run(self._zero_update)
        return loss

    step.hooked = True  # it runs the step hooks: torch must not wrap it once more in a copy

    def _zero_update(self):
        """One step() of the user's class, of the pieces."""
        division, whole = self._zero, self.state
        params = [group["params"] for group in self.param_groups]
        try:
            for group in self.param_groups:
                group["params"] = [piece.tensor for one in group["params"] for piece in division.pieces.get(one, ())]
            self.state = division.state
            self._zero_step(self)
        finally:
            self.state = whole
            for group, before in zip(self.param_groups, params):
                group["params"] = before

    def __getstate__(self):
        return {**super().__getstate__(), **{name: getattr(self, name) for name in _OWN}}
