"""DistributedOptimizer: the user's optimizer, with gradients that are reduced over all ranks while backward runs.

The returned object is the given optimizer. Its class becomes a subclass of the user's with the same name, so that
isinstance, schedulers made before and code that reads the class name continue to work.
"""

import contextlib
import weakref

import torch

from horo._default import session
from horo._notice import leave_if_drained
from horo._sets import check, global_process_set
from horo._specs import Adasum, Average, is_no_name, order_number
from horo.torch import copies, marks, rounds
from horo.torch.audit import Audit
from horo.torch.compression import Compression
from horo.torch.cross_barrier import CrossBarrier
from horo.torch.delta_optimizer import _DeltaDistributed, make_delta_distributed
from horo.torch.forward_order import chosen_order
from horo.torch.functions import averaged_loss
from horo.torch.gradients import Gradients
from horo.torch.groups import chosen_groups
from horo.torch.options import check_optimizer, checked, common_spec, names_of, passes_of
from horo.torch.tracing import traced

_MADE_BY_HAND = (
    "gradients were made by hand after a backward of the same step, and with an operation other than Average it is "
    "unknown whether they are made of results. Call optimizer.synchronize() before step() to reduce them, or step() in "
    "optimizer.skip_synchronize() if they are made of results"
)
_ZEROED = (
    "optimizer.zero_grad() was called after backward() and before step() or synchronize(): with cross_barrier=True the "
    "gradients are in flight until then. Call zero_grad() before backward()"
)


