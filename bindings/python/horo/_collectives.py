"""Every collective in all of its forms: the blocking forms are made from the asynchronous forms."""

import functools
import inspect

from horo._compression import NoneCompressor, all_converted, all_through, converted, through
from horo._handles import synchronize
from horo._rooted import Rooted
from horo._sets import global_process_set

_ASYNC_ONLY = ("priority", "with_rows", "rows", "out")  # keyword arguments that the blocking forms do not take


def _signature(start, compression_after, async_only):
    """The signature of the blocking form of `start`. compression_after: the parameter that `compression` follows where
    its place differs from that in `start`, else None. async_only: parameters that it does not have."""
    parameters = [each for each in inspect.signature(start).parameters.values() if each.name not in async_only]
    if compression_after is not None:
        parameters = [each for each in parameters if each.name != "compression"]
        place = [each.name for each in parameters].index(compression_after) + 1
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.insert(place, inspect.Parameter("compression", kind, default=NoneCompressor))
    return inspect.Signature(parameters)


def _blocking_form_of(start, compression_after=None, async_only=_ASYNC_ONLY):
    """A decorator of call(self, ..., *args, **options): gives it the signature that _signature() makes, and refuses
    keyword arguments that are not in it."""
    signature = _signature(start, compression_after, async_only)
    names = signature.parameters.keys()

    def decorate(call):
        @functools.wraps(call)
        def form(self, *args, **options):
            if not options.keys() <= names:
                signature.bind(self, *args, **options)  # raises TypeError
            return call(self, *args, **options)

        form.__signature__ = signature
        return form

    return decorate


def _blocking(start, doc):
    """The blocking form of `start`, with the same arguments."""

    def call(self, *args, **options):
        return synchronize(start(self, *args, **options))

    call.__name__ = start.__name__.replace("_async", "")
    call.__qualname__ = f"Collectives.{call.__name__}"
    call.__doc__ = doc
    return _blocking_form_of(start)(call)


class Collectives(Rooted):
    """The blocking forms wait for the result. A signal handler can interrupt the wait; the collective continues."""

    @_blocking_form_of(Rooted.allreduce_async, compression_after="name")
    def allreduce(self, tensor, average=None, name=None, compression=NoneCompressor, *args, **options):
        """postscale * op over ranks of (prescale * tensor), as a new tensor. The op is Average by default."""

        def reduced(tensor, compression):
            return synchronize(self.allreduce_async(tensor, average, name, *args, compression=compression, **options))

        return through(compression, tensor, reduced)

    allreduce_ = _blocking(
        Rooted.allreduce_async_,
        """allreduce whose result replaces the tensor's values. Not differentiable.""",
    )

    @_blocking_form_of(Rooted.grouped_allreduce_async, compression_after="name")
    def grouped_allreduce(self, tensors, average=None, name=None, compression=NoneCompressor, *args, **options):
        """allreduce of several tensors as one unit: all of them are reduced, or all fail."""

        def reduced(tensors, compression):
            options["compression"] = compression
            return synchronize(self.grouped_allreduce_async(tensors, average, name, *args, **options))

        return all_through(compression, tensors, reduced)

    grouped_allreduce_ = _blocking(
        Rooted.grouped_allreduce_async_,
        """grouped_allreduce whose results replace the tensors' values.""",
    )
    allgather = _blocking(
        Rooted.allgather_async,
        """All ranks' tensors, concatenated along the first dimension. Only the first dimensions may differ.""",
    )
    grouped_allgather = _blocking(
        Rooted.grouped_allgather_async,
        """allgather of several tensors as one unit: all of them are gathered, or all fail.""",
    )
    broadcast = _blocking(
        Rooted.broadcast_async,
        """root_rank's tensor, on every rank, as a new tensor.""",
    )
    broadcast_ = _blocking(
        Rooted.broadcast_async_,
        """broadcast whose result replaces the tensor's values. Not differentiable.""",
    )
    alltoall = _blocking(
        Rooted.alltoall_async,
        """splits[i] rows of the tensor, in their order, go to member i; the result is the received rows, by member.

        Without splits every member gets the same number of rows. With splits the result is a pair: the tensor, and the
        number of rows from each member.""",
    )

    @_blocking_form_of(Rooted.reducescatter_async, "name", (*_ASYNC_ONLY, "splits", "order"))
    def reducescatter(self, tensor, name=None, compression=NoneCompressor, *args, **options):
        """This rank's rows of the reduction over ranks; the first rows % size ranks get one row more. Average, Sum."""

        def scattered(tensor):
            return synchronize(self.reducescatter_async(tensor, name, *args, **options))

        return converted(compression, tensor, "reducescatter", scattered)

    @_blocking_form_of(Rooted.grouped_reducescatter_async, compression_after="name")
    def grouped_reducescatter(self, tensors, name=None, compression=NoneCompressor, *args, **options):
        """reducescatter of several tensors as one unit: all of them are reduced, or all fail."""

        def scattered(tensors):
            return synchronize(self.grouped_reducescatter_async(tensors, name, *args, **options))

        return all_converted(compression, tensors, "grouped_reducescatter", scattered)

    reduce = _blocking(
        Rooted.reduce_async,
        """allreduce whose result only root_rank gets; None on the other ranks.""",
    )
    gather = _blocking(
        Rooted.gather_async,
        """On root_rank all ranks' tensors, concatenated along the first dimension; None on the other ranks.

        Only the first dimensions may differ.""",
    )
    scatter = _blocking(
        Rooted.scatter_async,
        """splits[i] rows of root_rank's tensor, in their order, go to member i.

        Without splits the rows are dealt evenly: the first rows % size members get one row more. The other ranks'
        splits are ignored; of their tensors only the dtype and the shape of a row are used.""",
    )
    send = _blocking(
        Rooted.send_async,
        """Sends the tensor to a rank that receives one of the same name, dtype and shape; returns when it has it.""",
    )
    recv = _blocking(
        Rooted.recv_async,
        """Receives the tensor that rank `source` sends under this name, into `tensor`, and returns it.""",
    )
    barrier = _blocking(
        Rooted.barrier_async,
        """Returns after all ranks have called it. Does not wait for other works.""",
    )

    def join(self, device=-1, *, process_set=global_process_set):
        """This rank has no more data. Waits until all ranks have joined; returns the rank that joined last.

        Until then allreduces and barriers of the other ranks run without this rank, as if it contributed zeros: an
        average still divides by the size of the set. Their other collectives fail. device is accepted for older
        scripts."""
        del device
        return synchronize(self.join_async(process_set))
