"""The state of one optimizer's current round: its number, its backward passes, and which parameters they reached.

A round is numbered by the steps of its optimizer so far, and by the rounds since the last step. All ranks have equal
numbers, or the controller refuses the round: else a backward too many on one rank would pair gradients of different
rounds, in silence.
"""

_REACHED_TWICE = (
    "gradient {name} was complete twice in one backward: the parameter is used both in and outside of layers under "
    "reentrant checkpointing, or by several of them. Use torch.utils.checkpoint.checkpoint(..., use_reentrant=False), "
    "or optimizer.no_sync() around this backward and synchronize() after it"
)
_ADDED_TO_RESULT = (
    "gradient {name}: this backward adds to a gradient that is reduced already, and with an operation other than "
    "Average the sum of both cannot be reduced. Run all backward passes of a step but the last in optimizer.no_sync(), "
    "or call zero_grad() in between"
)
_IN_FLIGHT = (
    "gradient {name}: a backward reaches it while the gradients of the last one are in flight. With "
    "cross_barrier=True call step() after each backward, set backward_passes_per_step to accumulate gradients, or run "
    "the other backward passes in optimizer.no_sync()"
)
_TWO_THREADS = (
    "gradient {name}: two threads run backward through the parameters of one optimizer at the same time; their "
    "gradients would be mixed. Run one after the other, or give each thread a model of its own"
)


class RoundState:
    """The methods are called by the threads that call those of Gradients."""

    def __init__(self, passes, may_add):
        """passes: backward passes of a round. may_add: a backward may add to a result."""
        self.may_add = may_add
        self.step = 0  # steps so far, or since the last join
        self._joins = 0
        self.number = 0  # rounds since the last step
        self.is_absent = False  # the batch of this rank is a copy of another rank's: its gradients do not count
        self.is_open = False  # the round was announced, and a submit may belong to it
        self.is_submitted = False  # all of its gradients are submitted
        self.running = None  # the BackwardPass that has reached a parameter, while it runs
        self.held = frozenset()  # ParameterStates whose gradient may be a result since before backward: see holds()
        self._passes = passes
        self._passes_done = 0
        self._local_depth = 0  # of no_sync()
        self.is_dirty = False  # a pass has only accumulated, or a round was given up, since the last round
        self._knows_nesting = False  # a backward that calls backward has ended before
        self._reached = set()  # ParameterStates that hooks of their own have found complete
        self._deferred = set()  # those of them that wait for the end of the round
        self._update()

    def _update(self):
        self.accumulates = self._local_depth > 0 or self._passes_done + 1 < self._passes

    @property
    def passes(self):
        return self._passes

    def set_passes(self, passes):
        self._passes = passes
        self.begin_anew()

    def begin_anew(self):
        """The gradients were set to zero: forgets the passes so far."""
        self._passes_done = 0
        self.is_dirty = False
        self._update()

    def only_accumulate(self, delta):
        """no_sync() begins (1) or ends (-1)."""
        self._local_depth += delta
        self._update()

    def covers(self):
        """Whether the gradients are results of rounds since the last step."""
        return self.number > 0 and not self.is_dirty

    def count_from_join(self, joins):
        """After a join the ranks have made different numbers of steps. joins: so far, of the process set. Returns
        whether it has changed."""
        if joins == self._joins:
            return False
        self._joins = joins
        self.step = self.number = 0
        return True

    def stepped(self):
        self.step += 1
        self.number = 0
        self.begin_anew()

    def prepare(self, states):
        """An outermost backward begins."""
        if self.may_add or self.is_dirty:
            return
        self.held = frozenset(state for state in states if state.may_hold_result())

    def holds(self, state):
        """Whether the gradient was a result when backward began, unless may_add. May wait for its device."""
        return state in self.held and state.holds_result()

    def enter(self, running, state):
        """A BackwardPass has reached a parameter. Returns whether it is the first one. The caller holds the lock of
        Gradients, as hooks of several devices run at the same time."""
        if self.running is running:
            return False
        if self.running is not None and self.running.is_active:
            raise RuntimeError(_TWO_THREADS.format(name=state.name))
        self.running = running
        return True

    def is_plain(self):
        """Whether a batch of the last round may be submitted as it is."""
        return not self.held and not self._learns_nesting()

    def _learns_nesting(self):
        """The first backward that calls backward shows which gradients become complete several times."""
        return self.running is not None and self.running.has_nested and not self._knows_nesting

    def is_due(self, state):
        """A hook has found the gradient complete. Returns whether to submit it now."""
        if self.is_submitted:
            raise RuntimeError(_IN_FLIGHT.format(name=state.name))
        self.check_held([state])
        if self.accumulates or self.is_absent:
            return False
        if state in self._reached:
            if state not in self._deferred:
                self._refuse_second(state)
            state.is_late = True
            return False
        self._reached.add(state)
        if state.is_late or self._learns_nesting():
            self._deferred.add(state)
            return False
        return True

    def check_held(self, states):
        """A backward has added to the gradients of these states."""
        for state in states:
            if self.holds(state):
                raise RuntimeError(_ADDED_TO_RESULT.format(name=state.name))

    def due_of(self, states, submitted):
        """The states of a batch that are to be submitted now. submitted: those in flight."""
        for state in states:
            if state in submitted:
                self._refuse_second(state)
        return [state for state in states if self.is_due(state)]

    def _refuse_second(self, state):
        is_alone = self.running is None or self.running.is_alone()
        raise RuntimeError((_REACHED_TWICE if is_alone else _TWO_THREADS).format(name=state.name))

    def has_reached(self, state):
        return state in self._reached

    def end_pass(self):
        """An outermost backward that reached the optimizer has ended. Returns whether its round ends too."""
        nested = self.running is not None and self.running.has_nested
        self.running = None
        if not self.accumulates:
            self._knows_nesting = self._knows_nesting or nested
            return True
        if self._local_depth == 0:
            self._passes_done += 1
        self.is_dirty = True
        self._update()
        return False

    def start_over(self):
        """The round has ended."""
        if self.is_open:
            self.number += 1
        self.is_open = self.is_submitted = self.is_absent = False
        self.running = None
        self.held = frozenset()
        self._reached = set()
        self._deferred = set()
        self.begin_anew()
