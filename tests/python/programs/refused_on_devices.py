"""What is refused for tensors of devices: a sentence that names rank, device, call and setting. One rank, or two that
share a GPU; the arguments are copies of the fake, each without the function of NCCL that its name has."""

import ctypes
import os
import pathlib
import sys
import traceback

import claims
import torch

import horo.torch as hvd
from horo.torch import devices

WITHOUT = [pathlib.Path(path) for path in sys.argv[1:]]
FAKE = os.environ["HORO_CUDA_LIBRARY"]
PLACES = devices.places


def refused(*texts, settings=None, kind=ValueError, call=lambda: hvd.allreduce(torch.ones(3), name="weights")):
    """A call in a session of its own."""
    hvd.shutdown()
    hvd.init(settings={"HORO_NCCL_LIBRARY": FAKE, "HORO_GPU_BACKEND": "nccl"} | (settings or {}))
    with claims.raises(kind, *texts):
        call()


def a_stream_that_is_captured():
    fake = ctypes.CDLL(FAKE)
    fake.fake_cuda_stream.restype = ctypes.c_void_p
    stream = fake.fake_cuda_stream(True)
    PLACES.stream_of = lambda number: stream
    try:
        for call in (hvd.allreduce, hvd.allgather, lambda one: hvd.broadcast(one, 0), hvd.alltoall, hvd.reducescatter):
            text = "cuda:0: the current stream is being captured into a CUDA graph"
            refused(text, "call it outside of the capture", call=lambda call=call: call(torch.ones(2)))
    finally:
        del PLACES.stream_of


def a_device_that_is_not_there():
    PLACES.number_of = lambda tensor: 9
    try:
        refused("device 9: this process has 8 CUDA devices, with numbers from 0")
    finally:
        del PLACES.number_of


def an_nccl_without_one_of_its_functions():
    """Each in a process of its own, before this one has used CUDA: copies of the fake stay loaded."""
    assert len(WITHOUT) >= 15, WITHOUT
    for path in WITHOUT:
        version = path.name == "ncclGetVersion"
        why = "it does not tell its version" if version else f"it has no function {path.name}"
        texts = ("HORO_GPU_BACKEND=nccl: rank 0: ", f"{path} cannot be used: {why}")
        if (child := os.fork()) == 0:
            try:
                refused(*texts, settings={"HORO_NCCL_LIBRARY": str(path)}, kind=hvd.PeerLost)
                os._exit(0)
            finally:
                traceback.print_exc()
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0, path


def two_ranks_on_one_gpu():
    refused("HORO_GPU_BACKEND=nccl: ranks 0 and 1 use one GPU", "torch.cuda.set_device", kind=hvd.PeerLost)


if os.environ["HORO_SIZE"] == "1":
    claims.check(
        an_nccl_without_one_of_its_functions, a_stream_that_is_captured, a_device_that_is_not_there, init=False
    )
else:
    claims.check(two_ranks_on_one_gpu)
