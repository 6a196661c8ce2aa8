"""Gradients on their way: each parameter is declared once, its hook submits, collect() waits for all of them.

The hook runs once per parameter and step while backward still computes, so it does no more than it must: it reads
the gradient's address, which may differ each step, and makes one foreign call.
"""

import weakref

import torch

from horo import _default
from horo._compression import codec_for, codec_of
from horo._handles import synchronize
from horo._native import ALL_REDUCE, quick
from horo._session import error_of
from horo._sets import number_of
from horo._specs import Spec, op_fields
from horo.errors import not_yet
from horo.torch.arrays import DTYPES, holder_of, holder_of_none, in_one_piece
from horo.torch.bucket_views import BucketViews
from horo.torch.ops import sparse_allreduce_async
from horo.torch.slots import Group, Slot

_TOO_MANY_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)


class Gradients:
    """The gradients of the declared parameters. Any thread may run the hooks; one thread at a time the rest.

    On a rank that is not in the process set they stay as they are."""

    def __init__(self, common, passes, process_set, compression, **modes):
        """common: a Spec of what is the same for all parameters; passes: backward passes per step. Modes:
        sparse_as_dense; as_views: gradients live in their buckets; order: a ForwardOrder, where some are more urgent
        than others; guard(slot): called by the hook of a gradient whose last reduction nobody waited for yet."""
        self.passes = passes
        self._common = common
        self._process_set = process_set
        self._compression = compression
        self._compressor = compression if codec_of(compression) is None else None  # of the user's own
        self._sparse_as_dense = modes.get("sparse_as_dense", False)
        self._as_views = modes.get("as_views", False) and self._compressor is None
        self._order = modes.get("order")
        self._guard = modes.get("guard")
        self._views = None
        self._slots = []
        self._groups = []
        self._hooks = []
        self._session = None
        self._pointer = None
        self._connect()
        self.included = bool(process_set.included())

    def add(self, name, param):
        """Declares the parameter and submits its gradient from now on as soon as it is complete."""
        dtype = DTYPES.get(param.dtype)
        if dtype is None:
            raise ValueError(f"parameter {name}: gradients of {param.dtype} are not supported")
        if not param.is_cpu:
            raise not_yet(f"parameter {name} on {param.device}; this version reduces gradients on the CPU")
        codec = None if self._compressor else codec_for(self._compression, dtype) or None
        spec = self._common._replace(name=name, dtype=dtype, shape=tuple(param.shape), codec=codec, set=self._number)
        if not self.included:
            return
        if self._order is not None:
            spec = spec._replace(priority=self._order.add(param))
        slot = Slot(param, spec, self.passes)
        if self._compressor is None:  # else what travels is known with the first gradient
            slot.key = self._session.key(spec)
        self._slots.append(slot)
        hook = self._hook_of(slot) if self._guard is None else self._guarded(slot, self._hook_of(slot))
        self._hooks.append(param.register_post_accumulate_grad_hook(hook))

    def _guarded(self, slot, hook):
        guard = self._guard

        def guarded(param):
            if slot.is_submitted():
                guard(slot)
            hook(param)

        return guarded

    def group(self, groups):
        """The gradients of each list of parameters become one unit."""
        slots = {id(slot.param): slot for slot in self._slots}
        for group in groups:
            members = [slots[id(param)] for param in group if id(param) in slots]
            if members:
                self._groups.append(Group(f"group of {members[0].spec.name}", members))

    def close_with(self, owner):
        """When owner is gone: no hook any more, and nobody waits for what is in flight."""
        weakref.finalize(owner, _close, self._hooks, self).atexit = False

    def abandon(self):
        """Starts over; works in flight go on unseen."""
        for slot in self._slots:
            self._keep(slot)
        self._session.drop([slot.work for slot in self._slots if slot.work is not None])
        self._start_over()
        if self._views is not None:  # which may be in flight
            self._views.forget()

    def _keep(self, slot):
        """The session keeps what only the slot did. If the work has no number here, because an interrupt came right
        after the submit, nobody can tell when the memory is free."""
        if slot.storage is not None:
            self._kept[slot.work or object()] = (slot.memory, slot.storage)
            slot.storage = None

    def _start_over(self):
        for slot in self._slots:
            slot.start_over(self.passes)
        for group in self._groups:
            group.start_over()

    def has_begun(self, beside=()):
        """Since the last collect() a backward pass has reached one of the parameters, beside those slots."""
        begun = (slot for slot in self._slots if slot.is_submitted() or slot.passes_left != self.passes)
        return any(slot not in beside for slot in begun)

    def submit_rest(self):
        """Submits what no hook did."""
        if self._session.closed:
            self._connect()
        if self._session.dropped:
            self._session.sweep()
        for group in self._groups:
            if not group.slots[0].is_submitted():
                self._submit_group(group)
        for slot in self._slots:
            if slot.work is None and slot.sparse is None:
                self._submit_late(slot)

    def take_all(self):
        """submit_rest() of who will finish them one by one."""
        self.submit_rest()
        for group in self._groups:
            group.start_over()
        return self._slots

    def finish_one(self, slot):
        """Waits for one, and leaves the result in its gradient."""
        session, work = self._session, slot.work
        if work is not None:
            session.wait([work])
        self._deliver(slot, session)
        slot.start_over(self.passes)
        if work is not None:
            session.release([work])

    def end_step(self):
        """All of them are finished."""
        self._session.step_end(self._number)

    def collect(self):
        """Submits what is missing, waits for all, and leaves the results in the gradients.

        A parameter without a gradient here counts as absent: it gets the others' result, or, where nobody has one,
        stays without.
        """
        if not self.included:
            return
        try:
            self.submit_rest()
            session = self._session
            dense = [slot for slot in self._slots if slot.work is not None]
            works = [slot.work for slot in dense]
            session.wait(works)
            for slot in self._slots:
                if not (self._compressor is None and slot.has_its_result()):
                    self._deliver(slot, session)
            if self._order is not None and not self._order.is_known and self._slots:
                self._rank_by(self._order.agreed(session, self._number, self._slots[0].spec.name))
        except Exception:  # an interrupt is none: the works go on, and may be waited for again
            self.abandon()
            raise
        self._start_over()  # first: after an interrupt in between the next step works
        try:
            session.step_end(self._number)
            if self._views is not None:
                self._views.arrange(dense, works)
        finally:
            session.release(works)

    def _rank_by(self, priorities):
        """From the next step on the parameters have these priorities."""
        for slot, priority in zip(self._slots, priorities):
            if slot.spec.priority != priority:
                slot.spec = slot.spec._replace(priority=priority)
                slot.key = self._session.key(slot.spec) if self._compressor is None else None

    def zero_views(self):
        """See BucketViews.zero."""
        return [] if self._views is None else self._views.zero()

    def hooks(self):
        """What backward calls for each parameter, in order of declaration."""
        return [self._hook_of(slot) for slot in self._slots]

    def _hook_of(self, slot):
        submit = quick.horo_submit
        hold = holder_of(slot.dtype, slot.shape) if self._compressor is None else holder_of_none

        def hook(param):
            left = slot.passes_left - 1
            if left < 0:
                raise AssertionError(f"gradient {slot.spec.name}: {_TOO_MANY_PASSES}")
            slot.passes_left = left
            if left:
                return
            if slot.group is not None:
                self._arrive(slot)
                return
            gradient = param.grad
            if gradient is slot.home and gradient.data_ptr() == slot.place:
                address, storage = slot.place, slot.view
            else:
                storage = hold(gradient)
                if storage is None or gradient.requires_grad:
                    self._submit(slot)
                    return
                address = gradient.data_ptr()
                if slot.view is not None and address != slot.place:
                    gradient, address, storage = slot.bring_home(gradient), slot.place, slot.view
            # Before the call: an interrupt may come right after it. The slot keeps them until the work was waited for,
            # or abandoned, and no hook gets here before. The storage too: a gradient that is given another one lets
            # go of the old one, which is in flight.
            slot.memory, slot.storage, slot.address = gradient, storage, address
            work = submit(self._pointer, slot.key, address, address)
            if work > 0:
                slot.work = work
                return
            slot.memory = slot.storage = None
            self._submit_again(slot, gradient, work)

        return hook

    def _connect(self):
        """To the session of now: after shutdown() and init() it is another one, and knows no parameter."""
        self._session = _default.session()
        self._pointer = self._session.pointer
        self._kept = self._session.kept
        self._number = number_of(self._process_set)
        for slot in self._slots:
            slot.spec = slot.spec._replace(set=self._number)
            slot.key = self._session.key(slot.spec)
            slot.work = slot.memory = slot.storage = slot.sparse = None
        if self._as_views:
            if self._views is not None:
                self._views.forget()
            self._views = BucketViews(self._session, self._number, self._slots)

    def _submit_again(self, slot, memory, status):
        """A submit failed: perhaps the session is an old one."""
        error = error_of(status, self._pointer)
        if not self._session.closed:
            raise error
        self._connect()
        self._place(slot, memory)

    def _place(self, slot, memory):
        address, keep = memory.data_ptr(), (memory, memory.untyped_storage())
        slot.submitted(memory, self._session.submit_key(slot.key, address, address, keep))

    def _memory_of(self, slot, gradient):
        """What travels of a gradient, in one piece: itself, or a copy, or what the compressor makes of it."""
        if slot.view is not None:
            return gradient if slot.is_at_home(gradient) else slot.bring_home(gradient)
        memory = gradient
        if self._compressor is not None:
            memory, slot.context = self._compressor.compress(gradient)
            spec = slot.spec._replace(dtype=DTYPES[memory.dtype], shape=tuple(memory.shape))
            slot.spec, slot.key = spec, self._session.key(spec)
        return in_one_piece(memory.detach())

    def _densely(self, slot):
        """The gradient that is to be reduced, made dense if that was asked for."""
        gradient = slot.param.grad
        if self._sparse_as_dense and gradient.layout is torch.sparse_coo:
            gradient = slot.param.grad = gradient.to_dense()
        return gradient

    def _submit(self, slot):
        """The gradient as it is."""
        if self._session.closed:
            self._connect()
        gradient = self._densely(slot)
        if gradient.layout is torch.sparse_coo:
            self._submit_sparse(slot, gradient)
            return
        slot.check(gradient)
        self._place(slot, self._memory_of(slot, gradient))

    def _submit_sparse(self, slot, gradient):
        slot.sparse_dim = gradient.sparse_dim()
        slot.sparse = sparse_allreduce_async(gradient, slot.spec.name, self._common.op, self._process_set)

    def _submit_late(self, slot):
        """Of a parameter that no hook submitted in this step, or was interrupted in it."""
        self._keep(slot)
        if slot.has_gradient(self.passes):
            self._submit(slot)
        elif slot.sparse_dim is not None:
            empty = torch.sparse_coo_tensor(
                torch.empty((slot.sparse_dim, 0), dtype=torch.int64, device="cpu"),
                torch.empty((0, *slot.shape[slot.sparse_dim :]), dtype=slot.dtype, device="cpu"),
                slot.shape,
                check_invariants=True,
            )
            self._submit_sparse(slot, empty)
        else:
            spare = self._spare_of(slot)
            slot.work = self._session.submit_absent(slot.key, spare.data_ptr(), spare)

    def _spare_of(self, slot):
        """Memory for what the others have: the view, or kept for another time, as mostly nobody has anything."""
        if slot.view is not None:
            return slot.view.detach()
        if slot.spare is None:
            memory = self._memory_of(slot, torch.zeros(slot.shape, dtype=slot.dtype, device="cpu"))
            slot.spare = memory, slot.context
        memory, slot.context = slot.spare
        return memory

    def _arrive(self, slot):
        if slot.group.arrive():
            self._submit_group(slot.group)

    def _submit_group(self, group):
        """All gradients of the group; those that this rank does not have, as absent."""
        if self._session.closed:
            self._connect()
        parts, memories = [], []
        for slot in group.slots:
            if not slot.has_gradient(self.passes):
                spare = self._spare_of(slot)
                memories.append(None)
                parts.append((slot.spec, None, spare.data_ptr(), spare))
                continue
            gradient = self._densely(slot)
            slot.check(gradient)
            memory = self._memory_of(slot, gradient)
            memories.append(memory)
            address = memory.data_ptr()
            parts.append((slot.spec, address, address, (memory, memory.untyped_storage())))
        works = self._session.submit_unit(group.name, parts)
        for slot, work, memory in zip(group.slots, works, memories):
            if memory is None:
                slot.work = work
            else:
                slot.submitted(memory, work)

    def _deliver(self, slot, session):
        if slot.sparse is not None:
            slot.param.grad = synchronize(slot.sparse)
            return
        absent = slot.memory is None
        if absent:
            if session.result(slot.work).absent:
                if slot.is_at_home(slot.param.grad):  # zeros that stood for none
                    slot.param.grad = None
                return
            memory = self._spare_of(slot)
        else:
            slot.check_memory()
            memory = slot.memory
        value = memory if self._compressor is None else self._compressor.decompress(memory, slot.context)
        gradient = slot.param.grad
        if gradient is None:  # absent, or somebody forgot it since
            slot.param.grad = value
        elif gradient is not value and not (absent and slot.is_at_home(gradient)):
            with torch.no_grad():
                gradient.copy_(value)
        if absent:
            slot.spare = None  # last: after an interrupt this comes again


def _close(hooks, gradients):
    for hook in hooks:
        hook.remove()
    if gradients._order is not None:
        gradients._order.close()
    gradients.abandon()


def common_spec(op, order, factor):
    """What all gradients share; factor divides before the reduction and multiplies after it."""
    op, custom = op_fields(op)
    fields = {"order": order, "stepwise": 1, "prescale": 1.0 / factor, "postscale": factor, "custom_op": custom}
    return Spec(None, ALL_REDUCE, op, **fields)
