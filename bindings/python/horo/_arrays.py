"""What the collectives need to know of a framework's arrays; horo.numpy and horo.torch fill it in."""


class Arrays:
    """Every array that a method below gets came from take()."""

    def take(self, tensor, call):
        """The caller's tensor as an array of this framework, and its dtype's number. Raises TypeError, ValueError or
        NotImplementedError, naming the call, where it cannot be moved."""
        raise NotImplementedError

    def readable(self, array):
        """Memory that holds the values in one piece: the array's own, or a copy."""
        raise NotImplementedError

    def writable(self, array, tensor, name):
        """Memory for a result that is to become the tensor's values, and finish(pending), which makes it so and
        returns the tensor. ValueError where it cannot."""
        raise NotImplementedError

    def hold_alike(self, tensor):
        """Of a tensor that take() and writable() would give themselves: hold(other), which is what keeps the memory of
        another one of its dtype and shape alive, or None where they would not give that one itself. None for others.
        The short way of a call that comes back every step."""
        return None

    def written(self, tensor):
        """The tensor has new values; hold_alike() was not None."""

    def empty(self, shape, array):
        """New memory in one piece, of the array's dtype."""
        raise NotImplementedError

    def place(self, memory):
        """Its address."""
        raise NotImplementedError

    def holder(self, memory):
        """What keeps the memory alive even if the array is given other memory."""
        raise NotImplementedError

    def counts(self, rows):
        """Numbers of rows, as the framework's array."""
        raise NotImplementedError
