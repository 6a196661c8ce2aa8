"""horo.torch.sharding: layouts against an oracle that deals block by block, chunks, buddies, runs of elements."""

import collections
import random

import pytest

torch = pytest.importorskip("torch")

import horo.torch as hvd  # noqa: E402
from horo.torch.sharding import Extent, Layout, ShardLost, check_dense, flat, kind_of, like, pack, unpack  # noqa: E402
from horo.torch.sharding.extents import cut  # noqa: E402
from horo.torch.sharding.layout import BLOCK  # noqa: E402


def drawn(seed):
    """Sizes and kinds of parameters, and a number of members."""
    draw = random.Random(seed)
    sizes = (0, 1, 255, 256, 257, 1003, draw.randrange(5000))
    params = [(draw.choice(sizes), draw.choice("ab")) for _ in range(draw.randrange(1, 9))]
    return params, draw.randrange(1, 7)


def layout_of(params, members, is_whole=False):
    return Layout(range(members), [0] * members, params, is_whole)


def by_blocks(params, members):
    """{(number, block of it): place}, by a count of all blocks of a kind."""
    owners = {}
    for kind in {kind for _, kind in params}:
        blocks = [
            (number, block)
            for number, (size, one) in enumerate(params)
            if one == kind
            for block in range(max(1, -(-size // BLOCK)))
        ]
        for place in range(members):
            for each in blocks[len(blocks) * place // members : len(blocks) * (place + 1) // members]:
                owners[each] = place
    return owners


def test_blocks_are_dealt_in_equal_runs():
    for seed in range(10_000):
        params, members = drawn(seed)
        layout, found = layout_of(params, members), {}
        for place in range(members):
            for number, begin, end in layout.parts(place):
                assert begin % BLOCK == 0 and (end % BLOCK == 0 or end == params[number][0]), seed
                for block in range(begin // BLOCK, max(begin // BLOCK + 1, -(-end // BLOCK))):
                    assert (number, block) not in found, seed
                    found[number, block] = place
        assert found == by_blocks(params, members), seed


def test_whole_parameters_have_one_owner_and_no_member_more_than_the_largest_beyond_the_mean():
    for seed in range(2_000):
        params, members = drawn(seed)
        layout = layout_of(params, members, is_whole=True)
        parts = [part for place in range(members) for part in layout.parts(place)]
        assert sorted(parts) == [Extent(number, 0, size) for number, (size, _) in enumerate(params)], seed
        for kind in layout.kinds:
            sizes = [max(1, size) for size, one in params if one == kind]
            loads = [sum(max(1, p.end) for p in layout.parts(place, kind)) for place in range(members)]
            assert max(loads) <= sum(sizes) / members + max(sizes), seed


def test_chunks_of_a_gather_are_the_parts_in_pieces():
    for seed in range(2_000):
        params, members = drawn(seed)
        for place in range(members):
            parts = layout_of(params, members).parts(place)
            size, count = sum(end - begin for _, begin, end in parts), 1 + seed % 5
            chunks = [cut(parts, size * one // count, size * (one + 1) // count) for one in range(count)]
            elements = [(number, i) for chunk in chunks for number, begin, end in chunk for i in range(begin, end)]
            assert elements == [(number, i) for number, begin, end in parts for i in range(begin, end)], seed


@pytest.mark.parametrize(
    "hosts, buddies",
    [
        ([0], [None]),
        ([0, 0, 0], [1, 2, 0]),
        ([0, 0, 7, 7], [2, 3, 0, 1]),
        ([0, 0, 0, 1], [3, 3, 3, 0]),
        ([5, 5, 1, 1, 2], [2, 3, 4, 4, 0]),
        ([0, 1, 1, 0], [1, 0, 3, 2]),  # the last one has joined
    ],
)
def test_the_buddy_is_on_the_next_host(hosts, buddies):
    layout = Layout(range(len(hosts)), hosts, [(10, "a")], has_copies=True)
    assert layout.buddies == buddies
    held = collections.Counter(one for place in range(len(hosts)) for one in layout.held(place))
    assert set(held.values()) == {1 if buddies == [None] else 2}


def test_the_chunks_of_a_layout_have_each_element_of_each_part_once():
    kinds = [(torch.float32, "cpu"), (torch.bfloat16, "cpu")]
    tensors = [(9_000_000, kinds[0]), (3, kinds[1]), (0, kinds[1]), (500_000, kinds[0])]
    layout = Layout(range(3), [0] * 3, tensors)
    assert [kind for kind, _ in layout.chunks] == [kinds[0]] * 3 + [kinds[1]]  # 38 MB in chunks of at most 16 MiB
    for place in range(3):
        runs = [part for _, parts in layout.chunks for part in parts[place]]
        joined = {}
        for number, begin, end in runs:
            assert joined.get(number, begin) == begin, "the parts are in order"
            joined[number] = end
        assert joined == {part.number: part.end for part in layout.parts(place) if part.end > part.begin}
    for (dtype, _), parts in layout.chunks:
        assert sum(part.end - part.begin for of_one in parts for part in of_one) * dtype.itemsize <= (16 << 20) + 12


def test_the_buddy_of_a_lost_member_gives_its_parts_and_without_it_they_are_lost():
    layout = Layout([7, 3, 9], [0] * 3, [(10, "a")], has_copies=True)
    assert layout.givers((7, 3, 9), (), "it") == {0: 7, 1: 3, 2: 9}
    assert layout.givers((3, 9), {1, 2}, "it") == {0: 3}
    assert layout.givers((7,), {1}, "it") == {0: 7, 2: 7}
    with pytest.raises(ShardLost, match="member 7 was lost, and so was its buddy, member 3: a part of it is gone"):
        layout.givers((9,), (), "it")
    with pytest.raises(ShardLost, match="member 3 was lost, and there is no copy of its part: a part of it is gone"):
        Layout([7, 3], [0] * 2, [(10, "a")]).givers((7,), (), "it")


def test_extents_are_packed_and_unpacked_in_the_order_of_memory():
    tensors = [torch.arange(12.0).view(3, 4).t(), torch.tensor(5.0), torch.empty(0)]
    extents = [Extent(0, 2, 7), Extent(1, 0, 1), Extent(2, 0, 0), Extent(0, 9, 12)]
    kind = kind_of(tensors[0])
    values = pack(tensors, extents, kind)
    assert values.tolist() == [2, 3, 4, 5, 6, 5, 9, 10, 11]
    assert torch.equal(pack(tensors, extents[:1], kind, out=torch.empty(5)), values[:5])
    assert pack((), (), (torch.int8, "cpu")).dtype is torch.int8
    unpack(tensors, extents, -values)
    assert flat(tensors[0]).tolist() == [0, 1, -2, -3, -4, -5, -6, 7, 8, -9, -10, -11] and tensors[1] == -5


def test_elements_of_tensors_with_other_strides_are_made_to_correspond():
    dense, other = torch.empty(4, 3).t(), torch.arange(12.0).view(3, 4)
    assert torch.equal(like(dense, other), other) and like(dense, other).stride() == dense.stride()
    assert flat(like(dense, other)).tolist() == other.t().flatten().tolist()
    assert like(other, other) is other
    check_dense(dense, "it")
    with pytest.raises(ValueError, match="it: the elements, of shape .3, 2. and strides .4, 1., are not one run"):
        check_dense(other[:, :2], "it")


def test_a_state_is_loaded_with_the_dtypes_that_it_is_saved_with():
    param = torch.nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    optimizer = torch.optim.SGD([param], lr=0.1, momentum=0.9)
    content = optimizer.state_dict() | {"state": {0: {"momentum_buffer": torch.ones(2)}}}
    optimizer.load_state_dict(content)
    assert optimizer.state[param]["momentum_buffer"].dtype is torch.bfloat16
    with hvd.state_as_saved(optimizer, added={0: {"more": 1}}):
        optimizer.load_state_dict(content)
    assert optimizer.state[param]["momentum_buffer"].dtype is torch.float32 and optimizer.state[param]["more"] == 1
    with hvd.state_as_saved(optimizer, lambda one: one is not param):
        optimizer.load_state_dict(content)
    assert optimizer.state[param]["momentum_buffer"].dtype is torch.bfloat16


@pytest.mark.parametrize("keeps", [False, True])
def test_a_state_is_loaded_to_where_it_was_or_else_to_where_torch_puts_it(keeps):
    here, there, deep = (torch.nn.Parameter(torch.zeros(2, device=one)) for one in ("cpu", "meta", "meta"))
    optimizer = torch.optim.SGD([here, there, deep], lr=0.1, momentum=0.9)
    optimizer.state[here] = {"momentum_buffer": torch.zeros(2, device="meta")}
    half = torch.ones(2, dtype=torch.float16)
    pair = (half, 3)
    state = {
        0: {"momentum_buffer": half, "more": half},
        1: {"momentum_buffer": half},
        2: {"in": {"a": [half], "b": pair}},
    }
    with hvd.state_as_saved(optimizer, keeps_devices=keeps):
        optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
    deep_one, deep_other = optimizer.state[deep]["in"]["a"][0], optimizer.state[deep]["in"]["b"]
    found = [optimizer.state[here]["momentum_buffer"], optimizer.state[there]["momentum_buffer"], deep_one]
    found += [deep_other[0], optimizer.state[here]["more"]]
    assert [one.device.type for one in found] == (["cpu"] * 5 if keeps else ["meta"] * 4 + ["cpu"])
    assert {one.dtype for one in found} == {torch.float16} and deep_other[1] == 3 and state[2]["in"]["a"][0] is half


def test_parts_and_entries_of_ranks_are_joined(run_program):
    run_program("sharding", 3)
