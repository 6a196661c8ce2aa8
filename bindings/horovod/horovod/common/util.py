"""Horovod's helpers: queries of what was built, and small functions that scripts import."""

import contextlib
import importlib.util
import os
import sysconfig

from horo import _built
from horo._specs import choose_op
from horovod.common.exceptions import HorovodVersionMismatchError, get_version_mismatch_message  # noqa: F401

EXTENSIONS = ["tensorflow", "torch", "mxnet"]


def get_ext_suffix():
    """The file name extension of Python's extension modules."""
    return sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def get_extension_full_path(pkg_path, *args):
    """The path that an extension module of Horovod would have. horo has none."""
    return os.path.join(os.path.dirname(pkg_path), *args[:-1], args[-1] + get_ext_suffix())


def check_extension(ext_name, ext_env_var, pkg_path, *args):
    """Raises ImportError unless ext_name, such as "horovod.torch", can be used."""
    if not extension_available(ext_name.rpartition(".")[2]):
        raise ImportError(f"Extension {ext_name} has not been built: horo has horovod.torch, which needs PyTorch")


def check_installed_version(name, version, exception=None):
    """Does nothing: horo is not built for one version of a framework."""


def extension_available(ext_base_name, verbose=False):
    """Whether a framework, such as "torch", can be used."""
    return ext_base_name == "torch" and importlib.util.find_spec("torch") is not None


def gpu_available(ext_base_name, verbose=False):
    """Whether the plug-in for tensors of GPUs is there."""
    return _built.cuda_built()


def mpi_built(verbose=False):
    return _built.mpi_built()


def gloo_built(verbose=False):
    return _built.gloo_built()


def nccl_built(verbose=False):
    return _built.nccl_built()


def ddl_built(verbose=False):
    return _built.ddl_built()


def ccl_built(verbose=False):
    return _built.ccl_built()


def cuda_built(verbose=False):
    return _built.cuda_built()


def rocm_built(verbose=False):
    return _built.rocm_built()


@contextlib.contextmanager
def env(**kwargs):
    """A context with these environment variables; those given as None stay as they are."""
    given = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def handle_average_backwards_compatibility(op, average):
    """The op that was chosen by `op` or by the older argument `average`."""
    return choose_op(op, average)


def get_average_backwards_compatibility_fun(reduce_ops):
    return handle_average_backwards_compatibility


def num_rank_is_power_2(num_rank):
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(items, n):
    """n parts of nearly equal length, in order; the first ones have one item more."""
    length, rest = divmod(len(items), n)
    starts = [i * length + min(i, rest) for i in range(n + 1)]
    return [items[start:end] for start, end in zip(starts, starts[1:])]


def is_iterable(x):
    try:
        iter(x)
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver, target):
    """Whether version ver, such as "2.1.0+cpu", is at least target."""

    def numbers(version):
        parts = version.partition("+")[0].split(".")
        return [int("".join(filter(str.isdigit, part)) or 0) for part in parts]

    return numbers(ver) >= numbers(target)
