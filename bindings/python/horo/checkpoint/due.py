"""Due: at which steps a State is saved. Pure: no session, no clock of its own.

All ranks ask at the same steps and must get the same answer. Steps are counted alike everywhere; seconds are not. So
with every_s the ranks agree on the time at few steps: rank 0 tells how long the last save is ago and how long a step
takes, and the next agreement is half the way to the next save, but at most MOST_STEPS later, as steps may become slow.
In most steps there is no exchange.
"""

MOST_STEPS = 64  # between two agreements


class Due:
    """The steps of one State. Equal on all ranks."""

    def __init__(self, every_s=None, every_rounds=None):
        """One of both is given."""
        self._every_s, self._every_rounds = every_s, every_rounds
        self.saved = 0  # the step of the last save, or of the start
        self._next = 1  # every_s: the step of the next agreement

    def settings(self):
        """Equal on all ranks."""
        return [self._every_s, self._every_rounds]

    def begin(self, step):
        """The State begins at this step, or was saved at it."""
        self.saved, self._next = step, step + 1

    def ask(self, step, agree):
        """Whether to save at this step. agree(): (seconds since the last save, seconds of a step) of one rank, the same
        on all of them; collective. It is called at the same steps on all ranks."""
        if step <= self.saved:
            return False
        if self._every_rounds is not None:
            return step // self._every_rounds > self.saved // self._every_rounds
        if step < self._next:
            return False
        since, of_step = agree()
        left = self._every_s - since
        if left <= of_step / 2:
            return True
        self._next = step + min(MOST_STEPS, max(1, int(left / 2 / max(of_step, 1e-9))))
        return False

    def state(self):
        """For a rank that joins."""
        return [self.saved, self._next]

    def load_state(self, state):
        self.saved, self._next = state
