"""The device of a check: the GPU, or, with TEST_DEVICE=fake, the fake of tests/fake_devices.py, whose tensors are the
CPU's. Programs print one JSON object each."""

import json
import os
import pathlib
import sys
import warnings

import torch

import horo.torch as hvd

IS_FAKE = os.environ.get("TEST_DEVICE") == "fake"
if IS_FAKE:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
    import fake_devices

    fake_devices.install()
DEVICE = torch.device("cpu" if IS_FAKE else "cuda")
WAIT = "called a synchronizing CUDA operation"  # torch's warning; its first one says that the mode is a prototype


def on_host(call):
    """The result of a call whose tensors are on the CPU. On the fake, works of before may still be released in it."""
    if not IS_FAKE:
        return call()
    places = sys.modules["horo.torch.devices"].places
    places.is_host = lambda tensor: True
    try:
        return call()
    finally:
        del places.is_host


def start():
    if os.environ.get("HORO_GPU_BACKEND") == "nccl":
        rank = os.environ.get("HORO_RANK", "0")
        os.environ |= {"NCCL_HOSTID": f"rank {rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
    hvd.init()
    if not IS_FAKE:
        torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
        waits_of(lambda: None)


def synchronize():
    if not IS_FAKE:
        torch.cuda.synchronize()


def waits_of(call):
    """Calls; returns how often torch has waited for the device."""
    if IS_FAKE:
        places = sys.modules["horo.torch.devices"].places
        before = places.waits
        call()
        return places.waits - before
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            call()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return sum(WAIT in str(each.message) for each in told)


def tell(**values):
    """Rank 0 prints the result of the program."""
    if hvd.rank() == 0:
        print(json.dumps(values), flush=True)


def bytes_of(tensor):
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
