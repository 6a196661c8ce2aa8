"""The gathers of horo.torch.sharding."""

import torch

import horo.torch as hvd
from horo.torch import sharding

hvd.init()
ME, SIZE = hvd.rank(), hvd.size()
assert sharding.my_member() == ME
gather = sharding.MemberGather(hvd.global_process_set, "test")

present, headers, (parts,) = gather.tensors(
    [torch.full((ME,), float(ME))], "a", header=(ME * ME,), expected=range(SIZE)
)
assert present.members == tuple(range(SIZE)) and len(set(present.hosts)) == 1
assert headers == [[rank * rank] for rank in range(SIZE)]
assert [part.tolist() for part in parts] == [[float(rank)] * rank for rank in range(SIZE)]
assert gather.objects({"rank": ME})[1] == [{"rank": rank} for rank in range(SIZE)]
try:
    gather.objects(None, expected=(*range(SIZE), SIZE))
except sharding.MembersChanged as change:
    assert change.present == present
else:
    raise AssertionError("other members were expected")

shapes = [(700, 3), (), (0, 4), (1003,)]
wholes = [torch.randn(shape, generator=torch.Generator().manual_seed(number)) for number, shape in enumerate(shapes)]
wholes[3] = wholes[3].bfloat16()
layout = sharding.Layout(range(SIZE), present.hosts, [(one.numel(), sharding.kind_of(one)) for one in wholes])


def of_me(place):
    """The tensors with the elements of this member alone."""
    found = [torch.full_like(one, float("nan")) for one in wholes]
    for kind in layout.kinds:
        parts = layout.parts(place, kind)
        sharding.unpack(found, parts, sharding.pack(wholes, parts, kind))
    return found


fixed = sharding.FixedPartGather(layout, hvd.global_process_set, "fixed")
for _ in range(2):
    tensors = of_me(ME)
    fixed.run(tensors)
    assert all(map(torch.equal, tensors, wholes))

turned = sharding.Layout(range(SIZE)[::-1], present.hosts, layout.tensors)  # members in another order than the ranks
tensors = [torch.full_like(one, float("nan")) for one in wholes]
for kind in turned.kinds:
    parts = turned.parts(SIZE - 1 - ME, kind)
    sharding.unpack(tensors, parts, sharding.pack(wholes, parts, kind))
sharding.FixedPartGather(turned, hvd.global_process_set, "turned").run(tensors)
assert all(map(torch.equal, tensors, wholes))
try:
    sharding.FixedPartGather(sharding.Layout([0], [0], layout.tensors), hvd.global_process_set, "others")
except ValueError as error:
    assert "the layout has the members [0], and the process set [0, 1" in str(error)
else:
    raise AssertionError("a layout of other members")

tensors, parts = of_me(ME), sharding.PartGather(layout, gather, "the tensors")
present, _, values = gather.tensors([parts.begin(tensors, kind) for kind in layout.kinds], "step")
assert parts.end(tensors, present, dict(zip(layout.kinds, values))) == present
assert all(map(torch.equal, tensors, wholes))

mine = []
for part in layout.parts(ME):
    values = sharding.flat(wholes[part.number])[part.begin : part.end]
    if part.end - part.begin == wholes[part.number].numel():
        values = wholes[part.number]
    mine.append((part, {"square": values * values, "step": torch.tensor(3.0), "word": "x"}))
joined = list(sharding.gather_entries(gather, wholes, mine, "the test"))
assert [id(tensor) for tensor, _ in joined] == [id(tensor) for tensor in wholes]
for whole, entry in joined:
    assert torch.equal(entry["square"], whole * whole) and entry["step"] == 3 and entry["word"] == "x"
number, entry = mine[0]
try:
    list(sharding.gather_entries(gather, wholes, [(number, {"row": torch.zeros(2)})], "the test"))
except ValueError as error:
    assert "the test: the state 'row' has the shape [2]" in str(error)
else:
    raise AssertionError("a row of two numbers is no state of elements")
hvd.shutdown()
