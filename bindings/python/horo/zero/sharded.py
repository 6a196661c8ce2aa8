"""Stages 2 and 3: FSDP2 over the backend "horo"."""

import torch
import torch.distributed as dist


def fully_shard(model, unit, stage=3, **options):
    """Divides parameters, gradients and state of the model among the ranks, and returns the model. The optimizer is
    made afterwards, of its parameters, and is not wrapped.

    unit: the class, or a tuple of classes, of the modules whose parameters are gathered together, such as a block.
    stage: 3: they are freed after the forward, and gathered again for the backward; 2: they stay until the backward.
    options: of torch.distributed.fsdp.fully_shard. Makes the process group of the backend "horo", if there is none."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"horo.zero.fully_shard: expected a torch.nn.Module, not a {type(model).__name__}")
    if stage not in (2, 3):
        raise ValueError(f"horo.zero.fully_shard: stage={stage!r}; expected 2 or 3; stage 1 is DistributedOptimizer")
    modules = [one for one in model.modules() if isinstance(one, unit) and one is not model]
    if not modules:
        raise ValueError(
            f"horo.zero.fully_shard: the model has no module of {unit!r}; expected the class of its blocks"
        )
    if "reshard_after_forward" in options:
        raise ValueError("horo.zero.fully_shard: reshard_after_forward is what stage says; leave it out")
    try:
        from torch.distributed.fsdp import fully_shard as shard
    except ImportError:
        raise NotImplementedError("horo.zero.fully_shard needs torch 2.6 or later, which has FSDP2") from None
    if not dist.is_initialized():
        dist.init_process_group("horo")
    for module in (*reversed(modules), model):
        shard(module, reshard_after_forward=stage == 3, **options)
    return model
