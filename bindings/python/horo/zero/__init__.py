"""Optimizer state divided among the ranks (docs/sharding.md).

optimizer = horo.zero.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
"""

from horo.torch.sharding import ShardLost
from horo.zero.optimizer import DistributedOptimizer
from horo.zero.sharded import fully_shard

__all__ = ["DistributedOptimizer", "ShardLost", "fully_shard"]
