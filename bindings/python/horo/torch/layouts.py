"""The agreed layouts of one optimizer's gradients: while one is unknown, the ranks exchange what they have (sparse.py).

A dense gradient of unknown layout is submitted at once, because dense wins. A sparse one waits for the end of the
round, and so does a parameter without a gradient on this rank.
"""

from horo.torch.sparse import DENSE, LayoutExchange, layout_of


class Layouts:
    """The layouts of the declared parameters (ParameterState.layout)."""

    def __init__(self, declared):
        self._declared = declared
        self._session = None
        self._joins = 0
        self._exchange = None
        self.undecided = []  # ParameterStates that are submitted when their layout is known

    def begin(self):
        """The end of a round. Layouts are unknown again in another session, and after a join, in which this rank may
        have missed exchanges. Returns whether an exchange is needed."""
        declared = self._declared
        if self._exchange is not None:
            self.decide()  # the last round was given up
        joins = declared.session.joins[declared.number]
        if declared.session is not self._session or joins != self._joins:
            self._session, self._joins = declared.session, joins
            for state in declared.states:
                state.layout = DENSE if state.group is not None else None
        self.undecided = []
        return any(state.layout is None and _is_used(state) for state in declared.states)

    def start(self, submitted, densified):
        """Submits what this rank has. submitted: ParameterStates whose gradient is in flight; densified: the sparse
        dimensions of those gradients that were sparse before."""
        declared = self._declared
        seen = {}
        for state in declared.states:
            has_gradient = state in submitted or state.has_gradient(False)
            found = layout_of(state.param.grad) if has_gradient else None
            seen[state.spec.name] = densified.get(state, found) if state.layout is None else state.layout
        name = f"layouts of {min(seen)} and others"
        self._exchange = LayoutExchange(declared.session, declared.number, name, seen)

    def decide(self):
        """Waits. Returns the undecided states; one that no rank has a gradient of stays unknown."""
        try:
            agreed = self._exchange.wait()
        except Exception:  # not for an interrupt
            self._exchange = None
            raise
        for state in self._declared.states:
            if state.layout is None:
                state.layout = agreed[state.spec.name]
                if state.layout:
                    self._declared.hooks.set(state, batched=False)
        self._exchange = None
        return self.undecided


def _is_used(state):
    return state.param.requires_grad and not state.is_lent
