"""The payload of a gradient: the memory that is submitted for it, and the return of the result to the gradient."""

import torch

from horo._handles import synchronize
from horo.torch import devices
from horo.torch.arrays import DTYPES, in_one_piece, is_shared
from horo.torch.sparse import DENSE, in_layout


class Payloads:
    """A payload is the gradient itself, a dense copy of it, or the output of the user's compressor."""

    def __init__(self, compressor, sparse_as_dense):
        """compressor: the user's, or None."""
        self.compressor = compressor
        self.sparse_as_dense = sparse_as_dense
        self.densified = {}  # ParameterState: the sparse dimensions of its gradient in this round before densify()

    def in_layout(self, state, gradient):
        """Returns the gradient in the layout in which it is reduced. With sparse_as_dense that is dense."""
        if self.sparse_as_dense:
            if gradient.layout is torch.sparse_coo:
                self.densified[state] = gradient.sparse_dim()
                gradient = state.param.grad = in_layout(gradient, DENSE)
        elif state.layout is not None:
            converted = in_layout(gradient, state.layout)
            if converted is not gradient and state.layout == DENSE:
                state.param.grad = converted
            gradient = converted
        return gradient

    def _make_sparse_again(self, states):
        """With sparse_as_dense the results of sparse gradients become sparse."""
        self.densified = {}
        for state in states if self.sparse_as_dense else ():
            gradient = state.param.grad
            if state.layout and gradient is not None and gradient.layout is torch.strided:
                state.param.grad = in_layout(gradient, state.layout)

    def payload(self, state, gradient, session):
        """Returns the contiguous tensor to submit for a dense gradient: the gradient itself, unless anything else holds
        its memory."""
        if state.view is not None:
            return gradient if state.is_in_view(gradient) else state.copy_into_view(gradient)
        is_free = not (gradient.requires_grad or is_shared(gradient, gradient.untyped_storage()))
        memory = gradient.detach()
        if self.compressor is not None:
            memory, state.context = self.compressor.compress(gradient)
            spec = state.spec._replace(dtype=DTYPES[memory.dtype], shape=tuple(memory.shape))
            state.spec, state.key = spec, session.key(spec)
        memory = in_one_piece(memory.detach())
        if is_free and memory.data_ptr() == gradient.data_ptr():
            return gradient
        return memory.clone() if memory.data_ptr() == gradient.data_ptr() else memory

    def part_of_unit(self, state, session, reached, is_absent=False):
        """Returns the part of a unit that Session.submit_unit expects, and its payload; None in place of the payload
        if this rank has no gradient, or is_absent: it does not count. reached: see ParameterState.has_gradient."""
        if is_absent or not state.has_gradient(reached):
            spare = self.spare(state, session)
            return (state.spec, None, devices.address_of(spare), spare), None
        gradient = self.in_layout(state, state.param.grad)
        state.check(gradient)
        memory = self.payload(state, gradient, session)
        address = devices.address_of(memory)
        return (state.spec, address, address, (memory, memory.untyped_storage())), memory

    def spare(self, state, session):
        """Memory for the result of a gradient that this rank does not have: the view, or a buffer. The buffer is kept
        until a result arrives, because such a gradient is mostly absent on all ranks."""
        if state.view is not None:
            return state.view.detach()
        if state.spare is None:
            memory = self.payload(
                state, torch.zeros(state.shape, dtype=state.dtype, device=state.param.device), session
            )
            state.spare = memory, state.context
        memory, state.context = state.spare
        return memory

    def deliver_all(self, table, states, held):
        """All works of the table have ended: leaves the results in the gradients of these ParameterStates. held: those
        whose gradient may have been a result before, which no rank has added to."""
        for row in range(len(table)) if self.compressor is not None else table.changed_rows():
            self.deliver(table, row)
        self._make_sparse_again(states)
        for state, handle in table.sparse.items():
            result = synchronize(handle)
            if state not in held or not state.holds_result():
                state.param.grad = result

    def deliver(self, table, row):
        """The work of this row has ended: leaves the result in the parameter's gradient. A second call after an
        interrupt repeats the first."""
        state, memory = table.states[row], table.memory[row]
        gradient = state.param.grad
        absent = table.addresses[row] is None
        if not absent:
            table.check_memory(row)
        elif table.session.result(table.work(row)).absent:
            if state.is_in_view(gradient):  # zeros of zero_grad()
                state.param.grad = None
            return
        value = memory if self.compressor is None else self.compressor.decompress(memory, state.context)
        if gradient is None:
            state.param.grad = value
        elif gradient is not value and not (absent and state.is_in_view(gradient)):
            state.param.grad = _with_value(gradient, value)
        if absent:
            state.spare = None  # last, as the gradient owns the buffer from here on


def _with_value(gradient, value):
    """The gradient, with the value of the result. The user's own memory and memory that nothing else holds are written;
    else a new tensor has the value."""
    if gradient.requires_grad:
        return _Replaced.apply(gradient, value)
    if gradient._is_view() or not is_shared(gradient, gradient.untyped_storage()):
        with torch.no_grad():
            return gradient.copy_(value)
    return value


class _Replaced(torch.autograd.Function):
    """The value of a result with the graph of the local gradient (backward(create_graph=True)): a derivative of the
    result is then the derivative of the local gradient, which the next round reduces."""

    @staticmethod
    def forward(_, gradient, value):
        return value.clone()

    @staticmethod
    def backward(_, gradient):
        return gradient, None
