"""The gradients of one optimizer: hooks submit them while backward runs, collect() waits for their results.

One small gradient passes these files: optimizer.py declares the parameter; the hook in this file notes that the
gradient is complete; batching.py forms the batch; gradient_table.py submits it; collect() in this file waits; step() in
optimizer.py uses the result.
"""

import threading
import weakref

import torch

from horo import _default
from horo._compression import codec_for, codec_of
from horo._handles import synchronize
from horo._session import error_of
from horo._sets import number_of
from horo.errors import not_yet
from horo.torch.arrays import DTYPES, no_storage, storage_getter
from horo.torch.batching import Batching, is_as_declared, is_small
from horo.torch.bucket_views import BucketViews
from horo.torch.gradient_table import GradientTable
from horo.torch.groups import Group
from horo.torch.ops import sparse_allreduce_async
from horo.torch.parameter_state import ParameterState
from horo.torch.payload import Payloads

_TOO_MANY_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)


class Gradients:
    """The gradients of the declared parameters. Hooks may run in any thread. The public methods are called by one
    thread at a time. On a rank outside of the process set nothing is declared or submitted."""

    def __init__(self, common, passes, process_set, compression, **modes):
        """common: a Spec with the fields that all parameters share; passes: backward passes per step. Modes:
        sparse_as_dense; as_views: gradients lie in their buckets; order: a ForwardOrder, or None if all parameters
        have one priority; guard(state, hook): returns the hook that is registered in place of `hook`."""
        self.passes = passes
        self._common = common
        self._process_set = process_set
        self._compression = compression
        compressor = compression if codec_of(compression) is None else None  # of the user
        self._payloads = Payloads(compressor, modes.get("sparse_as_dense", False))
        self._as_views = modes.get("as_views", False) and compressor is None
        self._order = modes.get("order")
        self._guard = modes.get("guard")
        self._views = None
        self._states = []
        self._by_param = {}  # id of a parameter: its ParameterState
        self._groups = []
        self._hooks = {}  # ParameterState: the function that autograd calls, and its handle
        self._batching = Batching()
        self._can_batch = not (compressor or self._order or self._guard)
        self._lock = threading.RLock()  # held while rows are added to the table
        self._session = None
        self._table = None  # GradientTable of the present step
        self._taken = None  # GradientTable of the last step, after take_table()
        self._connect()
        self.included = bool(process_set.included())

    def add(self, name, param):
        """Declares a parameter and registers its hook."""
        dtype = DTYPES.get(param.dtype)
        if dtype is None:
            raise ValueError(f"parameter {name}: gradients of {param.dtype} are not supported")
        if not param.is_cpu:
            raise not_yet(f"parameter {name} on {param.device}; this version reduces gradients on the CPU")
        codec = None if self._payloads.compressor else codec_for(self._compression, dtype) or None
        spec = self._common._replace(name=name, dtype=dtype, shape=tuple(param.shape), codec=codec, set=self._number)
        if not self.included:
            return
        if self._order is not None:
            spec = spec._replace(priority=self._order.add(param))
        state = ParameterState(param, spec)
        if self._payloads.compressor is None:  # else the first gradient determines dtype and shape of the payload
            state.key = self._session.key(spec)
        self._states.append(state)
        self._by_param[id(param)] = state
        self._set_hook(state, batched=self._can_batch and is_small(state) and self._batching.joins(state))

    def _set_hook(self, state, batched):
        """Registers the function for autograd to call on a complete gradient: the hook, or, for a batched parameter,
        the append of the list `ready`."""
        if not state.param.requires_grad:  # frozen since: torch refuses a new hook, and keeps the old one
            return
        if state in self._hooks:
            self._hooks[state][1].remove()
        if batched:
            hook = self._batching.ready.append
        else:
            hook = self._hook_of(state)
            if self._guard is not None:
                hook = self._guard(state, hook)
        self._hooks[state] = hook, state.param.register_post_accumulate_grad_hook(hook)

    def hooks(self):
        """The functions that autograd calls for each parameter, in the order of declaration."""
        return [self._hooks[state][0] for state in self._states]

    def group(self, groups):
        """From now on the gradients of each list of parameters are reduced as one unit."""
        for group in groups:
            members = [self._by_param[id(param)] for param in group if id(param) in self._by_param]
            for state in members:
                self._set_hook(state, batched=False)
            if members:
                self._groups.append(Group(f"group of {members[0].spec.name}", members))

    def close_with(self, owner):
        """When the owner is garbage-collected, all hooks are removed and gradients in flight are abandoned."""
        weakref.finalize(owner, _close, self._hooks, self).atexit = False

    def has_begun(self):
        """Whether a backward pass has reached a parameter since the last collect() or take_table()."""
        return bool(self._batching.ready) or self._table.has_begun()

    # Submits

    def _hook_of(self, state):
        storage_of = no_storage if self._payloads.compressor else storage_getter(state.dtype, state.shape)
        ready, lock = self._batching.ready, self._lock

        def hook(param):
            if ready:
                self._submit_ready(state)
            if not self._completes(state):
                return
            if state.group is not None:
                if state.group.arrive():
                    self._submit_group(state.group)
                return
            gradient = param.grad
            if gradient is state.view_gradient and gradient.data_ptr() == state.view_address:
                address, storage = state.view_address, state.view
            else:
                storage = storage_of(gradient)
                if storage is None or gradient.requires_grad:
                    self._submit(state, gradient)
                    return
                address = gradient.data_ptr()
                if state.view is not None and address != state.view_address:
                    gradient, address, storage = state.copy_into_view(gradient), state.view_address, state.view
            with lock:
                work = self._table.submit(state, gradient, storage, address)
            if work <= 0:
                self._submit_again(state, gradient, work)

        return hook

    def _completes(self, state):
        """Counts a backward pass that has reached the parameter; returns whether it is the last one of the step."""
        passes = self._table.passes.get(state, 0) + 1
        if passes > self.passes:
            raise AssertionError(f"gradient {state.spec.name}: {_TOO_MANY_PASSES}")
        self._table.passes[state] = passes
        return passes == self.passes

    def _submit_ready(self, trigger):
        """Submits the parameters of `ready` as a batch. trigger: see Batching.find."""
        with self._lock:
            params = self._batching.take()
            if not params:
                return
            layout = self._batching.find(params, trigger) if self.passes == 1 else None
            if layout is None:
                states = [state for state in (self._by_param[id(param)] for param in params) if self._completes(state)]
                if not states:
                    return
                layout = self._batching.learn(states, trigger)
            else:
                self._table.passes.update(layout.passes)
            if not self._table.submit_batch(layout):
                self._submit_each(layout.states)

    def _submit_each(self, states):
        """Submits the gradients of a batch one by one, after one of them was not as expected. That one gets a hook of
        its own."""
        for state in states:
            gradient = state.param.grad
            if gradient is None:
                name = state.spec.name
                raise RuntimeError(f"gradient {name} is gone: it was thrown away before step() could reduce it")
            if not is_as_declared(state, gradient):
                self._set_hook(state, batched=False)
            self._submit(state, gradient)

    def _submit(self, state, gradient):
        """Submits a gradient of any kind."""
        if self._session.closed:
            self._connect()
        gradient = self._payloads.densify(state, gradient)
        if gradient.layout is torch.sparse_coo:
            self._submit_sparse(state, gradient)
            return
        state.check(gradient)
        self._submit_payload(state, self._payloads.payload(state, gradient, self._session))

    def _submit_payload(self, state, memory):
        address, keep = memory.data_ptr(), (memory, memory.untyped_storage())
        work = self._session.submit_key(state.key, address, address, keep)
        with self._lock:
            self._table.add(state, memory, work)

    def _submit_again(self, state, memory, status):
        """A submit has failed. It is repeated if the session was closed and there is a new one."""
        error = error_of(status, self._session.pointer)
        if not self._session.closed:
            raise error
        self._connect()
        self._submit_payload(state, memory)

    def _submit_sparse(self, state, gradient):
        state.sparse_dim = gradient.sparse_dim()
        handle = sparse_allreduce_async(gradient, state.spec.name, self._common.op, self._process_set)
        self._table.sparse[state] = handle

    def _submit_group(self, group):
        """Submits all gradients of the group; those that this rank does not have, as absent."""
        if self._session.closed:
            self._connect()
        session, table = self._session, self._table
        pairs = [self._payloads.part_of_unit(state, session, state in table.passes) for state in group.states]
        works = session.submit_unit(group.name, [part for part, _ in pairs])
        with self._lock:
            for state, work, (part, memory) in zip(group.states, works, pairs):
                table.add(state, part[3] if memory is None else memory, work, absent=memory is None)

    def _submit_rest(self):
        """Submits the gradients that no hook has submitted."""
        if self._session.closed:
            self._connect()
        if self._session.dropped:
            self._session.sweep()
        self._table = self._table.without_interrupted()
        if self._batching.ready:
            # In the next step, the hook of the last parameter submits this batch.
            self._set_hook(self._by_param[id(self._batching.ready[-1])], batched=False)
            self._submit_ready(None)
        if len(self._table) < len(self._states):
            submitted = self._table.submitted()
            for group in self._groups:
                if group.states[0] not in submitted:
                    self._submit_group(group)
            submitted = self._table.submitted()
            for state in self._states:
                if state not in submitted:
                    self._submit_late(state)

    def _submit_late(self, state):
        """Submits the gradient of a parameter that no complete backward pass has reached."""
        if state.has_gradient(state in self._table.passes):
            self._submit(state, state.param.grad)
        elif state.sparse_dim is not None:
            self._submit_sparse(state, state.empty_sparse())
        else:
            spare = self._payloads.spare(state, self._session)
            work = self._session.submit_absent(state.key, spare.data_ptr(), spare)
            self._table.add(state, spare, work, absent=True)

    # Results

    def collect(self):
        """Submits the remaining gradients, waits for all results and leaves them in the gradients.

        A gradient that this rank does not have counts as absent. It becomes the result of the other ranks, or stays
        None if no rank has one.
        """
        if not self.included:
            return
        try:
            self._submit_rest()
            session, table = self._session, self._table
            works = table.works()
            session.wait(works)
            self._deliver(table)
            if self._order is not None and not self._order.is_known and self._states:
                self._set_priorities(self._order.agreed(session, self._number, self._states[0].spec.name))
        except Exception:  # not for an interrupt: the works continue, and the next collect() waits for them
            self.abandon()
            raise
        self._start_over()  # before step_end(), so that an interrupt there does not harm the next step
        try:
            session.step_end(self._number)
            if self._views is not None and self._views.arrange(table.states, works):
                self._batching.forget()
        finally:
            session.release(works)

    def _deliver(self, table):
        rows = table.changed_rows() if self._payloads.compressor is None else range(len(table))
        for row in rows:
            self._payloads.deliver(table, row)
        for state, handle in table.sparse.items():
            state.param.grad = synchronize(handle)

    def _start_over(self):
        """Begins a new step."""
        self._table = GradientTable(self._session, len(self._states))
        for group in self._groups:
            group.start_over()
        self._batching.start_over()
        if self._views is not None:
            for state in self._states:
                state.zeroed = False

    def abandon(self):
        """Begins a new step without the results of this one. The works continue; the session keeps their memory."""
        for table in (self._taken, self._table):
            if table is not None:
                table.abandon()
        self._taken = None
        self._batching.forget()
        self._start_over()
        if self._views is not None:  # a new step must not write to a view that is in flight
            self._views.forget()

    # Results one by one, for cross_barrier

    def take_table(self):
        """Submits the remaining gradients and begins a new step. Returns the table of the old step and all
        ParameterStates. The caller passes each of these to finish_one(), and then calls end_step()."""
        self._submit_rest()
        if self._taken not in (None, self._table):  # an interrupt ended the last step early
            self._taken.abandon()
        self._taken = self._table
        self._start_over()
        return self._taken, self._states

    def finish_one(self, table, state, row):
        """Waits for the result of one parameter and leaves it in the gradient. row: None if it is sparse."""
        if row is None:
            state.param.grad = synchronize(table.sparse[state])
            return
        works = [table.work(row)]
        table.session.wait(works)
        self._payloads.deliver(table, row)
        table.forget(row)
        table.session.release(works)

    def end_step(self):
        """finish_one() was called for all parameters."""
        self._taken = None
        self._session.step_end(self._number)

    # Sessions, priorities and views

    def _connect(self):
        """Uses the present session. After shutdown() and init() it is a new one, in which no parameter is declared."""
        self._session = _default.session()
        self._number = number_of(self._process_set)
        for state in self._states:
            state.spec = state.spec._replace(set=self._number)
            state.key = self._session.key(state.spec)
        self._batching.forget()
        self._table = GradientTable(self._session, len(self._states))
        if self._as_views:
            if self._views is not None:
                self._views.forget()
            self._views = BucketViews(self._session, self._number, self._states)

    def _set_priorities(self, priorities):
        """Sets the priorities of the parameters, from the next step on."""
        for state, priority in zip(self._states, priorities):
            if state.spec.priority != priority:
                state.spec = state.spec._replace(priority=priority)
                state.key = self._session.key(state.spec) if self._payloads.compressor is None else None

    def zero_views(self):
        """See BucketViews.zero."""
        return [] if self._views is None else self._views.zero()


def _close(hooks, gradients):
    try:
        gradients.abandon()
    finally:
        for _, handle in hooks.values():
            handle.remove()
        if gradients._order is not None:
            gradients._order.close()
