"""Every collective in all of its forms: beside the asynchronous ones those that wait for the result."""

from horo._compression import NoneCompressor, all_through, through
from horo._handles import synchronize
from horo._rooted import Rooted
from horo._sets import global_process_set
from horo._specs import Average


class Collectives(Rooted):
    """The forms that wait. They can be interrupted; the work goes on then."""

    def allreduce(
        self,
        tensor,
        average=None,
        name=None,
        compression=NoneCompressor,
        op=None,
        prescale_factor=1.0,
        postscale_factor=1.0,
        process_set=global_process_set,
        *,
        order="canonical",
    ):
        """postscale * op over ranks of (prescale * tensor), as a new tensor. Average unless op says otherwise."""
        options = (op, prescale_factor, postscale_factor, process_set)

        def reduced(tensor, compression):
            return synchronize(
                self.allreduce_async(tensor, average, name, *options, order=order, compression=compression)
            )

        return through(compression, tensor, reduced)

    def allreduce_(
        self,
        tensor,
        average=None,
        name=None,
        op=None,
        prescale_factor=1.0,
        postscale_factor=1.0,
        process_set=global_process_set,
        *,
        order="canonical",
        compression=NoneCompressor,
    ):
        """allreduce whose result replaces the tensor's values; no gradient passes through it."""
        options = (op, prescale_factor, postscale_factor, process_set)
        return synchronize(self.allreduce_async_(tensor, average, name, *options, order=order, compression=compression))

    def grouped_allreduce(
        self,
        tensors,
        average=None,
        name=None,
        compression=NoneCompressor,
        op=None,
        prescale_factor=1.0,
        postscale_factor=1.0,
        process_set=global_process_set,
        *,
        order="canonical",
    ):
        """allreduce of several tensors as one unit: all of them are reduced, or all fail."""
        options = (op, prescale_factor, postscale_factor, process_set)

        def reduced(tensors, compression):
            return synchronize(
                self.grouped_allreduce_async(tensors, average, name, *options, order=order, compression=compression)
            )

        return all_through(compression, tensors, reduced)

    def grouped_allreduce_(
        self,
        tensors,
        average=None,
        name=None,
        op=None,
        prescale_factor=1.0,
        postscale_factor=1.0,
        process_set=global_process_set,
        *,
        order="canonical",
        compression=NoneCompressor,
    ):
        """grouped_allreduce whose results replace the tensors' values."""
        options = (op, prescale_factor, postscale_factor, process_set)
        return synchronize(
            self.grouped_allreduce_async_(tensors, average, name, *options, order=order, compression=compression)
        )

    def allgather(self, tensor, name=None, process_set=global_process_set):
        """All ranks' tensors, concatenated along the first dimension, in which they may differ."""
        return synchronize(self.allgather_async(tensor, name, process_set))

    def grouped_allgather(self, tensors, name=None, process_set=global_process_set):
        """allgather of several tensors as one unit: all of them are gathered, or all fail."""
        return synchronize(self.grouped_allgather_async(tensors, name, process_set))

    def broadcast(self, tensor, root_rank, name=None, process_set=global_process_set):
        """root_rank's tensor, on every rank, as a new tensor."""
        return synchronize(self.broadcast_async(tensor, root_rank, name, process_set))

    def broadcast_(self, tensor, root_rank, name=None, process_set=global_process_set):
        """broadcast whose result replaces the tensor's values; no gradient passes through it."""
        return synchronize(self.broadcast_async_(tensor, root_rank, name, process_set))

    def alltoall(self, tensor, splits=None, name=None, process_set=global_process_set):
        """splits[i] rows of the tensor, in their order, go to member i; the result is what came, by member.

        Without splits every member gets the same number of rows. With them the result is a pair, of the tensor and how
        many rows came from each member."""
        return synchronize(self.alltoall_async(tensor, splits, name, process_set))

    def reducescatter(
        self,
        tensor,
        name=None,
        compression=NoneCompressor,
        op=Average,
        process_set=global_process_set,
        prescale_factor=1.0,
        postscale_factor=1.0,
    ):
        """This rank's rows of the reduction over ranks; the first rows % size ranks have one row more. Average or Sum."""
        options = (op, process_set, prescale_factor, postscale_factor)
        small, ctx = casting(compression, "reducescatter").compress(tensor)
        return compression.decompress(synchronize(self.reducescatter_async(small, name, *options)), ctx)

    def grouped_reducescatter(
        self,
        tensors,
        name=None,
        compression=NoneCompressor,
        op=Average,
        process_set=global_process_set,
        prescale_factor=1.0,
        postscale_factor=1.0,
    ):
        """reducescatter of several tensors as one unit: all of them are reduced, or all fail."""
        options = (op, process_set, prescale_factor, postscale_factor)
        compressor = casting(compression, "grouped_reducescatter")
        small = [compressor.compress(tensor) for tensor in tensors]
        results = synchronize(self.grouped_reducescatter_async([tensor for tensor, _ in small], name, *options))
        return [compression.decompress(result, ctx) for result, (_, ctx) in zip(results, small)]

    def reduce(
        self,
        tensor,
        root_rank,
        name=None,
        op=None,
        prescale_factor=1.0,
        postscale_factor=1.0,
        process_set=global_process_set,
        *,
        order="canonical",
    ):
        """allreduce whose result root_rank alone gets; None elsewhere."""
        options = (name, op, prescale_factor, postscale_factor, process_set)
        return synchronize(self.reduce_async(tensor, root_rank, *options, order=order))

    def gather(self, tensor, root_rank, name=None, process_set=global_process_set):
        """All ranks' tensors, concatenated along the first dimension, in which they may differ, on root_rank; None
        elsewhere."""
        return synchronize(self.gather_async(tensor, root_rank, name, process_set))

    def scatter(self, tensor, root_rank, splits=None, name=None, process_set=global_process_set):
        """splits[i] rows of root_rank's tensor, in their order, go to member i. Without splits they are dealt evenly,
        and the first members get the rows that are left.

        On the other ranks splits are not read, and of the tensor only its dtype and the shape of a row."""
        return synchronize(self.scatter_async(tensor, root_rank, splits, name, process_set))

    def send(self, tensor, destination, name=None, process_set=global_process_set):
        """Sends the tensor to a rank that receives one of the same name, dtype and shape; returns when it has it."""
        return synchronize(self.send_async(tensor, destination, name, process_set))

    def recv(self, tensor, source, name=None, process_set=global_process_set):
        """Receives what a rank sends under this name, into the tensor, and returns it."""
        return synchronize(self.recv_async(tensor, source, name, process_set))

    def barrier(self, process_set=global_process_set):
        """Returns once all ranks have called it. Does not wait for other works."""
        return synchronize(self.barrier_async(process_set))

    def join(self, device=-1, *, process_set=global_process_set):
        """This rank has no more data: returns, once all ranks have said so, the last one that did.

        Until then the others' allreduces and barriers go on without it, as if it gave zeros: an average still divides
        by the size of the set. Their other collectives fail. device is accepted for older scripts."""
        del device
        return synchronize(self.join_async(process_set))


def casting(compression, call):
    """The compressor, for collectives that no codec works in."""
    if not hasattr(compression, "compress"):
        raise ValueError(f"horo.{call}: compression={compression!r} is for allreduce; expected Compression.none")
    return compression
