"""Services for tensors that ranks divide among them, as horo.zero does: a Layout is the elements of each member, a
MemberGather tells which members are there, and other gathers give all members the parts of each, also of lost ones.

Collectives here block. A member is the number of a rank in the job, which it keeps (horo.members()).
"""

from horo.torch.sharding.entries import gather_entries
from horo.torch.sharding.extents import Extent, check_dense, flat, kind_of, like, pack, unpack
from horo.torch.sharding.layout import Layout, ShardLost
from horo.torch.sharding.member_gather import MemberGather, MembersChanged, Present, my_member
from horo.torch.sharding.part_gathers import FixedPartGather, PartGather

__all__ = [
    "Extent",
    "FixedPartGather",
    "Layout",
    "MemberGather",
    "MembersChanged",
    "PartGather",
    "Present",
    "ShardLost",
    "check_dense",
    "flat",
    "gather_entries",
    "kind_of",
    "like",
    "my_member",
    "pack",
    "unpack",
]
