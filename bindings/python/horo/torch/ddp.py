"""A communication hook of DistributedDataParallel: horo averages the gradients of a model whose process group stays
with another backend."""

import functools

from horo import _default
from horo._compression import NoneCompressor, wire_codec
from horo.torch import marks, rounds
from horo.torch.arrays import DTYPES

TIMEOUT_S = 1800


def ddp_hook(state, bucket):
    """For DistributedDataParallel.register_comm_hook(state, horo.torch.ddp_hook), after horo.init(). state: None, or a
    codec of horo.torch.Compression. The sum is divided after the last addition, as in DistributedOptimizer."""
    buffer = bucket.buffer()
    compression = NoneCompressor if state is None else state
    codec = None if compression is NoneCompressor else wire_codec(compression, DTYPES[buffer.dtype])
    return _group(_default.session()).average(buffer, codec).get_future().then(lambda done: done.value()[0])


@functools.lru_cache(1)
def _group(session):
    from horo.torch.distributed.process_group import ProcessGroup

    rounds.wrap_backward()
    marks.install_for_groups(session)
    topology = session.topology
    return ProcessGroup((topology.rank, range(topology.size)), session, 0, TIMEOUT_S, "ddp_hook")
