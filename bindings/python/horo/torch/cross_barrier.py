"""step() without a barrier: gradients are still on their way when it returns. Each parameter is updated by itself, once
its own reduction is done: by the forward of the module that owns it, which waits for no other, or by whoever asks.

After ByteScheduler (SOSP 2019). All updates are made by the thread that computes, so nobody sees a parameter change
under him, and results are those of the ordinary optimizer, bit for bit.
"""

import weakref

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

# Their step treats each parameter by itself. Of a class derived from them nobody knows.
_SUPPORTED = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
)


class CrossBarrier:
    """Of one optimizer. One thread at a time, but for guard()."""

    def __init__(self, kind, as_views):
        """kind: the user's class of optimizer."""
        if kind not in _SUPPORTED:
            names = ", ".join(one.__name__ for one in _SUPPORTED)
            raise ValueError(
                f"cross_barrier=True: {kind.__name__} may not be able to update one parameter by itself; expected one "
                f"of {names}, and no class derived from these"
            )
        if as_views:
            raise ValueError(
                "cross_barrier=True and gradient_as_bucket_view=True exclude each other; expected one of them"
            )
        has_hooks = getattr(kind.step, "hooked", False)  # torch wraps it in them when an optimizer is made
        self._update = kind.step.__wrapped__ if has_hooks else kind.step
        self._pending = {}  # by id of a parameter: its slot, and its group's settings when step() was called
        self.has_stepped = False  # a step() was made
        self._loose = []  # of these, those that no module was seen to use by itself

    def serve(self, optimizer, gradients, order):
        self._optimizer = weakref.ref(optimizer)
        self._gradients = gradients
        self._order = order
        me = weakref.ref(self)

        def before(module, _):
            crossing = me()
            if crossing is not None and crossing._pending:
                crossing._before(module)

        weakref.finalize(optimizer, register_module_forward_pre_hook(before).remove).atexit = False

    def is_ready(self):
        return self._gradients.included and self._order.is_known

    def pending(self):
        return {slot for slot, _ in self._pending.values()}

    def step(self):
        """Each parameter's update is due; returns at once."""
        optimizer = self._optimizer()
        if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
            raise ValueError("cross_barrier=True: parameters are updated one by one; expected no step hooks")
        self.finish()
        settings = {}
        for group in optimizer.param_groups:
            kept = {key: _copied(value) for key, value in group.items() if key != "params"}
            settings.update((id(param), kept) for param in group["params"])
        try:
            slots = self._gradients.take_all()
        except Exception:
            self._gradients.abandon()
            raise
        for slot in slots:
            self._pending[id(slot.param)] = slot, settings[id(slot.param)]
            slot.param.grad = None
        self.has_stepped = True
        self._loose = [slot.param for slot in slots if not self._order.has_used(slot.param)]

    def finish(self):
        """Updates all that is due; whether there was a step() yet."""
        for param in [slot.param for slot, _ in self._pending.values()]:
            self._settle(param)
        return self.has_stepped

    def guard(self, slot, hook):
        """The hook, but for a gradient of a parameter that is as it was before its last update."""

        def guarded(param):
            if slot.is_submitted() and id(param) in self._pending:
                raise RuntimeError(
                    f"parameter {slot.spec.name} was used before its update from the last step(): with "
                    "cross_barrier=True the forward of the module that owns a parameter has to begin before anybody "
                    "uses it"
                )
            hook(param)

        return guarded

    def _before(self, module):
        loose, self._loose = self._loose, []
        for param in (*loose, *module._parameters.values()):
            if id(param) in self._pending:
                self._settle(param)

    def _settle(self, param):
        """Waits for the gradient, and updates the parameter. A failure is one of all that is due."""
        slot, settings = self._pending[id(param)]
        try:
            self._gradients.finish_one(slot)
        except Exception:
            self._pending.clear()
            self._loose = []
            self._gradients.abandon()
            raise
        del self._pending[id(param)]
        optimizer = self._optimizer()
        groups = optimizer.param_groups
        optimizer.param_groups = [{**settings, "params": [param]}]
        try:
            self._update(optimizer)
        finally:
            optimizer.param_groups = groups
            param.grad = None
        if not self._pending:
            self._gradients.end_step()


def _copied(value):
    """A learning rate may be a tensor, which schedulers write to."""
    return value.clone() if isinstance(value, torch.Tensor) else value
