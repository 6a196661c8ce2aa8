"""Not part of horo: the import raises ImportError."""

from horovod._missing import refuse

refuse("runner.common.service")
