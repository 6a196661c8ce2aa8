# ruff: noqa: F401
"""The sampler."""

from horo.torch.elastic.sampler import ElasticSampler
