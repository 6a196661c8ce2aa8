"""The backend "horo" of torch.distributed: init_process_group("horo") needs no import, because horo's wheel registers
the name with torch. docs/torch_distributed.md has what runs on it and what is refused."""

import horo.torch.distributed.functional  # noqa: F401
from horo.torch.distributed.creation import create_group
from horo.torch.distributed.process_group import ProcessGroup
from horo.torch.distributed.work import TimedOut, Work
from horo_torch_backend import register

register()

__all__ = ["ProcessGroup", "TimedOut", "Work", "create_group"]
