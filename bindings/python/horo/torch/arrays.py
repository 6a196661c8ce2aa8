"""Torch tensors as arguments and results of collectives."""

import ctypes
import functools

import torch
from torch.nn.parameter import UninitializedTensorMixin

from horo import _hints, _specs
from horo._arrays import Arrays
from horo.errors import not_yet
from horo.torch import devices

# The dtypes of which the installed torch has a type.
DTYPES = {getattr(torch, name): number for name, number in _specs.DTYPES.items() if hasattr(torch, name)}


# Of a lazy module, such as LazyLinear, that has not seen an input.
UNINITIALIZED = "it has no shape yet, as it belongs to a lazy module: run one forward pass on all ranks first"


def _remedy(tensor):
    if tensor.is_meta:
        return ", and a meta tensor has no values: model.to_empty(device='cpu') makes room for them"
    return ": call it with tensor.cpu(), and copy the result back"


class TorchArrays(Arrays):
    """See Arrays."""

    def take(self, tensor, call):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"horo.{call}: expected a torch.Tensor, not a {type(tensor).__name__}{_hints.instead_of(tensor)}"
            )
        if isinstance(tensor, UninitializedTensorMixin):
            raise ValueError(f"horo.{call}: {UNINITIALIZED}")
        dtype = DTYPES.get(tensor.dtype)
        if dtype is None:
            names = ", ".join(str(name).removeprefix("torch.") for name in DTYPES)
            raise ValueError(f"horo.{call}: tensors of {tensor.dtype} are not supported; expected one of {names}")
        if not devices.is_known(tensor):
            raise not_yet(
                f"horo.{call} of a tensor on {tensor.device}; this version moves tensors of CPUs and CUDA devices"
                f"{_remedy(tensor)}"
            )
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
            # A tensor that was made in inference mode can be written there alone.
            with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
                tensor.copy_(buffer)
                # Their memory may belong to another stream than the current one, which may not have copied yet.
                devices.hold(buffer)
                devices.hold(tensor)
            return tensor

        return buffer, copy_back

    def hold_alike(self, tensor):
        if not devices.is_host(tensor) or not lies_plainly(tensor):
            return None
        return storage_getter(tensor.dtype, tensor.shape)

    def is_plain(self, array, tensor):
        return lies_plainly(array)

    def place_text(self, array):
        return f"{array.dtype} on {array.device}"

    written = staticmethod(torch.autograd.graph.increment_version)

    def empty(self, shape, array):
        return torch.empty(shape, dtype=array.dtype, device=array.device)

    def fill(self, array, result, session, work):
        if devices.is_host(array):
            return super().fill(array, result, session, work)
        if result.data is None:
            return session.copy_result(work, devices.address_of(array))
        memory = torch.frombuffer((ctypes.c_char * result.bytes).from_address(result.data), dtype=array.dtype)
        devices.copy_from_host(array, memory.view(array.shape))

    place = staticmethod(devices.address_of)
    # The storage is held too: a tensor that gets another storage releases the old one, which may be in flight.
    holder = staticmethod(torch.Tensor.untyped_storage)

    def counts(self, rows):
        return torch.tensor(rows, dtype=torch.int32, device="cpu")


def lies_plainly(tensor):
    """Whether the tensor is contiguous, and its memory, on the host or a device, holds the values themselves: not their
    conjugates or negatives."""
    if tensor.layout is not torch.strided or not devices.is_known(tensor) or not tensor.is_contiguous():
        return False
    return not is_lazy(tensor, tensor.untyped_storage())


def is_lazy(tensor, storage):
    """Whether the tensor's values are the conjugates or negatives of the values in its storage.

    is_conj() and is_neg() release the interpreter lock, which another Python thread can then hold for milliseconds. So
    they are called only for tensors that can be lazy: complex ones, and parts of a larger storage, as x.conj().imag."""
    if tensor.nbytes == storage.nbytes() and not tensor.dtype.is_complex:
        return False
    return tensor.is_conj() or tensor.is_neg()


def is_shared(tensor, storage):
    """Whether anything else holds the tensor's memory: another tensor, a view, a backward that still reads it. Of an
    ordinary gradient the tensor and the given storage object are the only holders."""
    return storage.nbytes() != tensor.nbytes or torch._C._storage_Use_Count(storage._cdata) > 2


@functools.lru_cache(1024)
def storage_getter(dtype, shape):
    """Returns a function of a tensor. It returns the tensor's storage if the tensor has this dtype and shape and can be
    submitted as it is (see lies_plainly), else None."""
    whole = -1 if dtype.is_complex else dtype.itemsize * shape.numel()  # a storage of this size holds one tensor only
    kind, strided = torch.Tensor, torch.strided

    def storage_of(tensor):
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

    return storage_of


def no_storage(_):
    """A storage_getter for tensors of which none is submitted as it is."""
    return None


def in_one_piece(tensor):
    """Returns a contiguous tensor whose memory holds the values: the tensor itself, or a copy."""
    return tensor.resolve_conj().resolve_neg().contiguous()
