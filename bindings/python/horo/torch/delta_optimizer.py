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
from horo.torch import copies
from horo.torch.ops import allreduce_async
from horo.torch.options import check_passes


class _DeltaDistributed:
    """The mixin that precedes the user's class in the method resolution order."""

    def _horo_distribute(self, names, options):
        self._horo_names = names  # see names_of
        self._horo_options = options  # arguments of DistributedOptimizer, for a copy
        self.backward_passes_per_step = options["backward_passes_per_step"]

    def _horo_named(self):
        """(name, parameter) of each parameter that steps may change, in the order of the groups."""
        for number, group in enumerate(self.param_groups):
            for i, param in enumerate(group["params"]):
                name = self._horo_names.get(id(param), (None,))[0]
                if param.requires_grad:
                    yield f"group.{number}.parameter.{i}" if is_no_name(name) else name, param

    def set_backward_passes_per_step(self, passes):
        check_passes(passes)
        self.backward_passes_per_step = passes

    @contextlib.contextmanager
    def no_sync(self):
        """Changes nothing: a backward reduces nothing, and step() uses the sum of the gradients since zero_grad()."""
        yield

    def synchronize(self):
        """Returns at once: nothing is reduced before step()."""

    def skip_synchronize(self):
        raise AssertionError("skip_synchronize is not supported with op=Adasum: step() itself reduces")

    def step(self, closure=None):
        """Calls the step() of the user's class, and then moves each parameter from where it was by the Adasum of all
        ranks' changes. Blocks until all ranks call it. Raises Drained at the end if this rank has got a notice. After
        an error the parameters are where they were before the call."""
        self._opt_called = True  # for schedulers, which otherwise replace step()
        if not self._horo_options["process_set"].included():
            return super().step(closure)
        named = list(self._horo_named())
        with torch.no_grad():
            starts = [param.detach().clone() for _, param in named]
        try:
            result = super().step(closure)
            with torch.no_grad():
                changes = [param.detach() - start for (_, param), start in zip(named, starts)]
                combined = self._horo_combined([name for name, _ in named], changes)
                for start, change in zip(starts, combined):
                    start.add_(change)
        finally:
            with torch.no_grad():
                for (_, param), start in zip(named, starts):
                    param.copy_(start)
        leave_if_drained()
        return result

    def _horo_combined(self, names, changes):
        process_set = self._horo_options["process_set"]

        def start(tensors):
            handles = [
                allreduce_async(tensor, name=f"adasum.{name}", op=Adasum, process_set=process_set)
                for name, tensor in zip(names, tensors)
            ]
            return [synchronize(handle) for handle in handles]

        return all_converted(self._horo_options["compression"], changes, "DistributedOptimizer(op=Adasum)", start)

    step.hooked = True  # the user's step() runs the step hooks: torch must not wrap this one too
    step._wrapped_by_lr_sched = True  # a scheduler must not replace it

    def __reduce_ex__(self, protocol):
        return copies.refuse_pickle(self)


def make_delta_distributed(optimizer, names, options):
    """Makes the optimizer a DistributedOptimizer with op=Adasum, and returns it. options: the arguments of
    DistributedOptimizer. Those that are about gradients have no meaning here; those that promise something are
    refused."""
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
    wrapped = type(optimizer)
    attributes = {"__doc__": wrapped.__doc__, "__module__": wrapped.__module__, "__qualname__": wrapped.__qualname__}
    if hasattr(vars(optimizer).get("step"), "_wrapped_by_lr_sched"):
        del optimizer.step  # a scheduler's, which would call the step() of the user's class
    optimizer.__class__ = type(wrapped.__name__, (_DeltaDistributed, wrapped), attributes)
    optimizer._horo_distribute(names, options)
    return optimizer
