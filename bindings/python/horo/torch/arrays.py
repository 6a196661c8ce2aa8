"""Torch tensors as the collectives see them."""

import functools
import operator

import torch

from horo import _specs
from horo._arrays import Arrays
from horo.errors import not_yet

# A dtype that this torch does not have is not missed.
DTYPES = {getattr(torch, name): number for name, number in _specs.DTYPES.items() if hasattr(torch, name)}


class TorchArrays(Arrays):
    """See Arrays."""

    def take(self, tensor, call):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"horo.{call}: expected a torch.Tensor, not a {type(tensor).__name__}")
        dtype = DTYPES.get(tensor.dtype)
        if dtype is None:
            names = ", ".join(str(name).removeprefix("torch.") for name in DTYPES)
            raise ValueError(f"horo.{call}: tensors of {tensor.dtype} are not supported; expected one of {names}")
        if not tensor.is_cpu:
            raise not_yet(f"horo.{call} of a tensor on {tensor.device}; this version moves CPU tensors")
        if tensor.layout is not torch.strided:
            raise not_yet(
                f"horo.{call} of a {tensor.layout} tensor; this version moves dense tensors, and sums sparse ones with "
                "sparse_allreduce_async"
            )
        return tensor, dtype

    def readable(self, array):
        return in_one_piece(array.detach())

    def writable(self, array, tensor, name):
        if lies_plainly(array):

            def finish(_):
                self.written(array)
                return tensor

            return array, finish
        if any(stride == 0 and size > 1 for stride, size in zip(array.stride(), array.shape)):
            raise ValueError(
                f"{name or 'an unnamed tensor'}: its elements share memory (an expand()ed tensor), so that they cannot "
                "be replaced; use allreduce_async or broadcast_async, which make a new tensor, or clone() it first"
            )
        buffer = in_one_piece(array.detach())

        def copy_back(_):
            with torch.no_grad():
                tensor.copy_(buffer)
            return tensor

        return buffer, copy_back

    def hold_alike(self, tensor):
        return holder_of(tensor.dtype, tensor.shape) if lies_plainly(tensor) else None

    written = staticmethod(torch.autograd.graph.increment_version)

    def empty(self, shape, array):
        return torch.empty(shape, dtype=array.dtype, device="cpu")

    place = staticmethod(torch.Tensor.data_ptr)
    # A tensor that is given another storage lets go of the old one, which is in flight.
    holder = staticmethod(torch.Tensor.untyped_storage)

    def counts(self, rows):
        return torch.tensor(rows, dtype=torch.int32, device="cpu")


def lies_plainly(tensor):
    """It is on the CPU, and its memory holds the values in one piece: not their conjugates or negatives."""
    if tensor.layout is not torch.strided or not tensor.is_cpu or not tensor.is_contiguous():
        return False
    return not is_lazy(tensor, tensor.untyped_storage())


def is_lazy(tensor, storage):
    """It stands for the conjugates or negatives of what its storage holds.

    is_neg() and its like give up the interpreter lock, which a busy thread then keeps for milliseconds. So they are
    asked of tensors alone that could be lazy: complex ones, and parts of another's memory, as x.conj().imag is."""
    if tensor.nbytes == storage.nbytes() and not tensor.dtype.is_complex:
        return False
    return tensor.is_conj() or tensor.is_neg()


@functools.lru_cache(1024)
def holder_of(dtype, shape):
    """hold(tensor): the storage of a tensor that has this dtype and shape and lies plainly, else None."""
    whole = -1 if dtype.is_complex else dtype.itemsize * shape.numel()  # a storage of so many bytes holds no more
    kind, strided = torch.Tensor, torch.strided

    def hold(tensor):
        if (
            isinstance(tensor, kind)
            and tensor.dtype is dtype
            and tensor.shape == shape
            and tensor.layout is strided
            and tensor.is_cpu
            and tensor.is_contiguous()
        ):
            storage = tensor.untyped_storage()
            if storage.nbytes() == whole or not is_lazy(tensor, storage):
                return storage
        return None

    return hold


_LOOK = operator.attrgetter("dtype", "shape", "layout", "is_cpu", "requires_grad")


def look_of(tensor):
    """How a gradient of the tensor looks that is as it should be."""
    return tensor.dtype, tensor.shape, torch.strided, True, False


def places_of(gradients, looks, nbytes):
    """The storages and addresses of gradients of real numbers that look so, have so many bytes and lie plainly; None if
    one of them does not, or is None."""
    try:
        if list(map(_LOOK, gradients)) != looks:
            return None
    except AttributeError:  # of None
        return None
    if not all(map(torch.Tensor.is_contiguous, gradients)):
        return None
    storages = list(map(torch.Tensor.untyped_storage, gradients))
    if list(map(torch.UntypedStorage.nbytes, storages)) == nbytes:
        return storages, list(map(torch.UntypedStorage.data_ptr, storages))
    return None if any(map(is_lazy, gradients, storages)) else (storages, addresses_of(gradients))


def addresses_of(tensors):
    return list(map(torch.Tensor.data_ptr, tensors))


_VERSION = operator.attrgetter("_version")


def versions_of(tensors):
    """How often each one's memory was written to, as autograd counts it; those made in inference mode it does not."""
    try:
        return list(map(_VERSION, tensors))
    except RuntimeError:
        return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


def holder_of_none(_):
    """hold(tensor) where each tensor goes the long way."""
    return None


def in_one_piece(tensor):
    """Memory that holds the values: the tensor's own, or a copy."""
    return tensor.resolve_conj().resolve_neg().contiguous()
