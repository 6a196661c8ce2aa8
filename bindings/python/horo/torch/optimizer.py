"""DistributedOptimizer: the user's optimizer, with gradients that are reduced over all ranks while backward runs.

The returned object shares the parameter groups and the state of the given optimizer. Its class is a subclass of the
user's with the same name, so that isinstance and code that reads the class name continue to work.
"""

import collections
import contextlib
import math
import warnings

import torch

from horo._native import ALL_REDUCE
from horo._sets import check, global_process_set
from horo._specs import Average, Spec, choose_op, is_no_name, op_fields, order_number
from horo.torch.compression import Compression
from horo.torch.cross_barrier import CrossBarrier
from horo.torch.forward_order import chosen_order
from horo.torch.gradients import Gradients
from horo.torch.groups import chosen_groups

_ZEROED = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or optimizer.synchronize(). "
    "This is prohibited as it can cause a race condition."
)
_SYNCHRONIZED_TWICE = (
    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). This can "
    "cause training slowdown. You may want to consider using optimizer.skip_synchronize() context if you use "
    "optimizer.synchronize() in your code."
)


class _Distributed:
    """The mixin that precedes the user's class in the method resolution order."""

    def _distribute(self, gradients, names, cross):
        self._gradients = gradients
        self._cross = cross  # CrossBarrier, or None
        self._names = names  # see _names_of
        self._synchronized = False
        self._should_synchronize = True
        gradients.close_with(self)  # first, so that no hook remains if a parameter is refused
        self._add_group_gradients(range(len(self.param_groups)))

    def _add_group_gradients(self, groups):
        for group in groups:
            for i, param in enumerate(self.param_groups[group]["params"]):
                if param.requires_grad:
                    name, _ = self._names.get(id(param), (None, None))
                    made_up = f"group.{group}.parameter.{i}"
                    self._gradients.add(made_up if is_no_name(name) else name, param)

    @property
    def backward_passes_per_step(self):
        return self._gradients.passes

    def set_backward_passes_per_step(self, passes):
        """Changes the number of backward passes after which gradients are submitted. Abandons those in flight."""
        _check_passes(passes)
        if self._cross is not None:
            self._cross.finish()
        self._gradients.passes = passes
        self._gradients.abandon()

    def synchronize(self):
        """Waits until all gradients are reduced; step() calls it if the user did not. With cross_barrier, after
        step(): waits until all parameters are updated."""
        if self._cross is not None and self._cross.finish() and not self._gradients.has_begun():
            return  # no backward since the last step()
        self._gradients.collect()
        self._synchronized = True

    @contextlib.contextmanager
    def skip_synchronize(self):
        """A context in which step() does not call synchronize(): the user did so before, for instance to clip."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure=None):
        """Waits for the gradients and calls the step() of the user's class. The gradients that a closure computes are
        reduced before the closure returns."""
        if self._crosses(closure):
            return self._cross.step()
        if closure is None:
            self._synchronize_once()
        elif self._should_synchronize:
            if self._gradients.has_begun():
                self._synchronize_once()
            closure = self._reducing(closure)
        self._synchronized = False
        if self._cross is not None:
            self._cross.has_stepped = True
        return super().step(closure)

    def _crosses(self, closure):
        """Whether this step() returns without waiting."""
        if self._cross is None or self._synchronized or not self._should_synchronize:
            return False
        if closure is not None:
            raise ValueError("cross_barrier=True: step(closure) would have to wait; expected step()")
        return self._cross.is_ready()

    def state_dict(self, *args, **kwargs):
        if self._cross is not None:
            self._cross.finish()
        return super().state_dict(*args, **kwargs)

    def _synchronize_once(self):
        if not self._should_synchronize:
            return
        if self._synchronized:
            warnings.warn(_SYNCHRONIZED_TWICE, stacklevel=3)
        self.synchronize()

    def _reducing(self, closure):
        def reduced():
            loss = closure()
            self._gradients.collect()
            return loss

        return reduced

    def zero_grad(self, *args, **kwargs):
        if self._gradients.has_begun():
            raise AssertionError(_ZEROED)
        if args or kwargs:
            return super().zero_grad(*args, **kwargs)
        in_views = self._gradients.zero_views()
        plain = getattr(super().zero_grad, "__func__", None) is torch.optim.Optimizer.zero_grad
        if plain and not self._has_gradients_beside(in_views):
            return
        super().zero_grad()
        for state, gradient in in_views:
            state.param.grad = gradient

    def _has_gradients_beside(self, in_views):
        views = {id(state.param) for state, _ in in_views}
        params = (param for group in self.param_groups for param in group["params"])
        return any(id(param) not in views and param.grad is not None for param in params)

    def add_param_group(self, param_group):
        if getattr(self, "_cross", None) is not None:
            self._cross.finish()
        super().add_param_group(param_group)
        self._add_group_gradients([len(self.param_groups) - 1])

    def load_state_dict(self, *args, **kwargs):
        if self._cross is not None:
            self._cross.finish()
        self._gradients.abandon()
        self._synchronized = False
        self._should_synchronize = True
        super().load_state_dict(*args, **kwargs)
        # torch has wrapped the step() of this class in the step hooks, which the user's step() already calls.
        if "step" in vars(type(self)):
            del type(self).step


def _check_passes(passes):
    if not isinstance(passes, int) or passes <= 0:
        raise ValueError(f"backward_passes_per_step={passes!r}; expected a number of at least 1")


def _check_predivide(factor, op):
    if factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if factor == 0 or not math.isfinite(factor) or not math.isfinite(1.0 / factor):
        raise ValueError(
            f"gradient_predivide_factor={factor!r}; expected a number by which gradients can be divided and multiplied"
        )


def _common_spec(op, order, factor):
    """The Spec of all gradients. They are divided by the factor before the reduction, and the result is multiplied by
    it."""
    op, custom = op_fields(op)
    fields = {"order": order, "stepwise": 1, "prescale": 1.0 / factor, "postscale": factor, "custom_op": custom}
    return Spec(None, ALL_REDUCE, op, **fields)


def _names_of(optimizer, named_parameters):
    """Returns (name, parameter) by the parameter's id. The parameter is part of it, because a later parameter can get
    the id of one that was freed. Empty if the caller gave no names."""
    if named_parameters is None:
        return {}
    named = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in named):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), "
            "usually produced by model.named_parameters()."
        )
    twice = [name for name, count in collections.Counter(name for name, _ in named).items() if count > 1]
    if twice:
        raise ValueError(
            f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(map(str, twice))}"
        )
    names = {id(param): (name, param) for name, param in named}
    unnamed = [id(p) for group in optimizer.param_groups for p in group["params"] if id(p) not in names]
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. "
            f"Python object ids: {', '.join(map(str, unnamed))}"
        )
    return names


def DistributedOptimizer(
    optimizer,
    named_parameters=None,
    compression=Compression.none,
    backward_passes_per_step=1,
    op=Average,
    gradient_predivide_factor=1.0,
    num_groups=0,
    groups=None,
    sparse_as_dense=False,
    process_set=global_process_set,
    *,
    order="canonical",
    gradient_as_bucket_view=False,
    priority=None,
    cross_barrier=False,
):
    """Returns the optimizer with a step() that applies the gradients reduced over all ranks.

    gradient_predivide_factor splits the averaging: gradients are divided by it before they are summed, and the sum is
    multiplied by it and divided by size. groups: a number of groups, or lists of parameters; the gradients of a group
    are submitted together when the last one is complete, and are reduced all or none (num_groups is the older form).
    Sparse gradients are summed by allgathers, or made dense with sparse_as_dense. On a rank outside of process_set the
    optimizer is an ordinary one. order="fast": for speed, bits may depend on the sizes of buckets.
    gradient_as_bucket_view: after the first steps a gradient is a view of its bucket and is not copied; zero_grad()
    then keeps the views and fills them with zeros. priority="forward": of the gradients that are ready, those that the
    next forward needs first are reduced first. cross_barrier: step() returns without waiting; the forward of a module
    waits for the updates of its own parameters.
    """
    if isinstance(optimizer, _Distributed):
        raise ValueError(f"this {type(optimizer).__name__} is a DistributedOptimizer already")
    check(process_set)
    params = [param for group in optimizer.param_groups for param in group["params"] if param.requires_grad]
    groups = chosen_groups(groups, num_groups, params)
    _check_passes(backward_passes_per_step)
    _check_predivide(gradient_predivide_factor, op)
    names = _names_of(optimizer, named_parameters)
    spec = _common_spec(choose_op(op, None), order_number(order), gradient_predivide_factor)
    cross = CrossBarrier(type(optimizer), gradient_as_bucket_view) if cross_barrier else None
    modes = {"sparse_as_dense": sparse_as_dense, "as_views": gradient_as_bucket_view}
    modes |= {"order": chosen_order(priority, cross_barrier), "guard": cross and cross.guard}
    gradients = Gradients(spec, backward_passes_per_step, process_set, compression, **modes)

    wrapped = type(optimizer)
    attributes = {"__doc__": wrapped.__doc__, "__module__": wrapped.__module__, "__qualname__": wrapped.__qualname__}
    distributed = type(wrapped.__name__, (_Distributed, wrapped), attributes)
    shared = {key: value for key, value in vars(optimizer).items() if key != "step"}  # a scheduler replaces step
    result = distributed.__new__(distributed)
    vars(result).update(shared)
    result._distribute(gradients, names, cross)
    gradients.group(groups)
    if cross is not None:
        cross.serve(result, gradients, modes["order"])
    return result
