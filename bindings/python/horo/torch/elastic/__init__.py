# ruff: noqa: F401
"""Horovod's elastic API: a function of a State that goes on when ranks are lost or join (docs/elastic.md). The names of
horo.elastic are here, too: State with fields alone is that of horo.elastic, and run takes both."""

from horo.elastic import Changed, Sampler, sharded
from horo.torch.elastic.base import ObjectState, State
from horo.torch.elastic.loop import run, run_fn
from horo.torch.elastic.sampler import ElasticSampler
from horo.torch.elastic.state import TorchState, get_handler_registry, set_handler_registry
