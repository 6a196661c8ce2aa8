"""Horovod's package, by horo: the modules re-export horo's calls under Horovod's names (docs/from_horovod.md)."""

import importlib.metadata

from horovod._missing import MISSING, text_of


def _check_that_horovod_is_not_installed():
    """Raises ImportError if Horovod is installed as well: the two share files, and the later one has overwritten
    some."""
    try:
        other = importlib.metadata.distribution("horovod")
    except importlib.metadata.PackageNotFoundError:
        return
    try:
        own = importlib.metadata.version("horo-horovod")
    except importlib.metadata.PackageNotFoundError:
        own = "(not installed)"
    raise ImportError(
        f"two distributions own the package horovod in this environment: horo-horovod {own}, which hands over to "
        f"horo ({__file__}), and horovod {other.version} ({other.locate_file('horovod')}). Keep one of them: "
        "pip uninstall horovod horo-horovod, and install the one that is wanted"
    )


_check_that_horovod_is_not_installed()

from horovod.runner import run  # noqa: E402

__version__ = "0.28.1"  # the release of Horovod whose names these are
__all__ = ["run"]


def __getattr__(name):
    if name in MISSING:
        raise AttributeError(text_of(name))
    raise AttributeError(f"module 'horovod' has no attribute {name!r}")
