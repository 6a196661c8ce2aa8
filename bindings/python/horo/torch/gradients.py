"""The gradients of one optimizer: hooks submit them while backward runs, collect() waits for their results.

One small gradient passes these files: declared.py declares the parameter; hooks.py notes that the gradient is
complete; batching.py forms the batch; gradient_table.py submits it; rounds.py ends the round at the end of backward;
collect() in results.py waits; step() of the user's optimizer uses the result.
"""

import contextlib
import threading
import weakref

import torch

from horo._specs import Average
from horo.errors import HoroError, not_yet
from horo.torch import devices, rounds
from horo.torch.abandoned import AbandonedWorks
from horo.torch.batching import is_as_declared
from horo.torch.declared import DeclaredParameters
from horo.torch.gradient_table import GradientTable
from horo.torch.layouts import Layouts
from horo.torch.ops import sparse_allreduce_async
from horo.torch.payload import Payloads
from horo.torch.results import Results
from horo.torch.round_state import RoundState
from horo.torch.sparse import without_entries
from horo.torch.streams import this_thread


class Gradients(Results):
    """The gradients of the declared parameters. Hooks may run in any thread. The public methods are called by one
    thread at a time. On a rank outside of the process set nothing is declared or submitted."""

    def __init__(self, common, passes, process_set, compression, **modes):
        """common: a Spec with the fields that all parameters share; passes: backward passes per round. Modes:
        sparse_as_dense; as_views: gradients lie in their buckets; order: a ForwardOrder, or None if all parameters
        have one priority; guard(state, hook): see Hooks. With a guard a round ends in step(), not in backward."""
        self.round = RoundState(passes, may_add=common.op == Average)
        self.declared = DeclaredParameters(common, process_set, compression, **modes)
        self.included = self.declared.included
        self.is_compressed = self.declared.compressor is not None
        self.ends_in_step = self.declared.guard is not None
        self._payloads = Payloads(self.declared.compressor, modes.get("sparse_as_dense", False))
        self._layouts = Layouts(self.declared)
        self._batching = self.declared.batching
        self._lock = threading.RLock()  # held while a round opens, a pass enters it, or rows are added to the table
        self._abandoned = AbandonedWorks()
        self.before_pass = lambda: None  # called before a backward in this thread
        self.before_rest = lambda: None  # called before the gradients are submitted that no hook has submitted
        self._table = GradientTable(self.declared.session, 0)  # of the current round
        self._taken = None  # GradientTable of the last round, after take_table()

    def add(self, named):
        """Declares parameters, a list of (name, parameter), and registers their hooks."""
        is_new = not self.is_active()
        if not is_new:
            self.connection()
        self.declared.declare(self, named)
        if is_new and self.is_active():
            self.round.step = self.declared.stream.steps
            rounds.serve(self)

    def is_active(self):
        return self.declared.stream is not None  # a parameter is declared

    def hooks(self):
        """The functions that autograd calls, in the order of declaration."""
        return self.declared.hooks.functions(self.declared.states)

    def close_with(self, owner):
        """When the owner is garbage-collected, all hooks are removed and gradients in flight are abandoned."""
        weakref.finalize(owner, self.close).atexit = False

    # Rounds; see rounds.py

    def connection(self):
        """The current Session, the number of the process set and the Stream."""
        if self.declared.connect():  # the passes of the current round still count
            self.round.is_open = self.round.is_submitted = False
            self._table = GradientTable(self.declared.session, len(self.declared.states))
        return self.declared.session, self.declared.number, self.declared.stream

    def has_begun(self):
        """Whether gradients wait or are in flight."""
        return bool(self._batching.ready) or self._table.has_begun()

    def prepare(self):
        """An outermost backward begins in this thread. Waits for what is left of earlier rounds."""
        if self.round.running is None:
            self.before_pass()
        if self.declared.stream.thread is not this_thread() or self.declared.session.closed:
            return
        self._abandoned.settle()
        if self.round.is_submitted and not self.ends_in_step:
            self.collect()  # an interrupt has ended the wait for the last round
        self.round.prepare(self.declared.states)

    def was_reached_by(self, running):
        """Whether this BackwardPass has reached a parameter."""
        if self.round.running is None and self._batching.ready:
            return self.declared.stream.thread is running.thread
        return self.round.running is running

    def is_due(self, state):
        """A hook has found the gradient of this parameter complete. Returns whether to submit it now."""
        self._enter(state)
        if not self.round.is_due(state):
            return False
        if state.group is None:
            return True
        if state.group.arrive(state):
            self._submit_group(state.group)
        return False

    def _enter(self, state):
        """The hook of a parameter runs."""
        running = rounds.current()
        with self._lock:
            if self.round.enter(running, state):
                self.declared.wake()
                self.declared.stream.thread = running.thread

    def end_pass(self):
        """The backward that reached these gradients has ended. Returns whether its round ends."""
        if self.round.end_pass():
            return True
        self.round.check_held(self.declared.by_param[id(param)] for param in self._batching.take())
        return False

    def is_covered(self):
        """Whether the gradients are results of rounds since the last step, and none was made by hand since."""
        return self.round.covers() and not self.has_begun() and not self.declared.has_new_gradients()

    def check_in_place(self):
        """Raises HoroError if a gradient in flight was replaced."""
        self._table.check_in_place()

    def stepped(self):
        """The optimizer has made a step. An optimizer of the same parameters that is wrapped later counts on."""
        self.round.stepped()
        if self.is_active():
            self.declared.stream.steps = self.round.step

    def begin_anew(self):
        """The gradients were set to zero."""
        if self.is_active():
            if self.has_begun():
                self.abandon()
            self.round.begin_anew()

    def forget_pass(self):
        """The backward that reached these gradients has raised an exception."""
        self.round.running = None
        self._batching.ready.clear()

    def forget_round(self):
        """This rank is no member of the job any more: nothing of its round counts."""
        self.forget_pass()
        with contextlib.suppress(HoroError, ValueError):  # the session has ended
            self.abandon()
        self.round.start_over()
        for state in self.declared.states:
            state.param.grad = None

    def give_up(self, reason, alone=True):
        """An exception has ended the round. The other ranks get the reason for all that is not submitted. alone: they
        have no such exception."""
        self.forget_pass()
        declared = self.declared
        if not declared.session.closed and not declared.session.is_early:
            self._begin()
            declared.session.fail_round(declared.number, declared.stream.number, reason)
            if alone and self._layouts.begin():
                self.start_layouts()  # the other ranks wait for it
        self.abandon()

    def _begin(self):
        """The following submits belong to the current round."""
        if self.round.is_open:
            return
        with self._lock:
            if self.round.is_open:  # the hook of another device has opened it
                return
            session, number, stream = self.connection()
            self.declared.update_names()
            if self.round.count_from_join(session.joins[number]):
                self.declared.forget_order()
            round_number = self.declared.round_number(self.round.number)
            session.begin_round(number, stream.number, self.round.step, round_number)
            self.round.is_open = True

    # Submits

    def submit_in_place(self, state, gradient, storage, address):
        """Submits a gradient that is as declared, and whose memory nothing else holds."""
        with self._lock:
            self._begin()
            work = self._table.submit(state, gradient, storage, address)
        if work <= 0:
            self.declared.session.fail(work)

    def submit_ready(self, trigger):
        """Submits the parameters of `ready` as a batch. trigger: see Batching.find."""
        if trigger is not None:
            self._enter(trigger)
        with self._lock:
            params = self._batching.take()
            if not params or self.round.accumulates or self.round.is_absent:
                return
            self._begin()
            layout = self._batching.find(params, trigger) if self.round.is_plain() else None
            if layout is None:
                states = [self.declared.by_param[id(param)] for param in params]
                states = self.round.due_of(states, self._table.submitted())
                if not states:
                    return
                layout = self._batching.learn(states, trigger)
            if not self._table.submit_batch(layout):
                self._submit_each(layout.states)

    def _submit_each(self, states):
        """Submits the gradients of a batch one by one, after one of them was not as expected. That one gets a hook of
        its own."""
        for state in states:
            gradient = state.param.grad
            if gradient is None:
                name = state.name
                raise RuntimeError(f"gradient {name} is gone: a hook threw it away before it could be reduced")
            if not is_as_declared(state, gradient):
                self.declared.hooks.set(state, batched=False)
            self.submit(state, gradient)

    def submit(self, state, gradient):
        """Submits a gradient of any kind, but not a sparse one of unknown layout."""
        self._begin()
        gradient = self._payloads.in_layout(state, gradient)
        if gradient.layout is torch.sparse_coo and state.group is None:
            if state.layout is not None:
                self._submit_sparse(state, gradient)
            return
        state.check(gradient)
        memory = self._payloads.payload(state, gradient, self.declared.session)
        address, keep = devices.address_of(memory), (memory, memory.untyped_storage())
        work = self.declared.session.submit_key(state.key, address, address, keep)
        with self._lock:
            self._table.add(state, memory, work, gradient=state.param.grad)

    def _submit_sparse(self, state, gradient):
        if self.declared.session.topology.min_size > 0:
            raise not_yet(
                f"gradient {state.name} is sparse in an elastic job, where a round of sparse gradients cannot run "
                "again; pass sparse_as_dense=True"
            )
        op, process_set = self.declared.common.op, self.declared.process_set
        self._table.sparse[state] = sparse_allreduce_async(gradient, state.spec.name, op, process_set)

    def _submit_group(self, group):
        self._begin()
        with self._lock:
            group.submit(self._table, self._payloads, self.round)

    def submit_rest(self):
        """Submits the gradients that no hook has submitted."""
        self.before_rest()
        self.connection()
        declared = self.declared
        if declared.session.dropped:
            declared.session.sweep()
        self._abandoned.settle()
        self._begin()
        self._table = self._table.without_interrupted()
        if self._batching.ready:
            # In the next round, the hook of the last parameter submits this batch.
            declared.hooks.set(declared.by_param[id(self._batching.ready[-1])], batched=False)
            self.submit_ready(None)
        if len(self._table) < len(declared.states):
            submitted = self._table.submitted()
            for group in declared.groups:
                if group.states[0] not in submitted:
                    self._submit_group(group)
        has_unknown = self._layouts.begin()
        if len(self._table) < len(declared.states):
            submitted = self._table.submitted()
            for state in declared.states:
                if state in submitted or state.is_lent:
                    continue
                if state.layout is None and has_unknown:
                    self._layouts.undecided.append(state)
                else:
                    self._submit_late(state)
        self.round.is_submitted = not has_unknown

    def start_layouts(self):
        """If layouts are unknown, this rank tells the others what it has. submit_rest() was called."""
        if not self.round.is_submitted:
            self._layouts.start(self._table.submitted(), self._payloads.densified)

    def submit_undecided(self):
        """Waits for the layouts, and submits the gradients that waited for them."""
        if self.round.is_submitted:
            return
        for state in self._layouts.decide(self.check_agreement):
            if state.layout is not None:
                self._submit_late(state)
            elif state.is_in_view(state.param.grad):  # no rank has a gradient
                state.param.grad = None
        self.round.is_submitted = True

    def _submit_late(self, state):
        """Submits the gradient of a parameter that no complete backward pass has reached."""
        if not state.param.requires_grad:  # on all ranks alike
            if state.zeroed and state.is_in_view(state.param.grad):
                state.param.grad = None
            return
        is_absent = self.round.is_absent or self.round.holds(state)
        if not is_absent and state.has_gradient(self.round.has_reached(state)):
            self.submit(state, state.param.grad)
        elif state.layout and not self._payloads.sparse_as_dense:
            self._submit_sparse(state, without_entries(state.shape, state.dtype, state.layout, state.param.device))
        else:
            session = self.declared.session
            spare = self._payloads.spare(state, session)
            work = session.submit_absent(state.key, devices.address_of(spare), spare)
            self._table.add(state, spare, work, absent=True)
