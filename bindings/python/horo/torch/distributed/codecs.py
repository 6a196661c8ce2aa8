"""Codecs for FSDP2: fewer bytes on the wire of its all_gathers and reduce_scatters.

module.set_custom_all_gather(AllGather(horo.torch.Compression.bf16))
module.set_custom_reduce_scatter(ReduceScatter(horo.torch.Compression.fp16))
"""

import torch
import torch.distributed as dist
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather as _AllGather
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter as _ReduceScatter

from horo import _native
from horo.torch.compression import BF16Compressor, FP16Compressor
from horo.torch.distributed.process_group import ProcessGroup
from horo.torch.distributed.tensors import check, reduction

CODECS = {FP16Compressor: torch.float16, BF16Compressor: torch.bfloat16, "fp16": torch.float16, "bf16": torch.bfloat16}


class _Coded:
    """What both have in common."""

    def __init__(self, codec):
        """codec: Compression.fp16 or Compression.bf16, or the name."""
        if codec not in CODECS:
            raise ValueError(
                f"{type(self).__name__}({codec!r}): expected horo.torch.Compression.fp16 or .bf16; an all_reduce "
                "alone has other codecs"
            )
        self._dtype = CODECS[codec]

    def allocate(self, size, *, dtype, device):
        return torch.empty(*size, dtype=dtype, device=device)

    def _check(self, call, tensor, group):
        """The group, and whether the codec makes the tensor smaller."""
        group = dist.group.WORLD if group is None else group
        if not isinstance(group, ProcessGroup):
            raise TypeError(f"{call} with a codec: a process group of backend {dist.get_backend(group)}; expected horo")
        check(tensor, call)
        return group, tensor.dtype.is_floating_point and tensor.itemsize > self._dtype.itemsize


class AllGather(_Coded, _AllGather):
    """For set_custom_all_gather() of FSDP2. Every rank gets the decoded values, of its own part too."""

    def __call__(self, output_tensor, input_tensor, group, async_op=False):
        group, is_coded = self._check("all_gather", input_tensor, group)
        if is_coded:
            encoded = input_tensor.detach().to(self._dtype)
            gathered = torch.empty(output_tensor.shape, dtype=self._dtype, device=encoded.device)
            work = group.all_gather_coded(output_tensor, gathered, encoded)
        else:
            work = group.all_gather_single(output_tensor, input_tensor)
        return work if async_op else _waited(work)


class ReduceScatter(_Coded, _ReduceScatter):
    """For set_custom_reduce_scatter() of FSDP2: each value is encoded once, and the sum is of float32, or of float64
    for tensors of float64."""

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        group, is_coded = self._check("reduce_scatter", input_tensor, group)
        if is_coded:
            number, factor = reduction(op)
            if number not in (_native.SUM, _native.AVERAGE):
                raise ValueError(f"reduce_scatter with a codec: {op}; expected SUM, AVG or PREMUL_SUM")
            encoded = (input_tensor.detach() * factor).to(self._dtype)
            divisor = group.size() if number == _native.AVERAGE else 1
            work = group.reduce_scatter_coded(output_tensor, encoded, divisor)
        else:
            work = group.reduce_scatter_single(output_tensor, input_tensor, op)
        return work if async_op else _waited(work)


def _waited(work):
    work.wait()
