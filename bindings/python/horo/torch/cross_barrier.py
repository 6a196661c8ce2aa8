"""cross_barrier: step() returns while gradients are in flight. Each parameter is updated once its own result is there:
by the forward of the module that owns it, or by the next call that needs it.

After ByteScheduler (SOSP 2019). The thread that computes makes all updates, so a parameter never changes under a
running forward, and the results equal those of the ordinary optimizer bit for bit.
"""

import weakref

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from horo.torch import marks

# The step() of these classes updates each parameter by itself. That of a derived class may not.
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
    """The due updates of one optimizer. One thread at a time calls the methods; guarded hooks run in any thread."""

    def __init__(self, kind, as_views):
        """kind: the class of the user's optimizer."""
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
        has_hooks = getattr(kind.step, "hooked", False)  # torch wraps step() when an optimizer is made
        self._update = kind.step.__wrapped__ if has_hooks else kind.step
        self._pending = {}  # id of a parameter: ParameterState, row in the table and settings at step()
        self._table = None  # GradientTable of the last step()
        self.has_stepped = False  # step() was called
        self._unowned = []  # pending parameters that no forward of an owning module used in the first step

    def serve(self, optimizer, gradients, order):
        """Registers the forward hook, which lasts as long as the optimizer."""
        self._optimizer = weakref.ref(optimizer)
        self._gradients = gradients
        self._order = order
        me = weakref.ref(self)
        gradients.before_rest = lambda: me() and me().finish()  # a name is in flight once

        def before(module, _):
            crossing = me()
            if crossing is not None and crossing._pending:
                crossing._before(module)

        weakref.finalize(optimizer, register_module_forward_pre_hook(before).remove).atexit = False

    def is_ready(self):
        """Whether step() can return without waiting: the first step shows which module uses which parameter."""
        return self._gradients.included and self._order.is_known

    def is_pending(self):
        """Whether an update is due."""
        return bool(self._pending)

    def step(self):
        """Makes the update of each parameter due, and returns without waiting."""
        optimizer = self._optimizer()
        if optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks:
            raise ValueError("cross_barrier=True: parameters are updated one by one; expected no step hooks")
        self.finish()
        self._gradients.check_in_place()
        settings = {}
        for group in optimizer.param_groups:
            kept = {key: _copied(value) for key, value in group.items() if key != "params"}
            settings.update((id(param), kept) for param in group["params"])
        try:
            self._table, states = self._gradients.take_table()
        except Exception:
            self._gradients.abandon()
            raise
        rows = {state: row for row, state in enumerate(self._table.states)}
        for state in states:
            if (state not in rows and state not in self._table.sparse) or id(state.param) not in settings:
                continue  # no rank has a gradient, or the parameter is gone
            self._pending[id(state.param)] = state, rows.get(state), settings[id(state.param)]
            state.param.grad = None
        self.has_stepped = True
        self._unowned = [state.param for state in states if not self._order.has_used(state.param)]

    def finish(self):
        """Makes all updates that are due. Returns whether step() was ever called."""
        for param in [state.param for state, *_ in self._pending.values()]:
            self._settle(param)
        return self.has_stepped

    def guard(self, state, hook):
        """Returns a hook that refuses the gradient of a parameter whose last update is due."""

        def guarded(param):
            if id(param) in self._pending:
                raise RuntimeError(
                    f"parameter {state.name} was used before its update from the last step(): with "
                    "cross_barrier=True the forward of the module that owns a parameter has to begin before any "
                    "other use of it"
                )
            hook(param)

        return guarded

    def _before(self, module):
        unowned, self._unowned = self._unowned, []
        for param in (*unowned, *module._parameters.values()):
            if id(param) in self._pending:
                self._settle(param)

    def _settle(self, param):
        """Waits for the gradient and updates the parameter. After an error no update is due any more."""
        state, row, settings = self._pending[id(param)]
        try:
            self._gradients.finish_one(self._table, state, row)
        except Exception:
            self._pending.clear()
            self._unowned = []
            self._gradients.abandon()
            raise
        del self._pending[id(param)]
        optimizer = self._optimizer()
        groups = optimizer.param_groups
        optimizer.param_groups = [{**settings, "params": [param]}]
        marks.begin_step()
        try:
            self._update(optimizer)
        finally:
            marks.end_step()
            optimizer.param_groups = groups
            param.grad = None
        if not self._pending:
            self._gradients.end_step()


def _copied(value):
    """Copies a tensor: a learning rate can be one, and schedulers write to it."""
    return value.clone() if isinstance(value, torch.Tensor) else value
