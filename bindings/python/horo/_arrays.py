"""The interface between the collectives and a framework's arrays; horo.numpy and horo.torch implement it."""

import ctypes


class Arrays:
    """Arguments named `array` are results of take()."""

    def take(self, tensor, call):
        """The caller's tensor as an array of this framework, and its dtype's number.

        Raises TypeError, ValueError or NotImplementedError, with the name of the call, if it cannot be sent."""
        raise NotImplementedError

    def readable(self, array):
        """Contiguous memory that holds the values: the array's own, or a copy."""
        raise NotImplementedError

    def writable(self, array, tensor, name):
        """Memory for a result that replaces the tensor's values, and finish(pending), which stores the result in the
        tensor and returns the tensor. Raises ValueError if the tensor's values cannot be replaced."""
        raise NotImplementedError

    def hold_alike(self, tensor):
        """The fast path of a call that is repeated every step: a function hold(other), or None.

        hold(other) returns the object that keeps the memory of `other` alive if `other` has the dtype and shape of
        `tensor` and take() and writable() would return `other` itself, else None. The result of hold_alike() is None
        if they would not return `tensor` itself."""
        return None

    def written(self, tensor):
        """Records that the tensor has new values. Called only for tensors whose hold_alike() is not None."""

    def is_plain(self, array, tensor):
        """Whether a result can be written into the memory of `tensor`, of which take() made the array."""
        raise NotImplementedError

    def place_text(self, array):
        """Where the array is and of which dtype, for messages. Equal texts: results of one can be written into the
        other."""
        raise NotImplementedError

    def room(self, out, array, call):
        """The memory of out=, an array. Raises TypeError or ValueError if a result like `array` does not fit into
        it."""
        memory, _ = self.take(out, f"{call}: out")
        here, there = self.place_text(memory), self.place_text(array)
        if here != there:
            raise ValueError(f"horo.{call}: out is of {here}, the tensor of {there}; expected the same of both")
        if not self.is_plain(memory, out):
            raise ValueError(f"horo.{call}: out is not contiguous memory that can be written, as of torch.empty()")
        return memory

    def empty(self, shape, array):
        """New contiguous memory of the array's dtype."""
        raise NotImplementedError

    def fill(self, array, result, session, work):
        """Copies a work's result, which is not empty, into contiguous memory of the array. The work may be released
        then."""
        ctypes.memmove(self.place(array), result.data, result.bytes)

    def place(self, memory):
        """The address of the memory."""
        raise NotImplementedError

    def holder(self, memory):
        """The object that keeps the memory alive even if the array is assigned other memory."""
        raise NotImplementedError

    def counts(self, rows):
        """Row counts as an array of the framework."""
        raise NotImplementedError
