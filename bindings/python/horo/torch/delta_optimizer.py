"""DistributedOptimizer with op=Adasum: each rank updates its parameters by its own gradients, and Adasum combines the
changes of all ranks. Adasum of the gradients alone would miss what the optimizer makes of them (momentum, scaling).
"""

import contextlib

import torch

from horo._compression import all_converted
from horo._default import session
from horo._handles import synchronize
from horo._notice import leave_if_drained
from horo._specs import Adasum, is_no_name
from horo.torch import copies, marks, rounds
from horo.torch.audit import Audit
from horo.torch.declared import refuse_divided
from horo.torch.ops import allreduce_async
from horo.torch.options import passes_of
from horo.torch.tracing import traced


class _DeltaDistributed:
    """The mixin that precedes the user's class in the method resolution order."""

    def _horo_distribute(self, names, options):
        self._horo_names = names  # see names_of
        self._horo_options = options  # arguments of DistributedOptimizer, for a copy
        self.backward_passes_per_step = options["backward_passes_per_step"]
        self._horo_audit = Audit(self, self._horo_name_of, options["process_set"], has_state=False)

    def _horo_name_of(self, param):
        """The parameter's name, or None."""
        return self._horo_names.get(id(param), (None,))[0]

    def _horo_named(self):
        """(name, parameter) of each parameter that steps may change, in the order of the groups."""
        for number, group in enumerate(self.param_groups):
            for i, param in enumerate(group["params"]):
                name = self._horo_name_of(param)
                if param.requires_grad:
                    yield f"group.{number}.parameter.{i}" if is_no_name(name) else name, param

    def _horo_frozen(self):
        """Parameters that have been frozen and still have a gradient, which is this rank's alone."""
        params = (param for group in self.param_groups for param in group["params"])
        return [param for param in params if not param.requires_grad and param.grad is not None]

    def set_backward_passes_per_step(self, passes):
        self.backward_passes_per_step = passes_of(passes)

    @contextlib.contextmanager
    def no_sync(self):
        """Changes nothing: a backward reduces nothing, and step() uses the sum of the gradients since zero_grad()."""
        yield

    def synchronize(self):
        """Returns at once: nothing is reduced before step()."""

    def skip_synchronize(self):
        raise AssertionError("skip_synchronize is not supported with op=Adasum: step() itself reduces")

    @traced
    def step(self, closure=None):
        """Calls the step() of the user's class, and then moves each parameter from where it was by the Adasum of all
        ranks' changes; a frozen one stays. Blocks until all ranks call it. Raises Drained at the end if this rank has
        got a notice. After an error the parameters are where they were before the call."""
        marks.begin_step()
        try:
            return self._horo_step(closure)
        finally:
            marks.end_of_round(session(), 0)  # a backward reduces nothing, so steps end here
            marks.end_step()

    @traced
    def _horo_step(self, closure):
        self._opt_called = True  # for schedulers, which otherwise replace step()
        if not self._horo_options["process_set"].included():
            return self._horo_own_step(closure)
        named = list(self._horo_named())
        params = [param for _, param in named] + self._horo_frozen()
        self._horo_audit.before_step()
        with torch.no_grad():
            starts = [param.detach().clone() for param in params]
        hooks = self._optimizer_step_post_hooks
        self._optimizer_step_post_hooks = type(hooks)()  # they run when the changes are combined
        try:
            result = self._horo_own_step(closure)
            with torch.no_grad():
                changes = [param.detach() - start for (_, param), start in zip(named, starts)]  # not of frozen ones
                combined = self._horo_combined([name for name, _ in named], changes)
                for start, change in zip(starts, combined):
                    start.add_(change)
        finally:
            self._optimizer_step_post_hooks = hooks
            with torch.no_grad():
                for param, start in zip(params, starts):
                    param.copy_(start)
        for hook in tuple(hooks.values()):
            hook(self, (self,) if closure is None else (self, closure), {})
        self._horo_audit.after_step()
        leave_if_drained()
        return result

    @traced
    def _horo_own_step(self, closure):
        """The step() of the user's class; nothing if a GradScaler has found an infinity: the others' changes count."""
        scales = "_step_supports_amp_scaling"
        given = {name: vars(self)[name] for name in ("found_inf", "grad_scale") if name in vars(self)}
        if not given or vars(self).get(scales) or getattr(super(), scales, False):  # the user's class does it
            return super().step(closure)
        if given["found_inf"]:
            return None
        if given["grad_scale"] is not None:
            self._horo_divide_gradients(float(given["grad_scale"]))
        self.found_inf = self.grad_scale = None  # classes that do not scale expect that
        try:
            return super().step(closure)
        finally:
            vars(self).update(given)

    def _horo_divide_gradients(self, divisor):
        for param in (param for group in self.param_groups for param in group["params"]):
            if param.grad is not None:
                param.grad.mul_(1 / divisor)

    def _horo_combined(self, names, changes):
        process_set = self._horo_options["process_set"]

        def start(tensors):
            handles, results, errors = [], [], []
            try:
                for name, tensor in zip(names, tensors):
                    handles.append(allreduce_async(tensor, name=f"adasum.{name}", op=Adasum, process_set=process_set))
            except Exception as error:
                errors.append(error)
            for handle in handles:  # all of them, also after an error: the next step submits the same names
                try:
                    results.append(synchronize(handle))
                except Exception as error:
                    errors.append(error)
            if errors:
                raise errors[0]
            return results

        return all_converted(self._horo_options["compression"], changes, "DistributedOptimizer(op=Adasum)", start)

    _step_supports_amp_scaling = True  # GradScaler calls step() on all ranks, also where gradients are infinite
    step.hooked = True  # the user's step() runs the step hooks: torch must not wrap this one too
    step._wrapped_by_lr_sched = True  # a scheduler must not replace it

    def __reduce_ex__(self, protocol):
        return copies.refuse_pickle(self)


def make_delta_distributed(optimizer, names, options):
    """Makes the optimizer a DistributedOptimizer with op=Adasum, and returns it. options: the arguments of
    DistributedOptimizer. Those that are about gradients have no meaning here; those that promise something are
    refused."""
    marks.install_for_optimizers()
    rounds.wrap_backward()
    for option in ("gradient_as_bucket_view", "priority", "cross_barrier"):
        if options[option]:
            raise ValueError(
                f"{option}={options[option]!r} with op=Adasum, which reduces changes of parameters in step() and no "
                f"gradients; leave {option} out"
            )
    if not hasattr(options["compression"], "compress"):
        raise ValueError(
            f"compression={options['compression']!r} with op=Adasum; expected Compression.none, fp16 or bf16, or a "
            "class with compress and decompress"
        )
    session()
    for param in (param for group in optimizer.param_groups for param in group["params"]):
        refuse_divided(names.get(id(param), ("without a name",))[0], param)
    wrapped = type(optimizer)
    attributes = {"__doc__": wrapped.__doc__, "__module__": wrapped.__module__, "__qualname__": wrapped.__qualname__}
    if hasattr(vars(optimizer).get("step"), "_wrapped_by_lr_sched"):
        del optimizer.step  # a scheduler's, which would call the step() of the user's class
    optimizer.__class__ = type(wrapped.__name__, (_DeltaDistributed, wrapped), attributes)
    optimizer._horo_distribute(names, options)
    return optimizer
