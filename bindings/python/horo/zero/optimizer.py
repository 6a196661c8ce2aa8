"""horo.zero.DistributedOptimizer: hvd.DistributedOptimizer whose ranks divide step() and the optimizer's state.

The class of the user's optimizer becomes a subclass whose step() updates pieces of parameters, and then
hvd.DistributedOptimizer wraps it. Gradients stay whole and reduced, so all that a script does between backward() and
step() is as under plain horo, and so are the bits.
"""

import functools
import inspect

import torch

import horo
import horo.torch as hvd
from horo.zero.division import Division
from horo.zero.elastic import ElasticDivision
from horo.zero.options import check, stays_whole

_WHOLE_STATE = (
    "the state of this {} is divided among the ranks: call optimizer.gather_state(root_rank) on all ranks after the "
    "last step(), and then state_dict() on the root"
)


class Divided:
    """The mixin between the class of hvd.DistributedOptimizer and the user's class."""

    def divide(self, division):
        """Before all else."""
        self._zero, self._zero_whole = division, None

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

    def gather_state(self, root_rank=0):
        """Then state_dict() on root_rank is that of the user's class, until the next step(). None: on all ranks. All
        ranks call it; blocks."""
        division, mine = self._zero, root_rank is None or root_rank == horo.rank()
        division.begin(self.param_groups, self.state)
        whole = division.whole(lambda _: mine)
        if division.layout is not None:
            self._zero_whole = {**division.loose_state(), **self.state, **whole} if mine else None

    def state_of(self, param):
        """The state of one parameter, whole: a dict. All ranks call it; blocks."""
        self._zero.begin(self.param_groups, self.state)
        return self._zero.whole(lambda one: one is param).get(param, self.state.get(param, {}))

    def state_dict(self):
        if self._zero.layout is None:
            return super().state_dict()
        if self._zero_whole is None:
            if len(self._zero.layout.members) > 1:
                raise RuntimeError(_WHOLE_STATE.format(type(self).__name__))
            self.gather_state()
        before, self.state = self.state, self._zero_whole
        try:
            return super().state_dict()
        finally:
            self.state = before

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        if self._zero.masters:  # torch gives the state of a parameter its dtype
            numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
            for number, param in zip(numbers, (one for group in self.param_groups for one in group["params"])):
                if number in state_dict["state"]:
                    self.state[param] = dict(state_dict["state"][number])
        self._zero.forget()

    def horo_rest(self):
        """What the ranks have alike: the options of the groups."""
        return [{key: value for key, value in group.items() if key != "params"} for group in self.param_groups]

    def horo_take(self, rest):
        """Sets what horo_rest() returned on another rank."""
        for group, options in zip(self.param_groups, rest):
            group.update(options)

    def __getstate__(self):
        return {**super().__getstate__(), "_zero": self._zero, "_zero_whole": self._zero_whole}


def DistributedOptimizer(
    optimizer, named_parameters=None, *args, partition=None, redundancy=None, masters=False, **options
):
    """hvd.DistributedOptimizer, whose other arguments it takes, with the state of the optimizer divided among the
    ranks of process_set: each updates its part of the parameters, and gathers the others. The same bits.

    partition: "blocks": parameters are cut at multiples of 256 elements, for optimizers that update each element by
    itself. "tensors": parameters stay whole, for all others. None: "blocks" for the classes of torch.optim of which
    that is known, and those with the attribute horo_elementwise. masters: each rank keeps float32 copies of its part
    of bfloat16 and float16 parameters, and updates these. redundancy: 1, the default in an elastic job: each rank has
    the state of another rank's part, too, so that the death of any rank loses nothing; 0: it does not."""
    name = type(optimizer).__name__
    if isinstance(optimizer, Divided):
        raise ValueError(f"this {name} is a horo.zero.DistributedOptimizer already")
    if not isinstance(optimizer, torch.optim.Optimizer):
        return hvd.DistributedOptimizer(optimizer, named_parameters, *args, **options)  # refuses it
    named = named_parameters if named_parameters is None else list(dict(named_parameters).items())
    given = inspect.signature(hvd.DistributedOptimizer).bind(optimizer, named, *args, **options).arguments
    is_whole = stays_whole(optimizer, partition)
    check(name, given, redundancy)
    params = [param for group in optimizer.param_groups for param in group["params"]]
    names = {param: one for one, param in named or ((f"parameter {i}", param) for i, param in enumerate(params))}
    plain, user = type(optimizer), type(optimizer).step
    body = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
    body["_zero_step"] = staticmethod(user.__wrapped__ if getattr(user, "hooked", False) else user)
    body["load_state_dict"] = Divided.load_state_dict  # of a class of its own: all ranks call it for a broadcast
    optimizer.__class__ = type(plain.__name__, (Divided, plain), body)
    made = Division
    if horo.is_elastic():
        made = functools.partial(ElasticDivision, has_buddies=redundancy != 0)
    optimizer.divide(made(name, given.get("process_set", hvd.global_process_set), names, is_whole, masters))
    try:
        return hvd.DistributedOptimizer(optimizer, named, *args, **options)
    except BaseException:
        optimizer.__class__ = plain
        raise
