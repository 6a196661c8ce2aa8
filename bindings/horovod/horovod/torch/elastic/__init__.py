# ruff: noqa: F401
"""See horo.torch.elastic."""

from horo.torch.elastic import ElasticSampler, ObjectState, State, TorchState, run
from horovod.torch.elastic import sampler, state
