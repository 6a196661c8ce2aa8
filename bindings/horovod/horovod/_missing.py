"""The parts of Horovod that horo does not have."""

_ARRAYS = "horovod.torch is there for PyTorch, and horo.numpy for NumPy arrays and every object with DLPack"
_STARTS = "horovod.run(), horovodrun and horo run start ranks, and so do torchrun, mpirun and srun"

_OF_RUNNER = ("http", "elastic", "driver", "task", "common.service", "gloo_run", "mpi_run", "js_run")

MISSING = {
    "tensorflow": _ARRAYS,
    "keras": _ARRAYS,
    "mxnet": _ARRAYS,
    "spark": _STARTS,
    "ray": _STARTS,
    **{f"runner.{name}": _STARTS for name in _OF_RUNNER},
    "data": "torch.utils.data.DataLoader with num_workers loads data in the background",
}


def text_of(name):
    return f"horovod.{name} is not part of horo, which stands in for Horovod here; {MISSING[name]}"


def refuse(name):
    raise ImportError(text_of(name), name=f"horovod.{name}")
