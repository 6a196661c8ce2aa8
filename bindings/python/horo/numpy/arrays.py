"""NumPy arrays, and objects with __dlpack__ or __array__, which NumPy can view without a copy."""

import numpy

from horo import _specs
from horo._arrays import Arrays
from horo.errors import not_yet

# bfloat16 and float8 are dtypes of the package ml_dtypes; NumPy finds them by name only after its import.
_BEYOND = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
_CPU = (1, 3)  # kDLCPU, kDLCUDAHost: memory that the CPU can read


def _known_dtypes():
    try:
        import ml_dtypes
    except ImportError:
        beyond = {}
    else:
        beyond = {name: numpy.dtype(getattr(ml_dtypes, name)) for name in _BEYOND}
    plain = {name: numpy.dtype(name) for name in _specs.DTYPES if name not in _BEYOND}
    return {dtype: _specs.DTYPES[name] for name, dtype in (plain | beyond).items()}


DTYPES = _known_dtypes()


def _refused(call, dtype):
    names = ", ".join(dtype.name for dtype in DTYPES)
    more = "" if _BEYOND[0] in names else f"; {', '.join(_BEYOND)} need the package ml_dtypes"
    return ValueError(f"horo.{call}: arrays of {dtype} are not supported; expected one of {names}{more}")


def as_array(tensor, call):
    """A NumPy array of the same memory."""
    if isinstance(tensor, numpy.ma.MaskedArray):
        raise ValueError(f"horo.{call}: a masked array; its mask would be lost. Expected filled() values")
    if isinstance(tensor, numpy.ndarray):
        return tensor
    if hasattr(tensor, "__dlpack__"):
        if hasattr(tensor, "__dlpack_device__") and tensor.__dlpack_device__()[0] not in _CPU:
            raise not_yet(
                f"horo.{call} of an array that is not in CPU memory; pass a copy that is, as of numpy.asarray()"
            )
        try:
            return numpy.from_dlpack(tensor)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            if not hasattr(tensor, "__array__"):
                raise ValueError(f"horo.{call}: NumPy cannot take this {type(tensor).__name__}: {error}") from error
    if hasattr(tensor, "__array__"):
        try:
            return numpy.asarray(tensor)
        except (RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"horo.{call}: NumPy cannot take this {type(tensor).__name__}: {error}") from error
    raise TypeError(
        f"horo.{call}: expected a NumPy array, or an object with __dlpack__ or __array__, not a {type(tensor).__name__}"
        + ("; numpy.array(values) makes one" if isinstance(tensor, (int, float, complex, list, tuple)) else "")
    )


def _is_its_memory(array, tensor):
    """Whether array is a view of tensor: a second view has the same address, a second copy has not."""
    if array is tensor:
        return True
    return as_array(tensor, "in place").ctypes.data == array.ctypes.data


class NumpyArrays(Arrays):
    """See Arrays."""

    def take(self, tensor, call):
        array = as_array(tensor, call)
        dtype = DTYPES.get(array.dtype)
        if dtype is None:
            raise _refused(call, array.dtype)
        return array, dtype

    def readable(self, array):
        in_one_piece = array.flags.c_contiguous and array.flags.aligned
        return array if in_one_piece else numpy.array(array, order="C")

    def is_plain(self, array, tensor):
        flags = array.flags
        return flags.c_contiguous and flags.aligned and flags.writeable and _is_its_memory(array, tensor)

    def place_text(self, array):
        return str(array.dtype)

    def writable(self, array, tensor, name):
        name = name or "an unnamed array"
        if not _is_its_memory(array, tensor):
            raise ValueError(
                f"{name}: NumPy makes a copy of this {type(tensor).__name__}, so that its values cannot be replaced; "
                "use the form that makes a new array, or pass a numpy.ndarray"
            )
        if not array.flags.writeable:
            raise ValueError(f"{name}: it cannot be written; use the form that makes a new array, or copy() it first")
        if array.size and any(stride == 0 and size > 1 for stride, size in zip(array.strides, array.shape)):
            raise ValueError(
                f"{name}: its elements share memory (a broadcast array), so that they cannot be replaced; use the form "
                "that makes a new array, or copy() it first"
            )
        memory = self.readable(array)

        def finish(_):
            if memory is not array:
                array[...] = memory
            return tensor

        return memory, finish

    def empty(self, shape, array):
        return numpy.empty(shape, array.dtype)

    def place(self, memory):
        return memory.ctypes.data

    def holder(self, memory):
        return memory.base

    def counts(self, rows):
        return numpy.array(rows, numpy.int64)
