"""horovod.torch of a world of one process, in plain PyTorch: what the scripts of this folder compute without horo."""

import contextlib
import sys
import types

import torch


class _Optimizer:
    """Mixed into the class of the script's optimizer."""

    def synchronize(self):
        pass

    @contextlib.contextmanager
    def skip_synchronize(self):
        yield


def _same(tensor, *args, **kwargs):
    return tensor


def _wrapped(optimizer, *args, **kwargs):
    optimizer.__class__ = type(type(optimizer).__name__, (_Optimizer, type(optimizer)), {})
    return optimizer


class _World:
    ranks = [0]
    rank, size, included = staticmethod(lambda: 0), staticmethod(lambda: 1), staticmethod(lambda: True)


def install():
    """From now on `import horovod.torch` imports this."""
    names = {
        **{name: _same for name in "allreduce grouped_allreduce broadcast broadcast_ broadcast_object".split()},
        **{
            name: lambda *_, **__: None
            for name in "init shutdown broadcast_parameters broadcast_optimizer_state".split()
        },
        "rank": lambda: 0,
        "size": lambda: 1,
        "allgather_object": lambda obj, *_: [obj],
        "DistributedOptimizer": _wrapped,
        "SyncBatchNorm": torch.nn.BatchNorm2d,
        "Compression": types.SimpleNamespace(none=None, fp16=None),
        "Average": 0,
        "Sum": 1,
        "global_process_set": _World(),
    }
    for name in ("horovod", "horovod.torch", "horovod.torch.mpi_ops"):
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(names)
    sys.modules["horovod"].torch = sys.modules["horovod.torch"]
