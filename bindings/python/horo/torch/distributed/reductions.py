"""Reductions of a process group."""

import torch

from horo import _native
from horo.torch.distributed.group_base import GroupBase
from horo.torch.distributed.tensors import (
    check,
    joined,
    readable,
    reduced_dtype_of,
    reduction,
    single,
    single_list,
    writable,
)
from horo.torch.distributed.words import DTYPE_NAMES, OP_NAMES

SUM = torch.distributed.ReduceOp.SUM


def _op_of(options):
    """The reduce operation: of an options object, or itself."""
    if options is None:
        return SUM
    return getattr(options, "reduceOp", options)


def root_of(options):
    """The root, as a rank in the group: of an options object, or itself."""
    return options if isinstance(options, int) else 0 if options is None else options.rootRank


class Reductions(GroupBase):
    """See ProcessGroup."""

    def _reduce(self, call, kind, tensor, options, root=0):
        """The fields of Spec, and the kind of the flight."""
        dtype, count = reduced_dtype_of(check(tensor, call), call)
        op, prescale = reduction(_op_of(options))
        if op == _native.AVERAGE and dtype == _native.BOOL:
            raise ValueError(f"{call}: an average of bools is not defined; expected another ReduceOp")
        fields = {"kind": kind, "op": op, "dtype": dtype, "shape": (count,), "root": root, "prescale": prescale}
        words = (call, f"{count} {DTYPE_NAMES[dtype]}", OP_NAMES[op])
        return fields, (*words, f"to rank {root}") if call == "reduce" else words

    def _all_reduce(self, call, tensor, options):
        """The flight, and what leaves its result in the tensor."""
        fields, kind = self._reduce(call, _native.ALL_REDUCE, tensor, options)
        memory, put = writable(tensor)
        return self._start(kind, fields, (memory, memory)), put

    def allreduce(self, tensors, opts=None, timeout=None):
        tensor = single(tensors, "all_reduce")
        flight, put = self._all_reduce("all_reduce", tensor, opts)
        return self._work("all_reduce", [flight], ([tensor], put), timeout or opts)

    def average(self, tensor, codec=None):
        """An all_reduce with AVG. codec: the name of one on the wire, or None."""
        fields, kind = self._reduce("all_reduce", _native.ALL_REDUCE, tensor, torch.distributed.ReduceOp.AVG)
        memory, put = writable(tensor)
        flight = self._start((*kind, f"codec {codec}"), fields | {"codec": codec}, (memory, memory))
        return self._work("all_reduce", [flight], ([tensor], put))

    def allreduce_coalesced(self, tensors, opts=None):
        started = [self._all_reduce("all_reduce", tensor, opts) for tensor in tensors]
        return self._joint("all_reduce_coalesced", started, list(tensors), opts)

    def _joint(self, call, started, outputs, options):
        """A work of several flights. started: (flight, what leaves its result in place, or None)."""
        puts = [put for _, put in started if put is not None]

        def finish():
            for put in puts:
                put()

        return self._work(call, [flight for flight, _ in started], (outputs, finish if puts else None), options)

    def reduce(self, tensors, opts=None, op=None, timeout=None):
        tensor = single(tensors, "reduce")
        root, op = root_of(opts), op if isinstance(opts, int) else opts
        fields, kind = self._reduce("reduce", _native.REDUCE, tensor, op, root)
        is_root = root == self.rank()
        memory, put = writable(tensor) if is_root else (readable(tensor), None)
        flight = self._start(kind, fields, (memory, memory if is_root else None))
        return self._work("reduce", [flight], ([tensor], put), timeout or opts)

    def _reduce_scatter(self, call, output, source, splits, options):
        """The flight, and what leaves its result in the output. source: flat. splits: elements by member, or ()."""
        fields, kind = self._reduce(call, _native.REDUCE_SCATTER, source, options)
        memory, put = writable(check(output, call))
        fields["splits"] = splits
        return self._start((*kind, *map(str, splits)), fields, (readable(source), memory)), put

    def reduce_scatter(self, outputs, inputs, opts=None, timeout=None):
        output, pieces = single(outputs, "reduce_scatter"), single_list(inputs, "reduce_scatter")
        self._check_count("reduce_scatter", pieces)
        counts = tuple(piece.numel() for piece in pieces)
        if output.numel() != counts[self.rank()]:
            raise ValueError(
                f"reduce_scatter: the output has {output.numel()} elements, and input {self.rank()} of this rank has "
                f"{counts[self.rank()]}; expected the same number"
            )
        if len({piece.dtype for piece in (output, *pieces)}) > 1:
            raise ValueError("reduce_scatter: the tensors have several dtypes; expected one")
        splits = counts if len(set(counts)) > 1 else ()
        flight, put = self._reduce_scatter("reduce_scatter", output, joined(pieces), splits, opts)
        return self._work("reduce_scatter", [flight], ([output], put), timeout or opts)

    def _check_count(self, call, tensors):
        if len(tensors) != self.size():
            raise ValueError(f"{call}: a list of {len(tensors)} tensors; expected one for each of {self.size()} ranks")

    def _scatter_single(self, call, output, source, options):
        if output.dtype != source.dtype:
            raise ValueError(f"{call}: output of {output.dtype}, input of {source.dtype}; expected one dtype")
        if source.numel() != output.numel() * self.size():
            raise ValueError(
                f"{call}: the input has {source.numel()} elements, and the output {output.numel()}; expected "
                f"{self.size()} times as many in the input, one part for each rank"
            )
        return self._reduce_scatter("reduce_scatter", output, source, (), options)

    def reduce_scatter_single(self, output, input, opts=None, timeout=None):
        started = self._scatter_single("reduce_scatter_single", output, input, opts)
        return self._joint("reduce_scatter_single", [started], [output], timeout or opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        call = "reduce_scatter_single_coalesced"
        started = [self._scatter_single(call, output, source, opts) for output, source in zip(outputs, inputs)]
        return self._joint(call, started, list(outputs), opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
