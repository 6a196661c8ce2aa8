# ruff: noqa: F401
"""Broadcasts of state and objects."""

from horo.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
