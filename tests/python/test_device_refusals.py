"""What CUDA tensors need and do not find: each function of the driver and of NCCL, a GPU of its own, a stream that is
not captured. Fakes without one function are copies in which its name is another one."""

import ctypes
import os
import pathlib
import re

import pytest

import horo


def names_in(root, source):
    """The functions that horo looks for in a library."""
    return re.findall(r'functions\.find\([\w.]+, "(\w+)"\)', (root / source).read_text())


def without(library, name, folder):
    """The path of a copy of the library that has no function of this name."""
    data = library.read_bytes()
    word = b"\0" + name.encode() + b"\0"
    assert word in data, name
    copy = folder / name
    copy.write_bytes(data.replace(word, b"\0_" + word[2:]))
    return copy


def why_not(driver, plug_in):
    """Why the plug-in does not start with this driver, in a process of its own."""
    ours, theirs = os.pipe()
    if (pid := os.fork()) == 0:
        why = ctypes.create_string_buffer(512)
        try:
            ctypes.CDLL(str(driver), mode=ctypes.RTLD_GLOBAL)  # the plug-in finds it by its soname
            table = ctypes.CDLL(str(plug_in)).horo_cuda_api
            table.restype = ctypes.POINTER(ctypes.c_void_p)
            start = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)(table()[1])
            code = start(ctypes.byref(ctypes.c_int()), why, len(why))
            os.write(theirs, f"{code} {why.value.decode()}".encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


def test_each_function_that_a_driver_lacks_is_named(root, fake_cuda, tmp_path):
    driver = (fake_cuda.parent / "driver/libcuda.so.1").resolve()
    plug_in = pathlib.Path(horo.__file__).with_name("libhoro_cuda.so")
    assert why_not(driver, plug_in) == "0 "
    names = names_in(root, "ring/cuda/cuda_driver.cc")
    assert len(names) >= 32
    for name in names:
        text = f"the NVIDIA driver has no {name}: it is too old for horo, which needs CUDA 11.0 or newer"
        assert why_not(without(driver, name, tmp_path), plug_in) == f"500 {text}"


@pytest.mark.parametrize("size", [1, 2])
def test_refusals_name_rank_device_and_setting(run_program, root, fake_cuda, tmp_path, size):
    copies = [without(fake_cuda, name, tmp_path) for name in names_in(root, "ring/nccl/nccl_library.cc")]
    env = {"TEST_DEVICE": "fake", "HORO_CUDA_LIBRARY": str(fake_cuda), "HORO_FAKE_CUDA_SHARED": "1"}
    run_program("refused_on_devices", size, env=env, arguments=copies)
