"""The asynchronous forms of the collectives, on the arrays of any framework: each submits a spec, made of its
arguments, with the memory of its tensors.

As in Horovod, rank arguments are numbers in the world, also for process sets.
"""

from horo import _default, _native
from horo._checks import (
    check_out,
    check_rows,
    check_splits,
    factors_of,
    known_rows,
    numbers_of,
    own_rows,
    splits_of_all,
)
from horo._compression import NoneCompressor, wire_codec
from horo._handles import handle_of
from horo._in_place import InPlace, check_apart
from horo._repeats import Repeat
from horo._sets import global_process_set, number_of
from horo._specs import (
    Average,
    Spec,
    Sum,
    choose_op,
    is_no_name,
    op_fields,
    op_name,
    order_number,
    priority_number,
)


def nothing(_):
    return None


class Starts:
    """The asynchronous forms. Each returns a handle without waiting; synchronize(handle) returns the result."""

    def __init__(self, arrays):
        self.arrays = arrays
        self._options = None  # of the last Repeat; Repeats with equal options share them
        self._in_place = InPlace()

    def _start(self, spec, data_in, data_out, finish, splits=None, out_bytes=0):
        session = _default.session()
        place = self.arrays.place
        memory = data_out if data_in is None else data_in
        if memory is None:
            return handle_of(session, [session.submit(spec, None, None, None)], finish)
        read = address = place(memory)
        if data_in is None:
            read = None
        if data_out is memory:
            written = address
        else:
            written = None if data_out is None else place(data_out)
        work = session.submit(spec, read, written, (memory, self.arrays.holder(memory), data_out), splits, out_bytes)
        watched = ((spec[0], memory, address, memory.nbytes, place),)
        return handle_of(session, (work,), finish, watched)

    def _start_in_place(self, spec, memory, finish):
        session, arrays = _default.session(), self.arrays
        place = arrays.place
        address = place(memory)
        work = session.submit(spec, address, address, (memory, arrays.holder(memory)))
        watched = ((spec[0], memory, address, memory.nbytes, place),)
        return handle_of(session, (work,), finish, watched)

    def _start_unit(self, name, parts, finish):
        """parts: (spec, data_in, data_out) of each tensor; their order is that of the works."""
        session = _default.session()
        place, holder = self.arrays.place, self.arrays.holder
        units, watched = [], []
        for number, (spec, data_in, data_out) in enumerate(parts, 1):
            address = place(data_in)
            written = address if data_out is data_in else None if data_out is None else place(data_out)
            out_bytes = max(1, data_out.nbytes) if spec[1] == _native.REDUCE_SCATTER else 0  # 0: enough
            units.append((spec, address, written, (data_in, holder(data_in), data_out), out_bytes))
            watched.append((f"{name or 'a tensor'}_{number}of{len(parts)}", data_in, address, data_in.nbytes, place))
        works = session.submit_unit(name, units) if units else []
        return handle_of(session, works, finish, watched)

    @staticmethod
    def _counts(session, work):
        """The number of rows from each member that a work received."""
        result = session.result(work)
        return result.counts[: result.count_count] if result.count_count else []

    def _received(self, session, work, array):
        """The rows that a work received, in new memory, and the number of rows from each member."""
        result, rows = session.result(work), self._counts(session, work)
        output = self.arrays.empty((sum(rows), *array.shape[1:]), array)
        if result.bytes:
            self.arrays.fill(output, result, session, work)
        return output, rows

    def _all_reduce(self, tensor, name, op, options):
        """The array and a spec, a plain tuple because every gradient takes this path."""
        prescale, postscale, process_set, order, compression, priority = options
        prescale, postscale = factors_of(prescale, postscale)
        array, dtype = self.arrays.take(tensor, "allreduce")
        number = 0 if process_set is global_process_set else number_of(process_set)
        codec = None if compression is NoneCompressor else wire_codec(compression, dtype)
        custom = None
        if type(op) is not int:
            op, custom = op_fields(op)
        order = 0 if order == "canonical" else order_number(order)
        shape = array.shape
        spec = (name, _native.ALL_REDUCE, op, dtype, shape, order, 0, 0, prescale, postscale, number, custom, codec)
        if priority != 0 or type(priority) is not int:
            spec = Spec(*spec, priority=priority_number(priority))
        return array, spec

    def _all_reduces(self, tensors, op, options):
        """_all_reduce() of the tensors of a unit."""
        return [self._all_reduce(tensor, None, op, options) for tensor in tensors]

    def allreduce_async(
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
        priority=0,
    ):
        """Starts postscale * op over ranks of (prescale * tensor), into a new tensor. Default op: Average."""
        options = (prescale_factor, postscale_factor, process_set, order, compression, priority)
        array, spec = self._all_reduce(tensor, name, choose_op(op, average), options)
        output = self.arrays.empty(array.shape, array)
        return self._start(spec, self.arrays.readable(array), output, lambda _: output)

    def allreduce_async_(
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
        priority=0,
    ):
        """allreduce_async whose result replaces the tensor's values."""
        # The options are compared with those of the last call, and True is equal to 1, and ReduceOp.SUM to 0.
        if type(op) is not int or average is not None:
            op = choose_op(op, average)
        prescale_factor, postscale_factor = factors_of(prescale_factor, postscale_factor)
        if type(priority) is not int:
            priority = priority_number(priority)
        options = (op, prescale_factor, postscale_factor, process_set, order, compression, priority)
        session = _default.session()
        repeat = session.repeats.pop(name, None)  # atomic: only one of several threads gets it
        if repeat is not None and repeat.options == options and (holder := repeat.hold(tensor)) is not None:
            return repeat.start(tensor, holder)
        array, spec = self._all_reduce(tensor, name, choose_op(op), options[1:])
        address = self.arrays.place(array) if array.nbytes else None
        self._in_place.check(session, address, name)
        handle = self._start_in_place(spec, *self.arrays.writable(array, tensor, name))
        repeat = None
        if not is_no_name(name) and process_set is global_process_set:
            repeat = self._expect_again(session, spec, array, options)
        self._in_place.add(session, address, name, handle, repeat)
        return handle

    def _expect_again(self, session, spec, array, options):
        """Stores a Repeat for the same call in the next step, and returns it; None: there is none."""
        if options != self._options:
            self._options = options
        repeat = Repeat(session, self.arrays, spec, self._options, array)
        if repeat.hold is None:
            return None
        session.expect(repeat)
        return repeat

    def grouped_allreduce_async(
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
        priority=0,
    ):
        """allreduce_async of several tensors as one unit: all of them are reduced, or all fail. Results in a list."""
        options = (prescale_factor, postscale_factor, process_set, order, compression, priority)
        specs = self._all_reduces(tensors, choose_op(op, average), options)
        outputs = [self.arrays.empty(array.shape, array) for array, _ in specs]
        parts = [(spec, self.arrays.readable(array), output) for (array, spec), output in zip(specs, outputs)]
        return self._start_unit(name, parts, lambda _: outputs)

    def grouped_allreduce_async_(
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
        priority=0,
    ):
        """grouped_allreduce_async whose results replace the tensors' values."""
        tensors = list(tensors)
        options = (prescale_factor, postscale_factor, process_set, order, compression, priority)
        specs = self._all_reduces(tensors, choose_op(op, average), options)
        placed = [self.arrays.writable(array, tensor, name) for (array, _), tensor in zip(specs, tensors)]
        parts = [(spec, memory, memory) for (_, spec), (memory, _) in zip(specs, placed)]
        check_apart([memory for memory, _ in placed], self.arrays.place, name)
        session = _default.session()
        addresses = [self.arrays.place(memory) for memory, _ in placed if memory.nbytes]
        for address in addresses:
            self._in_place.check(session, address, name, "grouped_allreduce_async_")
        handle = self._start_unit(name, parts, lambda pending: [finish(pending) for _, finish in placed])
        for address in addresses:
            self._in_place.add(session, address, name, handle, None)
        return handle

    def _gathered(self, tensor, call, name, process_set, priority=0):
        array, dtype = self.arrays.take(tensor, call)
        check_rows(array, call)
        fields = {"dtype": dtype, "shape": tuple(array.shape), "set": number_of(process_set), "priority": priority}
        return array, Spec(name, _native.ALL_GATHER, **fields)

    def allgather_async(
        self,
        tensor,
        name=None,
        process_set=global_process_set,
        *,
        with_rows=False,
        rows=None,
        out=None,
        priority=0,
    ):
        """Starts a concatenation of all ranks' tensors along the first dimension. Only the first dimensions may differ.

        with_rows: the result is a pair, the tensor and the number of rows from each member. rows: the number of rows
        from each member, equal on all of them: they exchange no sizes. out: the result is written into its first rows,
        which are returned; nothing is copied if the tensor lies in its place there, such as out[512:768]."""
        array, spec = self._gathered(tensor, "allgather", name, process_set, priority_number(priority))
        memory = None if out is None else self.arrays.room(out, array, "allgather")
        if rows is not None:
            rows = known_rows(rows, process_set, array)
            spec = spec._replace(counts_known=1, splits=rows)
            memory = self.arrays.empty((sum(rows), *array.shape[1:]), array) if memory is None else memory
        if memory is not None:
            check_out(memory, (sum(rows or ()), *array.shape[1:]), "allgather")

        def finish(pending):
            if memory is None:
                received = self._received(pending.session, pending.works[0], array)
            else:
                counts = self._counts(pending.session, pending.works[0]) if rows is None else rows
                received = (memory if out is None else out)[: sum(counts)], counts
                self.arrays.written(memory)
            return received if with_rows else received[0]

        out_bytes = 0 if memory is None else max(1, memory.nbytes)
        return self._start(spec, self.arrays.readable(array), memory, finish, out_bytes=out_bytes)

    def grouped_allgather_async(self, tensors, name=None, process_set=global_process_set, *, with_rows=False):
        """allgather_async of several tensors as one unit: all of them are gathered, or all fail. Results in a list."""
        specs = [self._gathered(tensor, "grouped_allgather", None, process_set) for tensor in tensors]
        parts = [(spec, self.arrays.readable(array), None) for array, spec in specs]

        def finish(pending):
            works = zip(pending.works, specs)
            received = [self._received(pending.session, work, array) for work, (array, _) in works]
            return received if with_rows else [output for output, _ in received]

        return self._start_unit(name, parts, finish)

    def _broadcast(self, tensor, root_rank, call, name, process_set):
        array, dtype = self.arrays.take(tensor, call)
        number, root = number_of(process_set), process_set.place_of(root_rank, "root_rank")
        return array, Spec(name, _native.BROADCAST, dtype=dtype, shape=tuple(array.shape), root=root, set=number)

    def broadcast_async(self, tensor, root_rank, name=None, process_set=global_process_set):
        """Starts sending root_rank's tensor to all ranks, into a new tensor."""
        array, spec = self._broadcast(tensor, root_rank, "broadcast", name, process_set)
        output = self.arrays.empty(array.shape, array)
        return self._start(spec, self.arrays.readable(array), output, lambda _: output)

    def broadcast_async_(self, tensor, root_rank, name=None, process_set=global_process_set):
        """broadcast_async whose result replaces the tensor's values."""
        array, spec = self._broadcast(tensor, root_rank, "broadcast_", name, process_set)
        memory, finish = self.arrays.writable(array, tensor, name)
        return self._start_in_place(spec, memory, finish)

    def alltoall_async(self, tensor, splits=None, name=None, process_set=global_process_set, *, with_rows=None):
        """Starts sending splits[i] rows of the tensor, in their order, to member i. The result is the received rows, by
        member.

        Without splits every member gets the same number of rows. With splits the result is a pair: the tensor, and the
        number of rows from each member. with_rows, if given, decides whether it is a pair."""
        array, dtype = self.arrays.take(tensor, "alltoall")
        check_rows(array, "alltoall")
        number, members, rows = number_of(process_set), process_set.members(), array.shape[0]
        with_rows = splits is not None if with_rows is None else with_rows
        if splits is None:
            if rows % members:
                raise ValueError(
                    f"horo.alltoall: splits not provided, but first dimension ({rows}) is not an even multiple of the "
                    f"number of workers ({members})"
                )
            splits = [rows // members] * members
        else:
            splits = numbers_of(splits, "alltoall")
            check_splits(splits, rows, members, "alltoall")
            array = array[: sum(splits)]

        def finish(pending):
            output, rows = self._received(pending.session, pending.works[0], array)
            return (output, self.arrays.counts(rows)) if with_rows else output

        spec = Spec(name, _native.ALL_TO_ALL, dtype=dtype, shape=tuple(array.shape), set=number)
        return self._start(spec, self.arrays.readable(array), None, finish, splits)

    def _scattered(self, tensor, call, name, options):
        """The array and the spec of a reduce_scatter."""
        op, process_set, prescale, postscale = options
        op, (prescale, postscale) = choose_op(op), factors_of(prescale, postscale)
        if op not in (Average, Sum):
            raise ValueError(f"horo.{call}: op={op_name(op)}; expected Average or Sum")
        array, dtype = self.arrays.take(tensor, call)
        check_rows(array, call)
        number, shape = number_of(process_set), tuple(array.shape)
        spec = Spec(name, _native.REDUCE_SCATTER, op, dtype, shape, prescale=prescale, postscale=postscale, set=number)
        return array, spec

    def reducescatter_async(
        self,
        tensor,
        name=None,
        op=Average,
        process_set=global_process_set,
        prescale_factor=1.0,
        postscale_factor=1.0,
        *,
        splits=None,
        out=None,
        order="canonical",
        priority=0,
    ):
        """Starts a reduction whose rows are dealt to the ranks in order. Average or Sum.

        splits: the number of rows for each member, equal on all of them. out: the result is written there, and
        returned."""
        options = (op, process_set, prescale_factor, postscale_factor)
        array, spec = self._scattered(tensor, "reducescatter", name, options)
        splits = () if splits is None else splits_of_all(splits, spec.shape[0], process_set)
        spec = spec._replace(order=order_number(order), priority=priority_number(priority), splits=splits)
        shape = (splits[process_set.rank()] if splits else own_rows(spec, process_set), *spec.shape[1:])
        memory = self.arrays.empty(shape, array) if out is None else self.arrays.room(out, array, "reducescatter")
        check_out(memory, shape, "reducescatter", is_exact=True)

        def finish(_):
            self.arrays.written(memory)
            return memory if out is None else out

        return self._start(spec, self.arrays.readable(array), memory, finish, out_bytes=max(1, memory.nbytes))

    def grouped_reducescatter_async(
        self,
        tensors,
        name=None,
        op=Average,
        process_set=global_process_set,
        prescale_factor=1.0,
        postscale_factor=1.0,
    ):
        """reducescatter_async of several tensors as one unit: all of them are reduced, or all fail. The result is a
        list."""
        options = (op, process_set, prescale_factor, postscale_factor)
        parts = []
        for array, spec in (self._scattered(tensor, "grouped_reducescatter", None, options) for tensor in tensors):
            shape = (own_rows(spec, process_set), *spec.shape[1:])
            parts.append((spec, self.arrays.readable(array), self.arrays.empty(shape, array)))
        return self._start_unit(name, parts, lambda _: [output for _, _, output in parts])
