"""Functional collectives that torch calls in C++, where it finds no group in Python."""

import torch
from torch.distributed import distributed_c10d as c10d

from horo.torch.distributed.process_group import ProcessGroup

_library = torch.library.Library("_c10d_functional", "IMPL")
_default = torch.ops._c10d_functional.all_gather_into_tensor_out.default


def _all_gather_into_tensor_out(input, group_size, group_name, *, out):
    """Of compiled programs (inductor)."""
    group = c10d._resolve_process_group(group_name)
    if not isinstance(group, ProcessGroup):
        return _default._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, input, group_size, group_name, out=out)
    torch._C._distributed_c10d._register_work(out, group.all_gather_single(out, input.contiguous()))
    return out


for _device in ("CPU", "CUDA"):
    _library.impl("all_gather_into_tensor_out", _all_gather_into_tensor_out, _device)
