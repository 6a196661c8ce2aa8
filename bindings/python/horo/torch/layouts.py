"""The agreed layouts of one optimizer's gradients: while one is unknown, the ranks exchange what they have (sparse.py).

A dense gradient of unknown layout is submitted at once, because dense wins. A sparse one waits for the end of the
round, and so does a parameter without a gradient on this rank.
"""

from horo.torch import disagreement
from horo.torch.sparse import DENSE, LayoutExchange, layout_of
from horo.torch.streams import this_thread


class Layouts:
    """The layouts of the declared parameters (ParameterState.layout)."""

    def __init__(self, declared):
        self._declared = declared
        self._session = None
        self._joins = 0
        self._exchange = None
        self._has_decided = False  # this optimizer has known a layout in this session
        self.undecided = []  # ParameterStates that are submitted when their layout is known

    def begin(self):
        """The end of a round. Layouts are unknown again in another session, and after a join, in which this rank may
        have missed exchanges. Returns whether an exchange is needed."""
        declared = self._declared
        if self._exchange is not None and not self._exchange.is_refuted:
            self.decide()  # the last round was given up
        joins = declared.session.joins[declared.number]
        if declared.session is not self._session or joins != self._joins:
            self._session, self._joins, self._has_decided = declared.session, joins, False
            for state in declared.states:
                state.layout = DENSE if state.group is not None else None
        self.undecided = []
        return any(state.layout is None and _is_used(state) for state in declared.states)

    def start(self, submitted, densified):
        """Submits what this rank has. submitted: ParameterStates whose gradient is in flight; densified: the sparse
        dimensions of those gradients that were sparse before."""
        if self._exchange is not None:  # refuted, and still in flight
            return
        declared = self._declared
        seen = {}
        for state in declared.states:
            has_gradient = state in submitted or state.has_gradient(False)
            found = layout_of(state.param.grad) if has_gradient else None
            seen[state.spec.name] = densified.get(state, found) if state.layout is None else state.layout
        is_only = this_thread().is_main and len(declared.stream.companions()) == 1 and not self._has_decided
        name = "layouts of the gradients" if is_only else f"layouts of {min(seen)} and others"
        self._exchange = LayoutExchange(declared.session, declared.number, name, seen)

    def decide(self, check=lambda: None):
        """Waits. Returns the undecided states; one that no rank has a gradient of stays unknown. check(): called while
        it waits; what it raises refutes the exchange, which other ranks may not have begun."""
        try:
            agreed = self._exchange.wait(check)
        except Exception as error:  # not for an interrupt
            if not self._exchange.is_refuted:
                self._exchange = None
            disagreement.mark(error, self._declared.process_set, self._declared.stream)
            raise
        self._has_decided = True
        for state in self._declared.states:
            if state.layout is None:
                state.layout = agreed[state.spec.name]
                if state.layout:
                    self._declared.hooks.set(state, batched=False)
        self._exchange = None
        return self.undecided


def _is_used(state):
    return state.param.requires_grad and not state.is_lent
