"""horovod.run() and the command horovodrun."""

from horo.runner import run  # noqa: F401
