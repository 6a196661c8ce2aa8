"""The parameters of one optimizer in the present session: names, hooks, groups, priorities and views."""

import itertools

from horo import _default
from horo._compression import codec_for, codec_of
from horo._sets import number_of
from horo._specs import Average
from horo.errors import not_yet
from horo.torch import ownership, streams
from horo.torch.arrays import DTYPES
from horo.torch.batching import Batching
from horo.torch.bucket_views import BucketViews
from horo.torch.gradient_table import version_of
from horo.torch.groups import Group
from horo.torch.hooks import Hooks
from horo.torch.parameter_state import ParameterState


class DeclaredParameters:
    """The parameters of one optimizer. On a rank outside of the process set none is declared."""

    def __init__(self, common, process_set, compression, **modes):
        """common: a Spec with the fields that all parameters share. modes: see Gradients."""
        self.common = common
        self.process_set = process_set
        self._compression = compression
        self.compressor = compression if codec_of(compression) is None else None  # of the user
        self._as_views = modes.get("as_views", False) and self.compressor is None
        self.order = modes.get("order")
        self.guard = modes.get("guard")
        self.views = None
        self.states = []
        self.by_param = {}  # id of a parameter: its ParameterState
        self.unsubmitted = set()  # ParameterStates that were in no round so far
        self._without = []  # ParameterStates without a gradient after the last round
        self._is_zeroed = False  # zero_grad() was called since the last round
        self.groups = []
        self.batching = Batching()
        self.hooks = None
        self.stream = None
        self.included = bool(process_set.included())
        self._use(_default.session(), number_of(process_set))

    def declare(self, gradients, named):
        """Declares parameters, a list of (name, parameter), and registers their hooks."""
        known = self.by_param
        self._forget_all_but({id(param) for _, param in named})
        named = [(name, param) for name, param in named if id(param) not in known and _is_trainable(name, param)]
        if not self.included or not named:
            return
        if self.hooks is None:
            self.hooks = Hooks(gradients, self.batching, self.guard)
            self._named_first = named  # parameters that are added later do not change the stream
            self.stream = streams.join(self.session, self.number, named)
        can_batch = not (self.compressor or self.order or self.guard)
        for name, param in named:
            state = ParameterState(self._free_name(name), param, self._spec_of(param))
            self._name(state)
            self.states.append(state)
            self.by_param[id(param)] = state
            self.unsubmitted.add(state)
            ownership.take(self, param)
            self.hooks.add(state, can_batch)

    def _forget_all_but(self, ids):
        """The optimizer has only the parameters with these ids now."""
        for state in [state for key, state in self.by_param.items() if key not in ids]:
            if not state.is_lent:
                self.hooks.remove(state)
            self.states.remove(state)
            del self.by_param[id(state.param)]
            self.unsubmitted.discard(state)
            self._without = []
            self.batching.forget()

    def _free_name(self, name):
        """The name, with a number if a parameter has it that was at the same place before."""
        taken = {state.name for state in self.states}
        numbered = (f"{name}.{number}" for number in itertools.count(2))
        return name if name not in taken else next(one for one in numbered if one not in taken)

    def _spec_of(self, param):
        dtype = DTYPES[param.dtype]
        codec = None if self.compressor else codec_for(self._compression, dtype) or None
        spec = self.common._replace(dtype=dtype, shape=tuple(param.shape), codec=codec)
        return spec if self.order is None else spec._replace(priority=self.order.add(param))

    def _name(self, state):
        """Declares the tensor of the parameter in the present session."""
        name, number = self.stream.tensor_name(state.name), self.stream.number
        state.spec = state.spec._replace(name=name, set=self.number, round_stream=number)
        if self.compressor is None:  # else the first gradient determines dtype and shape of the payload
            state.key = self.session.key(state.spec)

    def update_names(self):
        """Another optimizer may have been wrapped since, whose names are equal."""
        if self._version != self.stream.version:
            self._version = self.stream.version
            for state in self.states:
                self._name(state)
            self.batching.forget()

    def note_results(self, states):
        """The gradients of these states are results of a round. All ranks submit the same states."""
        for state in self.unsubmitted & states:
            state.was_submitted = True
        self.unsubmitted -= states
        self._without = [state for state in self.states if state.param.grad is None and state.param.requires_grad]
        for state in states if self.common.op != Average else ():
            state.has_result = True
        self._is_zeroed = False

    def forget_results(self):
        """zero_grad() was called: a gradient that is not zero is no result."""
        self._is_zeroed = True
        for state in self.states if self.common.op != Average else ():
            state.has_result = False

    def has_new_gradients(self):
        """Whether the user has made a gradient since the last round: of a parameter that had none, of one that was
        declared since, or after zero_grad()."""
        made = self.states if self._is_zeroed else [*self._without, *self.unsubmitted]
        return any(state.has_made_gradient() for state in made)

    def versions(self):
        """Changes when the user writes to a gradient or replaces one."""
        gradients = [state.param.grad for state in self.states]
        return [None if gradient is None else (id(gradient), version_of(gradient)) for gradient in gradients]

    def group(self, groups):
        """From now on the gradients of each list of parameters are reduced as one unit."""
        for group in groups:
            members = [self.by_param[id(param)] for param in group if id(param) in self.by_param]
            for state in members:
                self.hooks.set(state, batched=False)
            if members:
                self.groups.append(Group(f"group of {members[0].spec.name}", members))

    # Parameters of several optimizers

    def kind(self):
        """What has to be equal if two optimizers share a parameter."""
        return self.common, self.process_set, self._compression

    def lend(self, param):
        """Another optimizer reduces the parameter from now on."""
        state = self.by_param[id(param)]
        state.is_lent = True
        state.drop_view()
        self.hooks.remove(state)
        self.batching.forget()

    def use(self):
        """The user calls a method of the optimizer: its parameters are reduced here again, if they were lent, and the
        calling thread is the one that ends its rounds."""
        if self.stream is None:
            return
        self.wake()
        for state in self.lent():
            state.is_lent = False
            ownership.take(self, state.param)
            self.hooks.set(state, batched=False)

    def wake(self):
        """The calling thread uses the optimizer."""
        self.stream.thread = streams.this_thread()
        self.stream.is_exchanged = self.guard is None  # with a guard, backward would wait

    def check_lent(self):
        """Raises ValueError if a parameter was lent to an optimizer that reduces in another way."""
        ownership.check(self, self.lent())

    def is_displaced(self):
        """Whether other optimizers reduce all parameters."""
        return all(state.is_lent for state in self.states)

    def lent(self):
        return [state for state in self.states if state.is_lent]

    # Sessions, priorities and views

    def connect(self):
        """Uses the present session. After shutdown() and init() it is a new one, in which no parameter is declared.
        Returns whether it has changed."""
        if not self.session.closed:
            return False
        self._use(_default.session(), number_of(self.process_set))
        return True

    def _use(self, session, number):
        self.session, self.number, self._version = session, number, None
        if self.states:
            if number != 0:  # the streams of the world remain; see streams.py
                self.stream = streams.join(session, number, self._named_first)
            for state in self.states:
                self._name(state)
        self.batching.forget()
        if self._as_views:
            if self.views is not None:
                self.views.forget()
            self.views = BucketViews(session, number, self.states)

    def learn_priorities(self):
        """After the first round: sets the priorities that follow from the forward order of the set's first rank."""
        if self.order is None or self.order.is_known or not self.states:
            return
        priorities = self.order.agreed(self.session, self.number, self.states[0].spec.name)
        for state, priority in zip(self.states, priorities):
            if state.spec.priority != priority:
                state.spec = state.spec._replace(priority=priority)
                state.key = self.session.key(state.spec) if self.compressor is None else None

    def zero_views(self):
        """See BucketViews.zero."""
        return [] if self.views is None else self.views.zero()

    def close(self):
        if self.hooks is not None:
            self.hooks.close()
        if self.order is not None:
            self.order.close()


def _is_trainable(name, param):
    is_float = param.is_floating_point() or param.is_complex()
    if not param.requires_grad and not (is_float and param.is_cpu and not param.is_inference()):
        return False  # and it never will be, on a CPU
    if param.dtype not in DTYPES:
        raise ValueError(f"parameter {name}: gradients of {param.dtype} are not supported")
    if not param.is_cpu:
        raise not_yet(f"parameter {name} on {param.device}; this version reduces gradients on the CPU")
    return True
