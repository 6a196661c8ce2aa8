# ruff: noqa: F401, F403
"""horo for NumPy: collectives on arrays, with the names of horo.torch. torch is not required.

    import horo.numpy as horo

    horo.init()
    total = horo.allreduce(array, op=horo.Sum)

Arrays are NumPy's, or objects that share their memory through DLPack or __array__. Results are NumPy arrays, which
other libraries accept through DLPack. In-place forms require writable memory.
"""

import sys as _sys

try:
    import numpy as _numpy
except ImportError as error:
    raise ImportError("horo.numpy needs NumPy: pip install numpy") from error

from horo import _hints, init
from horo._collectives import Collectives as _Collectives
from horo._compression import Codec, Compression, Compressor
from horo._custom import register_op as _register_op
from horo._exports import *
from horo.numpy.arrays import DTYPES as _DTYPES
from horo.numpy.arrays import NumpyArrays as _NumpyArrays

_collectives = _Collectives(_NumpyArrays())
allreduce = _collectives.allreduce
allreduce_ = _collectives.allreduce_
allreduce_async = _collectives.allreduce_async
allreduce_async_ = _collectives.allreduce_async_
grouped_allreduce = _collectives.grouped_allreduce
grouped_allreduce_ = _collectives.grouped_allreduce_
grouped_allreduce_async = _collectives.grouped_allreduce_async
grouped_allreduce_async_ = _collectives.grouped_allreduce_async_
allgather = _collectives.allgather
allgather_async = _collectives.allgather_async
grouped_allgather = _collectives.grouped_allgather
grouped_allgather_async = _collectives.grouped_allgather_async
broadcast = _collectives.broadcast
broadcast_ = _collectives.broadcast_
broadcast_async = _collectives.broadcast_async
broadcast_async_ = _collectives.broadcast_async_
alltoall = _collectives.alltoall
alltoall_async = _collectives.alltoall_async
reducescatter = _collectives.reducescatter
reducescatter_async = _collectives.reducescatter_async
grouped_reducescatter = _collectives.grouped_reducescatter
grouped_reducescatter_async = _collectives.grouped_reducescatter_async
reduce = _collectives.reduce
reduce_async = _collectives.reduce_async
gather = _collectives.gather
gather_async = _collectives.gather_async
scatter = _collectives.scatter
scatter_async = _collectives.scatter_async
send = _collectives.send
send_async = _collectives.send_async
recv = _collectives.recv
recv_async = _collectives.recv_async
barrier = _collectives.barrier
barrier_async = _collectives.barrier_async
join = _collectives.join
join_async = _collectives.join_async

_BY_NUMBER = {number: dtype for dtype, number in _DTYPES.items()}


def register_op(name, combine, *, whole=False):
    """horo.register_op with NumPy arrays: combine(accumulator, value) writes its result into accumulator."""

    def on_arrays(accumulator, value, dtype):
        combine(*(_numpy.frombuffer(memory, _BY_NUMBER[dtype]) for memory in (accumulator, value)))

    return _register_op(name, on_arrays, whole=whole)


def __getattr__(name):
    raise _hints.attribute_error(__name__, name, globals())


if "horo.torch.tracing" in _sys.modules:  # else horo.torch hides this module when it is imported
    _sys.modules["horo.torch.tracing"].hide(_sys.modules[__name__])
