"""The asynchronous forms of collectives with a root, of messages between two ranks, barrier and join."""

from horo import _native
from horo._checks import check_rows, check_splits, factors_of, numbers_of
from horo._default import session as default_session
from horo._handles import handle_of
from horo._sets import global_process_set, number_of
from horo._specs import Spec, choose_op, op_fields, order_number, rows_of
from horo._starts import Starts, nothing


class Rooted(Starts):
    """See Starts."""

    def _at(self, call, tensor, root_rank, process_set):
        """The array; the spec fields dtype, shape, root and set; whether this rank is the root."""
        array, dtype = self.arrays.take(tensor, call)
        number, root = number_of(process_set), process_set.place_of(root_rank, "root_rank")
        fields = {"dtype": dtype, "shape": tuple(array.shape), "root": root, "set": number}
        return array, fields, process_set.rank() == root

    def reduce_async(
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
        """allreduce_async whose result only root_rank gets; None on the other ranks."""
        array, fields, is_root = self._at("reduce", tensor, root_rank, process_set)
        number, custom = op_fields(choose_op(op))
        prescale, postscale = factors_of(prescale_factor, postscale_factor)
        factors = {"prescale": prescale, "postscale": postscale, "order": order_number(order)}
        spec = Spec(name, _native.REDUCE, number, custom_op=custom, **fields, **factors)
        output = self.arrays.empty(array.shape, array) if is_root else None
        return self._start(spec, self.arrays.readable(array), output, lambda _: output)

    def gather_async(self, tensor, root_rank, name=None, process_set=global_process_set):
        """Starts a concatenation of all ranks' tensors along the first dimension on root_rank; None on the other ranks.

        Only the first dimensions may differ."""
        array, fields, is_root = self._at("gather", tensor, root_rank, process_set)
        check_rows(array, "gather")

        def finish(pending):
            return self._received(pending.session, pending.works[0], array)[0] if is_root else None

        return self._start(Spec(name, _native.GATHER, **fields), self.arrays.readable(array), None, finish)

    def scatter_async(self, tensor, root_rank, splits=None, name=None, process_set=global_process_set):
        """Starts sending splits[i] rows of root_rank's tensor, in their order, to member i. The result is those rows.

        Without splits the rows are dealt evenly: the first rows % size members get one row more. The other ranks'
        splits are ignored; of their tensors only the dtype and the shape of a row are used."""
        array, fields, is_root = self._at("scatter", tensor, root_rank, process_set)
        check_rows(array, "scatter")
        members, rows = process_set.members(), array.shape[0]
        if not is_root:
            array, splits = array[:0], None
        elif splits is None:
            splits = [rows_of(rows, members, place) for place in range(members)]
        else:
            splits = numbers_of(splits, "scatter")
            check_splits(splits, rows, members, "scatter")
            array = array[: sum(splits)]
        fields["shape"] = tuple(array.shape)

        def finish(pending):
            return self._received(pending.session, pending.works[0], array)[0]

        return self._start(Spec(name, _native.SCATTER, **fields), self.arrays.readable(array), None, finish, splits)

    def _message(self, call, tensor, ends, name, process_set):
        """The array, and the spec of a message between two ranks; ends: (source, destination)."""
        array, dtype = self.arrays.take(tensor, call)
        number = number_of(process_set)
        root, peer = (process_set.place_of(end, what) for end, what in zip(ends, ("source", "destination")))
        return array, Spec(
            name, _native.SEND_RECV, dtype=dtype, shape=tuple(array.shape), root=root, peer=peer, set=number
        )

    def send_async(self, tensor, destination, name=None, process_set=global_process_set):
        """Starts sending the tensor to a rank that receives one of the same name, dtype and shape.

        No data is sent before that rank has started to receive. The result is None."""
        ends = (default_session().topology.rank, destination)
        array, spec = self._message("send", tensor, ends, name, process_set)
        return self._start(spec, self.arrays.readable(array), None, nothing)

    def recv_async(self, tensor, source, name=None, process_set=global_process_set):
        """Starts receiving the tensor that rank `source` sends under this name, into `tensor`, which is the result."""
        ends = (source, default_session().topology.rank)
        array, spec = self._message("recv", tensor, ends, name, process_set)
        memory, finish = self.arrays.writable(array, tensor, name)
        return self._start(spec, None, memory, finish)

    def barrier_async(self, process_set=global_process_set):
        """Starts waiting until all ranks have called it. Does not wait for other works. The result is None."""
        spec = Spec(None, _native.BARRIER, dtype=_native.UINT8, set=number_of(process_set))
        return self._start(spec, None, None, nothing)

    def join_async(self, process_set=global_process_set):
        """Starts waiting for the other ranks; this rank has no more data. See join()."""
        number = number_of(process_set)
        session = default_session()

        def finish(pending):
            pending.session.joins[number] += 1
            return process_set.rank_at(pending.session.result(pending.works[0]).counts[0])

        return handle_of(session, [session.join(number)], finish)
