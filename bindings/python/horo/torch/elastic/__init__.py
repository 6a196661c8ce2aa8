# ruff: noqa: F401
"""Horovod's elastic API: a function of a State that goes on when ranks are lost (docs/elastic.md)."""

from horo.torch.elastic.base import ObjectState, State
from horo.torch.elastic.loop import run, run_fn
from horo.torch.elastic.sampler import ElasticSampler
from horo.torch.elastic.state import TorchState, get_handler_registry, set_handler_registry
