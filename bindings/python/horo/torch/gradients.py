"""Gradients on their way: each parameter is declared once, its hook submits, collect() waits for all of them.

The hook runs once per parameter and step while backward still computes, so it does no more than it must: it reads
the gradient's address, which may differ each step, and makes one foreign call. Of most small ones it does less: see
bursts.py.
"""

import threading
import weakref

import torch

from horo import _default
from horo._compression import codec_for, codec_of
from horo._native import quick
from horo._session import error_of
from horo._sets import number_of
from horo.errors import not_yet
from horo.torch import bursts
from horo.torch.arrays import DTYPES, holder_of, holder_of_none, places_of, versions_of
from horo.torch.bucket_views import BucketViews
from horo.torch.contents import Contents
from horo.torch.ops import sparse_allreduce_async
from horo.torch.silence import Silence
from horo.torch.slots import Group, Slot


class Gradients:
    """The gradients of the declared parameters. Any thread may run the hooks; one thread at a time the rest.

    On a rank that is not in the process set they stay as they are."""

    def __init__(self, common, passes, process_set, compression, **modes):
        """common: a Spec of what is the same for all parameters; passes: backward passes per step. Modes:
        sparse_as_dense; as_views: gradients live in their buckets; order: a ForwardOrder, where some are more urgent
        than others; guard(slot, hook): what autograd calls instead of the hook."""
        self.passes = passes
        self._common = common
        self._process_set = process_set
        self._compression = compression
        compressor = compression if codec_of(compression) is None else None  # of the user's own
        self._contents = Contents(compressor, modes.get("sparse_as_dense", False))
        self._as_views = modes.get("as_views", False) and compressor is None
        self._order = modes.get("order")
        self._guard = modes.get("guard")
        self._views = None
        self._slots = []
        self._by_param = {}  # id of a parameter: its slot
        self._groups = []
        self._hooks = {}  # slot: what autograd calls, and its handle
        self._bursts = bursts.Bursts()
        self._takes_bursts = not (compressor or self._order or self._guard)
        self._room = 0  # in the burst that the next small slot would be in
        self.flushing = threading.RLock()
        self._silence = Silence(self)
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
        codec = None if self._contents.compressor else codec_for(self._compression, dtype) or None
        spec = self._common._replace(name=name, dtype=dtype, shape=tuple(param.shape), codec=codec, set=self._number)
        if not self.included:
            return
        if self._order is not None:
            spec = spec._replace(priority=self._order.add(param))
        slot = Slot(param, spec, self.passes)
        if self._contents.compressor is None:  # else what travels is known with the first gradient
            slot.key = self._session.key(spec)
        self._slots.append(slot)
        self._by_param[id(param)] = slot
        small = self._takes_bursts and bursts.is_small(slot)
        self._silence.end()
        self.hook(slot, in_bursts=small and self._room > 0)
        if small:
            self._room = (self._room if self._room > 0 else 1) - bursts.share_of(slot)

    def hook(self, slot, in_bursts):
        """From now on autograd says when the gradient is complete; if in_bursts, one that says more comes later."""
        if slot in self._hooks:
            self.unhook(slot)
        if in_bursts:
            hook = self._bursts.ready.append
        else:
            hook = self._hook_of(slot)
            if self._guard is not None:
                hook = self._guard(slot, hook)
        self._hooks[slot] = hook, slot.param.register_post_accumulate_grad_hook(hook)

    def unhook(self, slot):
        """Autograd says nothing of it any more. Returns the parameter's other hooks, now and later."""
        handle = self._hooks[slot][1]
        handle.remove()
        return handle.hooks_dict_ref()

    def group(self, groups):
        """The gradients of each list of parameters become one unit."""
        for group in groups:
            members = [self._by_param[id(param)] for param in group if id(param) in self._by_param]
            for slot in members:
                self.hook(slot, in_bursts=False)
            if members:
                self._groups.append(Group(f"group of {members[0].spec.name}", members))

    def close_with(self, owner):
        """When owner is gone: no hook any more, and nobody waits for what is in flight."""
        weakref.finalize(owner, _close, self._hooks, self).atexit = False

    def abandon(self):
        """Starts over; works in flight go on unseen."""
        self._bursts.tell()
        self._forget_bursts()
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
        for slot in self._bursts.rest_of(self._slots):
            slot.start_over(self.passes)
        for group in self._groups:
            group.start_over()
        self._bursts.start_over()

    def has_begun(self, beside=()):
        """Since the last collect() a backward pass has reached one of those with a hook, beside those slots."""
        if self._bursts.ready or self._bursts.in_flight:
            return True
        begun = (slot for slot in self._slots if slot.is_submitted() or slot.passes_left != self.passes)
        return any(slot not in beside for slot in begun)

    def submit_rest(self):
        """Submits what no hook did."""
        if self._session.closed:
            self._connect()
        if self._session.dropped:
            self._session.sweep()
        self._bursts.tell_cut_off()
        if self._bursts.ready:  # next time its hook will submit the last ones
            self.hook(self._by_param[id(self._bursts.ready[-1])], in_bursts=False)
            self._flush(None)
        for group in self._groups:
            if not group.slots[0].is_submitted():
                self._submit_group(group)
        for slot in self._bursts.rest_of(self._slots):
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
        self._contents.deliver(slot, session)
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
            if self.passes == 1 and self._views is None:  # else gradients are there before backward
                self._silence.learn([burst.lists for burst in self._bursts.in_flight])
            session = self._session
            others = [slot for slot in self._bursts.rest_of(self._slots) if slot.work is not None]
            works = self._bursts.works(others)
            dense = self._bursts.slots() + others if self._views is not None else None
            session.wait(works)
            self._bursts.check()
            for slot in self._bursts.rest_of(self._slots):
                self._contents.deliver(slot, session)
            if self._order is not None and not self._order.is_known and self._slots:
                self._rank_by(self._order.agreed(session, self._number, self._slots[0].spec.name))
        except Exception:  # an interrupt is none: the works go on, and may be waited for again
            self.abandon()
            raise
        self._start_over()  # first: after an interrupt in between the next step works
        try:
            session.step_end(self._number)
            if self._views is not None and self._views.arrange(dense, works):
                self._forget_bursts()
        finally:
            session.release(works)

    def _rank_by(self, priorities):
        """From the next step on the parameters have these priorities."""
        for slot, priority in zip(self._slots, priorities):
            if slot.spec.priority != priority:
                slot.spec = slot.spec._replace(priority=priority)
                slot.key = self._session.key(slot.spec) if self._contents.compressor is None else None

    def zero_views(self):
        """See BucketViews.zero."""
        return [] if self._views is None else self._views.zero()

    def hooks(self):
        """What backward calls for each parameter, in order of declaration."""
        return [self._hooks[slot][0] for slot in self._slots]

    def _hook_of(self, slot):
        submit = quick.horo_submit
        hold = holder_of(slot.dtype, slot.shape) if self._contents.compressor is None else holder_of_none
        ready = self._bursts.ready

        def hook(param):
            if ready:
                self._flush(slot)
            if slot.duty is not None:
                slot.duty()
            if not slot.is_complete_now():
                return
            if slot.group is not None:
                if slot.group.arrive():
                    self._submit_group(slot.group)
                return
            gradient = param.grad
            if gradient is slot.home and gradient.data_ptr() == slot.place:
                address, storage = slot.place, slot.view
            else:
                storage = hold(gradient)
                if storage is None or gradient.requires_grad:
                    self._submit(slot, gradient)
                    return
                address = gradient.data_ptr()
                if slot.view is not None and address != slot.place:
                    gradient, address, storage = slot.bring_home(gradient), slot.place, slot.view
            # Before the call: an interrupt may come right after it. The slot keeps them until the work was waited for,
            # or abandoned, and no hook gets here before. The storage too: a gradient that is given another one lets
            # go of the old one, which is in flight.
            slot.memory, slot.storage, slot.address = gradient, storage, address
            (slot.version,) = versions_of([gradient])
            work = submit(self._pointer, slot.key, address, address)
            if work > 0:
                slot.work = work
                return
            slot.memory = slot.storage = None
            self._submit_again(slot, gradient, work)

        return hook

    def _flush(self, speaker):
        """Submits what came in bursts."""
        with self.flushing:
            params = self._bursts.take()
            if not params:
                return
            lists = self._bursts.known(params, speaker) if self.passes == 1 else None
            if lists is None:
                self._bursts.tell()
                slots = self._completed(params)
                if not slots:
                    return
                lists = self._bursts.learn(slots, speaker)
            if not self._bursts.submit(self._session, lists):
                self._submit_each(lists.slots)

    def submit_burst(self, lists):
        """Whether all of them were submitted, as none of them is odd."""
        return self._bursts.submit(self._session, lists)

    def _forget_bursts(self):
        """Keys and places may be others from now on."""
        self._bursts.forget()
        self._silence.end()

    def _completed(self, params):
        """One backward pass less is missing for each. Returns the slots for which none is: as if none had come, which
        is what those look like that a Burst speaks for."""
        complete = [slot for slot in (self._by_param[id(param)] for param in params) if slot.is_complete_now()]
        for slot in complete:
            slot.passes_left = self.passes
        return complete

    def _submit_each(self, slots):
        """One of them is odd: from now on it has a hook of its own."""
        for slot in slots:
            slot.passes_left = 0
            gradient = slot.param.grad
            if gradient is None:
                name = slot.spec.name
                raise RuntimeError(f"gradient {name} is gone: it was thrown away before step() could reduce it")
            if places_of([gradient], [slot.look], [slot.nbytes]) is None:
                self.hook(slot, in_bursts=False)
            self._submit(slot, gradient)

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
        self._bursts.in_flight.clear()
        self._forget_bursts()
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

    def _submit(self, slot, gradient):
        """The gradient as it is."""
        if self._session.closed:
            self._connect()
        gradient = self._contents.densely(slot, gradient)
        if gradient.layout is torch.sparse_coo:
            self._submit_sparse(slot, gradient)
            return
        slot.check(gradient)
        self._place(slot, self._contents.memory_of(slot, gradient, self._session))

    def _submit_sparse(self, slot, gradient):
        slot.sparse_dim = gradient.sparse_dim()
        slot.sparse = sparse_allreduce_async(gradient, slot.spec.name, self._common.op, self._process_set)

    def _submit_late(self, slot):
        """Of a parameter that no hook submitted in this step, or was interrupted in it."""
        self._keep(slot)
        if slot.has_gradient(self.passes):
            self._submit(slot, slot.param.grad)
        elif slot.sparse_dim is not None:
            self._submit_sparse(slot, slot.empty_sparse())
        else:
            spare = self._contents.spare_of(slot, self._session)
            slot.work = self._session.submit_absent(slot.key, spare.data_ptr(), spare)

    def _submit_group(self, group):
        """All gradients of the group; those that this rank does not have, as absent."""
        if self._session.closed:
            self._connect()
        pairs = [self._contents.part_of(slot, self._session, self.passes) for slot in group.slots]
        works = self._session.submit_unit(group.name, [part for part, _ in pairs])
        for slot, work, (_, memory) in zip(group.slots, works, pairs):
            if memory is None:
                slot.work = work
            else:
                slot.submitted(memory, work)


def _close(hooks, gradients):
    try:
        gradients.abandon()
    finally:
        for _, handle in hooks.values():
            handle.remove()
        if gradients._order is not None:
            gradients._order.close()
