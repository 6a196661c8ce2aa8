"""The built-in hooks of DDP (BuiltinCommHookType) are C++, and the one for float16 reads the value of a future in C++,
which a future of Python cannot hold. Over a group of horo the hook of the same name in Python runs instead."""

import functools

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from horo.torch.distributed.group_base import GroupBase


def replace():
    """Is called once for each default group, and acts once."""
    of_torch = DistributedDataParallel._register_builtin_comm_hook
    if hasattr(of_torch, "__wrapped__"):
        return

    @functools.wraps(of_torch)
    def register(self, comm_hook_type):
        if comm_hook_type != dist.BuiltinCommHookType.FP16_COMPRESS or not isinstance(self.process_group, GroupBase):
            return of_torch(self, comm_hook_type)
        return self.register_comm_hook(self.process_group, default_hooks.fp16_compress_hook)

    DistributedDataParallel._register_builtin_comm_hook = register
