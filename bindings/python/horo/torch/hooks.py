"""The functions that autograd calls when the gradient of a parameter is complete.

A large parameter has a hook that submits its gradient. Most small parameters have the append of the list
`batching.ready` as their hook; the next parameter with a hook of its own submits the list (batching.py).
"""

from horo.torch import devices
from horo.torch.arrays import is_shared, no_storage, storage_getter
from horo.torch.batching import is_small


class Hooks:
    """The hooks of one optimizer."""

    def __init__(self, gradients, batching, guard):
        """guard(state, hook): returns the hook that is registered in place of `hook`; or None."""
        self._gradients = gradients
        self._batching = batching
        self._guard = guard
        self.registered = {}  # ParameterState: the function that autograd calls, and its handle

    def add(self, state, can_batch):
        # On a device each gradient is submitted from its own stream.
        can_batch = can_batch and devices.is_host(state.param) and is_small(state)
        self.set(state, batched=can_batch and self._batching.joins(state))

    def set(self, state, batched):
        """Registers the hook of a parameter, in place of the one that it has. A frozen parameter gets one too, because
        it may be unfrozen later."""
        if state in self.registered:
            self.registered[state][1].remove()
        if batched:
            hook = self._batching.ready.append
        else:
            hook = self._hook_of(state)
            if self._guard is not None:
                hook = self._guard(state, hook)
        self.registered[state] = hook, _register(state.param, hook)

    def remove(self, state):
        self.registered.pop(state)[1].remove()

    def close(self):
        for _, handle in self.registered.values():
            handle.remove()

    def functions(self, states):
        """The functions that autograd calls for these parameters."""
        return [self.registered[state][0] for state in states]

    def _hook_of(self, state):
        gradients, ready = self._gradients, self._batching.ready
        is_plain = devices.is_host(state.param) and not gradients.is_compressed
        storage_of = storage_getter(state.dtype, state.shape) if is_plain else no_storage

        def hook(param):
            if param.grad is None:
                return  # a hook of the user has called step() and zero_grad()
            if ready:
                gradients.submit_ready(state)
            if not gradients.is_due(state):
                return
            gradient = param.grad
            if gradient is state.view_gradient and gradient.data_ptr() == state.view_address:
                address, storage = state.view_address, state.view
            else:
                storage = storage_of(gradient)
                if storage is None or gradient.requires_grad or state.layout:
                    gradients.submit(state, gradient)
                    return
                address = gradient.data_ptr()
                if state.view is not None:
                    if address != state.view_address:
                        gradient, address, storage = state.copy_into_view(gradient), state.view_address, state.view
                elif is_shared(gradient, storage):
                    gradients.submit(state, gradient)
                    return
            gradients.submit_in_place(state, gradient, storage, address)

        return hook


def _register(param, hook):
    if param.requires_grad:
        return param.register_post_accumulate_grad_hook(hook)
    param.requires_grad_(True)  # torch refuses a hook of a frozen parameter, and keeps one that exists
    try:
        return param.register_post_accumulate_grad_hook(hook)
    finally:
        param.requires_grad_(False)
