"""The parameters of one optimizer in the current session: names, hooks, groups, priorities and views."""

import itertools
import operator

from torch.nn.parameter import UninitializedTensorMixin
from torch.utils.weak import WeakTensorKeyDictionary

from horo import _default
from horo._compression import codec_for, codec_of
from horo._sets import number_of
from horo._specs import Average
from horo.errors import not_yet
from horo.torch import devices, disagreement, ownership, streams
from horo.torch.arrays import DTYPES, UNINITIALIZED
from horo.torch.batching import Batching
from horo.torch.bucket_views import BucketViews
from horo.torch.gradient_table import version_of
from horo.torch.groups import Group
from horo.torch.hooks import Hooks
from horo.torch.parameter_state import ParameterState

_TRAINED = operator.attrgetter("param.requires_grad")


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
        self._trained = None, 0  # of each state whether it is trained, and the digest of the names of those that are
        self._without = []  # ParameterStates without a gradient after the last round
        self._zeroed = None  # gradients and versions after a zero_grad() since the last round
        self._names_before = WeakTensorKeyDictionary()  # parameter that is gone: its name
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
            self._first_names = [name for name, _ in named]  # later parameters do not change the stream
            params = [param for _, param in named]
            self.stream = streams.stream_of(self.session, self.number, self._first_names, params)
            self.stream.is_exchanged = self.guard is None
        else:
            named = [(self._free_name(name, param), param) for name, param in named]
            self.stream.add_names([name for name, _ in named])
        can_batch = not (self.compressor or self.order or self.guard)
        for name, param in named:
            state = ParameterState(name, param, self._spec_of(param))
            self._name(state)
            self.states.append(state)
            self._trained = None, 0
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
            self._trained = None, 0
            del self.by_param[id(state.param)]
            self.unsubmitted.discard(state)
            self._without = [one for one in self._without if one is not state]
            if state.group is not None:
                state.group.states.remove(state)
            if self.order is not None:
                self.order.remove(state.param)
            ownership.drop(self, state.param)
            self._names_before[state.param] = state.name
            self.batching.forget()
        self.groups = [group for group in self.groups if group.states]

    def _free_name(self, name, param):
        """The name that the parameter had before, or this one, with a number if another parameter has it."""
        if param in self._names_before:
            return self._names_before[param]
        taken = {state.name for state in self.states}
        numbered = (f"{name}.{number}" for number in itertools.count(2))
        return name if name not in taken else next(one for one in numbered if one not in taken)

    def _spec_of(self, param):
        dtype = DTYPES[param.dtype]
        codec = None if self.compressor else codec_for(self._compression, dtype) or None
        spec = self.common._replace(dtype=dtype, shape=tuple(param.shape), codec=codec, device=devices.type_of(param))
        return spec if self.order is None else spec._replace(priority=self.order.add(param))

    def _name(self, state):
        """Declares the tensor of the parameter in the current session."""
        name, number = self.stream.tensor_name(state.name), self.stream.number
        state.spec = state.spec._replace(name=name, set=self.number, round_stream=number)
        if self.compressor is None:  # else the first gradient determines dtype and shape of the payload
            state.key = self.session.key(state.spec)

    def round_number(self, number):
        """The number of a round for the other ranks. It differs if this rank trains other parameters than they do."""
        trained = list(map(_TRAINED, self.states))  # faster than a comprehension: it runs in each round
        if trained != self._trained[0]:
            names = [state.name for state in self.states if state.param.requires_grad]
            self._trained = trained, disagreement.digest(names)
        return disagreement.with_digest(number, self._trained[1])

    def update_names(self):
        """Another optimizer may have been wrapped since, whose names are equal."""
        if self._version != self.stream.version:
            self._version = self.stream.version
            for state in self.states:
                self._name(state)
            self.batching.forget()

    def note_results(self, states):
        """The gradients of these states are results of a round. All ranks submit the same states."""
        self.unsubmitted -= states
        self._without = [state for state in self.states if state.param.grad is None and state.param.requires_grad]
        for state in states if self.common.op != Average else ():
            state.has_result = True
        self._zeroed = None

    def note_zeros(self, has_results):
        """zero_grad() was called. has_results: there was a round since the last step."""
        for state in self.states if self.common.op != Average else ():
            state.has_result = False
        if has_results:
            self._zeroed = self.gradients_now()

    def has_new_gradients(self):
        """Whether the user has made a gradient since the last round: of a parameter that had none, of one that was
        declared since, or after zero_grad()."""
        if self._zeroed is not None and self.differs(self._zeroed):
            return True
        return any(state.has_made_gradient() for state in (*self._without, *self.unsubmitted))

    def gradients_now(self):
        """The gradients and their versions, for differs()."""
        gradients = [state.param.grad for state in self.states]
        return [(gradient, None if gradient is None else version_of(gradient)) for gradient in gradients]

    def differs(self, before):
        """Whether the user has written to a gradient or replaced one since gradients_now()."""
        now = self.gradients_now()
        same = (a is b and version == other for (a, version), (b, other) in zip(now, before))
        return len(now) != len(before) or not all(same)

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
        self.stream.attach()
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
        """Uses the current session. After shutdown() and init() it is a new one, in which no parameter is declared.
        Returns whether it has changed."""
        if not self.session.closed:
            return False
        self._use(_default.session(), number_of(self.process_set))
        return True

    def _use(self, session, number):
        self.session, self.number, self._version = session, number, None
        if self.states:
            if number != 0:  # the streams of the world remain; see streams.py
                params = [state.param for state in self.states]
                self.stream = streams.stream_of(session, number, self._first_names, params)
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
        self._set_priorities(self.order.agreed(self.session, self.number, self.states[0].spec.name))

    def forget_order(self):
        """Ranks have joined, which do not know the order: the priorities are those before the first round, and the next
        round is followed by another learn_priorities() on all ranks."""
        if self.order is None or not self.order.is_known or not self.states:
            return
        self._set_priorities(self.order.forget())

    def _set_priorities(self, priorities):
        for state, priority in zip(self.states, priorities):
            if state.spec.priority != priority:
                state.spec = state.spec._replace(priority=priority)
                state.key = self.session.key(state.spec) if self.compressor is None else None
        self.batching.forget()

    def zero_views(self):
        """See BucketViews.zero."""
        return [] if self.views is None else self.views.zero()

    def close(self):
        if self.hooks is not None:
            self.hooks.close()
        if self.order is not None:
            self.order.close()


def refuse_divided(name, param):
    """Raises ValueError for a DTensor."""
    if hasattr(param, "to_local"):
        raise ValueError(
            f"parameter {name} is a DTensor, whose values are divided among ranks already, as by fully_shard() or "
            "parallelize_module(): expected a plain tensor. An optimizer of DTensors is used as it is, without "
            "DistributedOptimizer"
        )


def _is_trainable(name, param):
    if isinstance(param, UninitializedTensorMixin):
        raise ValueError(f"parameter {name}: {UNINITIALIZED}, and then make the optimizer")
    refuse_divided(name, param)
    is_float = param.is_floating_point() or param.is_complex()
    if not param.requires_grad and not (is_float and devices.is_known(param) and not param.is_inference()):
        return False  # and it never will be
    if param.dtype not in DTYPES:
        raise ValueError(f"parameter {name}: gradients of {param.dtype} are not supported")
    if not devices.is_known(param):
        raise not_yet(
            f"parameter {name} on {param.device}; this version reduces gradients of CPUs and CUDA devices: make the "
            "optimizer after "
            + ("model.to_empty(device='cpu') and an initialization" if param.is_meta else "model.cpu()")
        )
    return True
