"""Horovod's exceptions."""

from horo.errors import HoroError as HorovodInternalError  # noqa: F401
from horo.errors import HostsUpdatedInterrupt  # noqa: F401


def get_version_mismatch_message(name, version, installed_version):
    return f"Framework {name} installed with version {installed_version} but found version {version}."


class HorovodVersionMismatchError(ImportError):
    """A framework is not of the version that Horovod was built for. horo is built for none, and raises it nowhere."""

    def __init__(self, name, version, installed_version):
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name, self.version, self.installed_version = name, version, installed_version
