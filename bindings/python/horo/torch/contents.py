"""What travels of a gradient, and what becomes of it when it comes back."""

import torch

from horo._handles import synchronize
from horo.torch.arrays import DTYPES, in_one_piece


class Contents:
    """A gradient travels as it is, made dense if that was asked for, or as a compressor of the user's own makes it."""

    def __init__(self, compressor, sparse_as_dense):
        """compressor: or None."""
        self.compressor = compressor
        self._sparse_as_dense = sparse_as_dense

    def densely(self, slot, gradient):
        """The gradient that is to be reduced, made dense if that was asked for."""
        if self._sparse_as_dense and gradient.layout is torch.sparse_coo:
            gradient = slot.param.grad = gradient.to_dense()
        return gradient

    def memory_of(self, slot, gradient, session):
        """What travels of a gradient, in one piece: itself, or a copy, or what the compressor makes of it."""
        if slot.view is not None:
            return gradient if slot.is_at_home(gradient) else slot.bring_home(gradient)
        memory = gradient
        if self.compressor is not None:
            memory, slot.context = self.compressor.compress(gradient)
            spec = slot.spec._replace(dtype=DTYPES[memory.dtype], shape=tuple(memory.shape))
            slot.spec, slot.key = spec, session.key(spec)
        return in_one_piece(memory.detach())

    def part_of(self, slot, session, passes):
        """What travels of a gradient as one part of a unit, and its memory; absent and None where this rank has none.
        passes: backward passes per step."""
        if not slot.has_gradient(passes):
            spare = self.spare_of(slot, session)
            return (slot.spec, None, spare.data_ptr(), spare), None
        gradient = self.densely(slot, slot.param.grad)
        slot.check(gradient)
        memory = self.memory_of(slot, gradient, session)
        address = memory.data_ptr()
        return (slot.spec, address, address, (memory, memory.untyped_storage())), memory

    def spare_of(self, slot, session):
        """Memory for what the others have: the view, or kept for another time, as mostly nobody has anything."""
        if slot.view is not None:
            return slot.view.detach()
        if slot.spare is None:
            memory = self.memory_of(slot, torch.zeros(slot.shape, dtype=slot.dtype, device="cpu"), session)
            slot.spare = memory, slot.context
        memory, slot.context = slot.spare
        return memory

    def deliver(self, slot, session):
        """What was submitted has been reduced: leaves the result in the parameter's gradient."""
        if slot.sparse is not None:
            slot.param.grad = synchronize(slot.sparse)
            return
        if self.compressor is None and slot.has_its_result():
            return
        absent = slot.memory is None
        if absent:
            if session.result(slot.work).absent:
                if slot.is_at_home(slot.param.grad):  # zeros that stood for none
                    slot.param.grad = None
                return
            memory = self.spare_of(slot, session)
        else:
            slot.check_memory()
            memory = slot.memory
        value = memory if self.compressor is None else self.compressor.decompress(memory, slot.context)
        gradient = slot.param.grad
        if gradient is None:  # absent, or somebody forgot it since
            slot.param.grad = value
        elif gradient is not value and not (absent and slot.is_at_home(gradient)):
            with torch.no_grad():
                gradient.copy_(value)
        if absent:
            slot.spare = None  # last: after an interrupt this comes again
