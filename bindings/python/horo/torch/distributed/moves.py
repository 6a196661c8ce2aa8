"""Collectives of a process group that move values unchanged."""

from horo import _native
from horo.torch.distributed.reductions import Reductions, root_of
from horo.torch.distributed.tensors import (
    check,
    dtype_of,
    joined,
    readable,
    room_for,
    single,
    single_list,
    writable,
)
from horo.torch.distributed.words import DTYPE_NAMES


class Moves(Reductions):
    """See ProcessGroup."""

    def broadcast(self, tensors, opts=None, timeout=None):
        tensor = single(tensors, "broadcast")
        root = root_of(opts)
        dtype, count = dtype_of(tensor)
        fields = {"kind": _native.BROADCAST, "dtype": dtype, "shape": (count,), "root": root}
        memory, put = (readable(tensor), None) if root == self.rank() else writable(tensor)
        flight = self._start(
            ("broadcast", f"{count} {DTYPE_NAMES[dtype]}", f"from rank {root}"), fields, (memory, memory)
        )
        return self._work("broadcast", [flight], ([tensor], put), timeout or opts)

    def _gather(self, source, target, counts):
        """The flight of an all_gather into memory. counts: elements from each member. Members that disagree about a
        count get a Mismatch."""
        dtype, count = dtype_of(source)
        total, counts[self.rank()] = sum(counts), count
        fields = {"kind": _native.ALL_GATHER, "dtype": dtype, "shape": (count,), "counts_known": 1}
        if len(set(counts)) > 1:
            fields["splits"] = tuple(counts)
        return self._start(("all_gather", f"{total} {DTYPE_NAMES[dtype]}"), fields, (readable(source), target))

    def _finish_gather(self, call, flight, expected, put):
        """Checks how many elements each rank has sent."""

        def finish():
            found = list(flight.result())
            if found != expected:
                raise ValueError(f"{call}: the ranks sent {found} elements; the outputs of this rank have {expected}")
            if put is not None:
                put()

        return finish

    def allgather(self, outputs, inputs, opts=None, timeout=None):
        pieces, source = single_list(outputs, "all_gather"), single(inputs, "all_gather")
        started = self._gather_pieces("all_gather", pieces, source)
        return self._joint("all_gather", [started], [pieces], timeout or opts)

    def _gather_pieces(self, call, pieces, source):
        """The flight, and what leaves its result in the pieces."""
        self._check_count(call, pieces)
        self._check_dtypes(call, [source, *pieces])
        target, put = room_for(pieces)
        expected = [dtype_of(piece)[1] for piece in pieces]
        counts = expected.copy()
        flight = self._gather(source, target, counts)
        return flight, put if counts == expected else self._finish_gather(call, flight, expected, put)

    def _check_dtypes(self, call, tensors):
        dtypes = {tensor.dtype for tensor in tensors}
        if len(dtypes) > 1:
            raise ValueError(f"{call}: the tensors are of {', '.join(sorted(map(str, dtypes)))}; expected one dtype")

    def allgather_coalesced(self, outputs, inputs, opts=None):
        call, started = "all_gather_coalesced", []
        for number, source in enumerate(inputs):
            pieces = [check(of_rank[number], call) for of_rank in outputs]
            started.append(self._gather_pieces(call, pieces, check(source, call)))
        return self._joint(call, started, [list(of_rank) for of_rank in outputs], opts)

    def _gather_single(self, call, output, source):
        check(output, call), check(source, call)
        self._check_dtypes(call, [output, source])
        if output.numel() != source.numel() * self.size():
            raise ValueError(
                f"{call}: the output has {output.numel()} elements, and the input {source.numel()}; expected "
                f"{self.size()} times as many in the output, one part for each rank"
            )
        target, put = writable(output)
        return self._gather(source, target, [dtype_of(source)[1]] * self.size()), put

    def all_gather_single(self, output, input, opts=None, timeout=None):
        started = self._gather_single("all_gather_single", output, input)
        return self._joint("all_gather_single", [started], [output], timeout or opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        call = "all_gather_single_coalesced"
        started = [self._gather_single(call, output, source) for output, source in zip(outputs, inputs)]
        return self._joint(call, started, list(outputs), opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs, inputs, opts=None, timeout=None):
        source = single(inputs, "gather")
        root = root_of(opts)
        dtype, count = dtype_of(source)
        fields = {"kind": _native.GATHER, "dtype": dtype, "shape": (count,), "root": root}
        pieces, target, put = [], None, None
        if root == self.rank():
            pieces = single_list(outputs, "gather")
            self._check_count("gather", pieces)
            self._check_dtypes("gather", [source, *pieces])
            target, put = room_for(pieces)
        flight = self._start(("gather", DTYPE_NAMES[dtype], f"to rank {root}"), fields, (readable(source), target))
        finish = None
        if pieces:
            finish = self._finish_gather("gather", flight, [dtype_of(piece)[1] for piece in pieces], put)
        return self._work("gather", [flight], ([pieces], finish), timeout or opts)

    def scatter(self, outputs, inputs, opts=None, timeout=None):
        output = single(outputs, "scatter")
        root = root_of(opts)
        dtype, count = dtype_of(output)
        source, splits = None, None
        if root == self.rank():
            pieces = single_list(inputs, "scatter")
            self._check_count("scatter", pieces)
            self._check_dtypes("scatter", [output, *pieces])
            source, splits = joined(pieces), [dtype_of(piece)[1] for piece in pieces]
        shape = (0,) if source is None else (sum(splits),)
        fields = {"kind": _native.SCATTER, "dtype": dtype, "shape": shape, "root": root}
        target, put = writable(output)
        flight = self._start(("scatter", DTYPE_NAMES[dtype], f"from rank {root}"), fields, (source, target), splits)
        finish = self._finish_gather("scatter", flight, [count], put)
        return self._work("scatter", [flight], ([output], finish), timeout or opts)

    def _exchange(self, call, source, target, splits, options):
        """An all_to_all. source, target: flat. splits: (elements to each member, elements from each member)."""
        dtype, count = dtype_of(source)
        fields = {"kind": _native.ALL_TO_ALL, "dtype": dtype, "shape": (count,)}
        memory, put, outputs = target
        flight = self._start(("all_to_all", DTYPE_NAMES[dtype]), fields, (source, memory), splits[0])
        finish = self._finish_gather(call, flight, splits[1], put)
        return self._work(call, [flight], (outputs, finish), options)

    def _parts(self, call, tensor, splits):
        """Elements by member. splits: rows of the tensor by member; empty: even."""
        _, count = dtype_of(tensor)
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self.size():
                raise ValueError(f"{call}: {rows} rows cannot be split evenly among {self.size()} ranks")
            return [count // self.size()] * self.size()
        if len(splits) != self.size() or sum(splits) != rows or min(splits) < 0:
            raise ValueError(
                f"{call}: splits {list(splits)} of {rows} rows; expected one for each of {self.size()} ranks, and "
                f"the sum {rows}"
            )
        return [split * (count // rows) if rows else 0 for split in splits]

    def all_to_all_single(self, output, input, output_splits=(), input_splits=(), opts=None):
        call = "all_to_all_single"
        check(output, call), check(input, call)
        self._check_dtypes(call, [output, input])
        splits = self._parts(call, input, input_splits), self._parts(call, output, output_splits)
        memory, put = writable(output)
        return self._exchange(call, readable(input), (memory, put, [output]), splits, opts)

    alltoall_base = all_to_all_single

    def alltoall(self, outputs, inputs, opts=None):
        call = "all_to_all"
        for tensors in (outputs, inputs):
            self._check_count(call, tensors)
        self._check_dtypes(call, [check(tensor, call) for tensor in (*outputs, *inputs)])
        splits = tuple([dtype_of(tensor)[1] for tensor in tensors] for tensors in (inputs, outputs))
        memory, put = room_for(outputs)
        return self._exchange(call, joined(inputs), (memory, put, list(outputs)), splits, opts)