class _Distributed:
    """The mixin that precedes the user's class in the method resolution order."""

    def _horo_distribute(self, gradients, names, cross, options):
        self._horo_gradients = gradients
        self._horo_cross = cross  # CrossBarrier, or None
        self._horo_names = names  # see names_of
        self._horo_options = options  # arguments of DistributedOptimizer, for a copy
        self._horo_should_synchronize = True
        self._horo_ids = None  # of the parameters that are declared
        gradients.close_with(self)
        self._horo_declare()
        me = weakref.ref(self)
        gradients.before_pass = lambda: me() and me()._horo_declare()
        stream = gradients.declared.stream
        self._horo_audit = Audit(
            self, self._horo_name_of, options["process_set"], f"{stream.label}-{stream.wraps}" if stream else "none"
        )

    def _horo_declare(self):
        """Declares the parameters that are new, and forgets those that are gone. Scripts edit param_groups in place."""
        params = [param for group in self.param_groups for param in group["params"]]
        ids = list(map(id, params))
        if ids == self._horo_ids:
            return
        places = ((number, i) for number, group in enumerate(self.param_groups) for i in range(len(group["params"])))
        named = [
            (f"group.{number}.parameter.{i}" if is_no_name(name := self._horo_name_of(param)) else name, param)
            for (number, i), param in zip(places, params)
        ]
        self._horo_gradients.add(named)
        self._horo_ids = ids

    def _horo_name_of(self, param):
        """The parameter's name, or None."""
        return self._horo_names.get(id(param), (None, None))[0]

    @property
    def backward_passes_per_step(self):
        return self._horo_gradients.round.passes

    def set_backward_passes_per_step(self, passes):
        """Changes the number of backward passes of a round, and forgets the passes since the last round."""
        passes = passes_of(passes)
        if self._horo_cross is not None:
            self._horo_cross.finish()
        self._horo_gradients.abandon()
        self._horo_gradients.round.set_passes(passes)

    @contextlib.contextmanager
    def no_sync(self):
        """A context in which backward adds to the gradients and reduces nothing. The first backward after it, or
        step(), reduces what was added. The passes do not count for backward_passes_per_step."""
        self._horo_gradients.round.only_accumulate(1)
        try:
            yield
        finally:
            self._horo_gradients.round.only_accumulate(-1)

    def synchronize(self):
        """Reduces the gradients that no backward has reduced: those made by hand, or added by passes that only
        accumulate. step() calls it. With cross_barrier it waits for the gradients in flight and, after step(), until
        all parameters are updated."""
        self._horo_declare()
        self._horo_gradients.declared.use()
        if self._horo_cross is not None and self._horo_cross.finish() and not self._horo_gradients.has_begun():
            return  # no backward since the last step()
        self._horo_gradients.synchronize()

    @contextlib.contextmanager
    def skip_synchronize(self):
        """A context in which step() does not call synchronize()."""
        self._horo_should_synchronize = False
        try:
            yield
        finally:
            self._horo_should_synchronize = True

    @traced
    def step(self, closure=None):
        """Calls the step() of the user's class, after synchronize(). The gradients that a closure computes are reduced
        before the closure returns, and its loss is reduced as they are, so that all ranks see the same. Raises
        Drained at the end if this rank has got a notice."""
        self._opt_called = True  # for schedulers, which otherwise replace step()
        marks.begin_step()
        try:
            return self._horo_step(closure)
        finally:
            marks.end_step()

    @traced
    def _horo_step(self, closure):
        if self._horo_cross is not None and self._horo_cross.finish():
            self._horo_audit.after_step()  # of the last step: its updates have ended only now
        if self._horo_crosses(closure):
            self._horo_declare()
            self._horo_audit.before_step()
            self._horo_cross.step()
            return self._horo_gradients.stepped()
        self._horo_gradients.declared.check_lent()
        self._horo_declare()
        if self._horo_should_synchronize:
            self._horo_check_made()
            if closure is None or self._horo_gradients.has_begun():
                self.synchronize()
            if closure is not None:
                closure = self._horo_reducing(closure)
        if self._horo_cross is not None:
            self._horo_cross.has_stepped = True
        self._horo_audit.before_step()
        result = super().step(closure)
        self._horo_gradients.declared.use()
        self._horo_gradients.stepped()
        if self._horo_cross is None:
            self._horo_audit.after_step()
        leave_if_drained()
        return result

    def _horo_check_made(self):
        round_state, declared = self._horo_gradients.round, self._horo_gradients.declared
        if not round_state.may_add and round_state.covers() and declared.has_new_gradients():
            raise RuntimeError(_MADE_BY_HAND)

    step.hooked = True  # the user's step() runs the step hooks: torch must not wrap this one too
    step._wrapped_by_lr_sched = True  # a scheduler must not replace it

    def _horo_crosses(self, closure):
        """Whether this step() returns without waiting."""
        if self._horo_cross is None or not self._horo_should_synchronize or self._horo_gradients.is_covered():
            return False
        if closure is not None:
            raise ValueError("cross_barrier=True: step(closure) would have to wait; expected step()")
        return self._horo_cross.is_ready()

    def state_dict(self, *args, **kwargs):
        if self._horo_cross is not None:
            self._horo_cross.finish()
        return super().state_dict(*args, **kwargs)

    def _horo_reducing(self, closure):
        gradients = self._horo_gradients

        def reduced():
            number, before = gradients.round.number, gradients.declared.gradients_now()
            loss = closure()
            made = gradients.round.number == number and gradients.declared.differs(before)
            if made or not gradients.is_covered():
                rounds.finish([gradients] if gradients.is_active() else [])
            declared = gradients.declared
            return averaged_loss(loss, declared.process_set, op=declared.common.op) if gradients.included else loss

        return reduced

    def zero_grad(self, *args, **kwargs):
        gradients = self._horo_gradients
        if self._horo_cross is not None and gradients.has_begun():
            raise AssertionError(_ZEROED)
        gradients.declared.use()
        gradients.begin_anew()
        try:
            self._horo_set_to_zero(*args, **kwargs)
        finally:
            gradients.declared.note_zeros(gradients.round.number > 0)

    def _horo_set_to_zero(self, *args, **kwargs):
        if args or kwargs:
            return super().zero_grad(*args, **kwargs)
        in_views = self._horo_gradients.declared.zero_views()
        plain = getattr(super().zero_grad, "__func__", None) is torch.optim.Optimizer.zero_grad
        if plain and not self._horo_has_gradients_beside(in_views):
            return
        super().zero_grad()
        for state, gradient in in_views:
            state.param.grad = gradient

    def _horo_has_gradients_beside(self, in_views):
        views = {id(state.param) for state, _ in in_views}
        params = (param for group in self.param_groups for param in group["params"])
        return any(id(param) not in views and param.grad is not None for param in params)

    def add_param_group(self, param_group):
        if self._horo_cross is not None:
            self._horo_cross.finish()
        super().add_param_group(param_group)
        self._horo_declare()

    def load_state_dict(self, *args, **kwargs):
        if self._horo_cross is not None:
            self._horo_cross.finish()
        self._horo_should_synchronize = True
        super().load_state_dict(*args, **kwargs)

    def __reduce_ex__(self, protocol):
        return copies.refuse_pickle(self)

    def __deepcopy__(self, memo):
        """A DistributedOptimizer of the copies of the parameters, with the same options."""
        return copies.deep_copy(self, memo, DistributedOptimizer)


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
    """Makes the optimizer one whose gradients are reduced over all ranks, and returns it. When a backward() returns,
    the gradients that it reached are reduced.

    gradient_predivide_factor splits the averaging: gradients are divided by it before they are summed, and the sum is
    multiplied by it and divided by size. groups: a number of groups, or lists of parameters; the gradients of a group
    are submitted together when the last one is complete, and are reduced all or none (num_groups is the older form).
    Sparse gradients are summed by allgathers, or made dense with sparse_as_dense. On a rank outside of process_set the
    optimizer is an ordinary one. order="fast": for speed, bits may depend on the sizes of buckets.
    gradient_as_bucket_view: after the first steps a gradient is a view of its bucket and is not copied; zero_grad()
    then keeps the views and fills them with zeros. priority="forward": of the gradients that are ready, those that the
    next forward needs first are reduced first. cross_barrier: step() returns without waiting; the forward of a module
    waits for the updates of its own parameters. op=Adasum: see make_delta_distributed; groups and sparse_as_dense have
    no meaning then.
    """
    if isinstance(optimizer, (_Distributed, _DeltaDistributed)):
        raise ValueError(f"this {type(optimizer).__name__} is a DistributedOptimizer already")
    options = dict(locals())
    del options["optimizer"], options["named_parameters"]
    check_optimizer(optimizer)
    options = checked(options)
    op, passes = options["op"], options["backward_passes_per_step"]
    check(process_set)
    params = [param for group in optimizer.param_groups for param in group["params"]]
    options["groups"] = groups = chosen_groups(groups, num_groups, [p for p in params if p.requires_grad])
    names = names_of(optimizer, named_parameters)
    if op == Adasum:
        return make_delta_distributed(optimizer, names, options)
    spec = common_spec(op, order_number(order), options["gradient_predivide_factor"])
    if cross_barrier and session().topology.min_size > 0:
        raise ValueError(
            "cross_barrier=True in an elastic job: it updates single parameters before the whole round is committed; "
            "leave it out, or start the job without --min-np"
        )
    cross = CrossBarrier(type(optimizer), gradient_as_bucket_view) if cross_barrier else None
    modes = {"sparse_as_dense": sparse_as_dense, "as_views": gradient_as_bucket_view}
    modes |= {"order": chosen_order(priority, cross_barrier), "guard": cross and cross.guard}
    gradients = Gradients(spec, passes, process_set, compression, **modes)

    wrapped = type(optimizer)
    attributes = {"__doc__": wrapped.__doc__, "__module__": wrapped.__module__, "__qualname__": wrapped.__qualname__}
    if hasattr(vars(optimizer).get("step"), "_wrapped_by_lr_sched"):
        del optimizer.step  # a scheduler's, which would call the step() of the user's class
    optimizer.__class__ = type(wrapped.__name__, (_Distributed, wrapped), attributes)
    try:
        optimizer._horo_distribute(gradients, names, cross, options)
    except BaseException:
        gradients.close()
        optimizer.__class__ = wrapped
        raise
    gradients.declared.group(groups)
    if cross is not None:
        cross.serve(optimizer, gradients, modes["order"])
    return optimizer
