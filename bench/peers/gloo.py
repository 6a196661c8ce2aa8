"""The Gloo driver of `horo-bench`: the collectives of torch.distributed on CPU tensors."""

import ctypes
import os
import pathlib
import sys

import torch
import torch.distributed as dist


class Task(ctypes.Structure):
    _fields_ = [
        ("collective", ctypes.c_char_p),
        ("dtype", ctypes.c_char_p),
        ("rank", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("in_place", ctypes.c_int32),
        ("count", ctypes.c_uint64),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("in_bytes", ctypes.c_uint64),
        ("out_bytes", ctypes.c_uint64),
    ]


Allocate = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(Task))
Prepare = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(Task), ctypes.c_void_p)
Run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
Finish = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Driver(ctypes.Structure):
    _fields_ = [
        ("user", ctypes.c_void_p),
        ("version", ctypes.c_char_p),
        ("allocate", Allocate),
        ("prepare", Prepare),
        ("run", Run),
        ("finish", Finish),
    ]


ERROR_BYTES = 512


def tensor_at(address, size, dtype):
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype)


def operation(task):
    """A function that runs the collective of the task once."""
    name = task.collective.decode()
    dtype = getattr(torch, task.dtype.decode(), None)
    if dtype is None:
        raise ValueError(f"torch has no {task.dtype.decode()}")
    given = tensor_at(task.input, task.in_bytes, dtype)
    result = tensor_at(task.output, task.out_bytes, dtype)
    gathered = list(result.chunk(task.size)) if name == "gather" and task.rank == 0 else None
    scattered = list(given.chunk(task.size)) if name == "scatter" and task.rank == 0 else None

    def reduce():  # in place
        result.copy_(given)
        dist.reduce(result, 0)

    return {
        "all_reduce": lambda: dist.all_reduce(result),
        "broadcast": lambda: dist.broadcast(result, 0),
        "reduce": reduce,
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(result, given),
        "all_gather": lambda: dist.all_gather_into_tensor(result, given),
        "all_to_all": lambda: dist.all_to_all_single(result, given),
        "gather": lambda: dist.gather(given, gathered, 0),
        "scatter": lambda: dist.scatter(result, scattered, 0),
    }[name]


class GlooDriver:
    def __init__(self):
        self.operate = None

    def prepare(self, _, task, error):
        try:
            self.operate = operation(task[0])
            self.operate()  # torch raises here if it does not support the task
            return 0
        except Exception as problem:
            text = str(problem).encode().split(b"\n")[0][: ERROR_BYTES - 1]
            ctypes.memmove(error, text + b"\0", len(text) + 1)
            return 1

    def run(self, _):
        try:
            self.operate()
            return 0
        except Exception as problem:
            print(f"gloo: {problem}", file=sys.stderr)
            return 1

    def finish(self, _):
        self.operate = None

    def run_tasks(self, library):
        driver = Driver(
            user=None,
            version=f"torch {torch.__version__}".encode(),
            prepare=Prepare(self.prepare),
            run=Run(self.run),
            finish=Finish(self.finish),
        )
        return library.harness_run(dist.get_rank(), dist.get_world_size(), ctypes.byref(driver))


def main(driver):
    torch.set_num_threads(1)
    store = pathlib.Path(os.environ["HARNESS_FOLDER"]) / f"{os.environ['HARNESS_CONTESTANT']}.store"
    place = {"rank": int(os.environ["RANK"]), "world_size": int(os.environ["WORLD_SIZE"])}
    dist.init_process_group("gloo", init_method=f"file://{store}", **place)
    library = ctypes.CDLL(os.environ.get("HARNESS_LIBRARY") or pathlib.Path(__file__).parent / "libharness.so")
    result = driver.run_tasks(library)
    dist.destroy_process_group()
    return result


if __name__ == "__main__":
    sys.exit(main(GlooDriver()))
