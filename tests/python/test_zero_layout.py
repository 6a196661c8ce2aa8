"""Layouts of horo.zero against an oracle that deals block by block, and the chunks of a gather."""

import collections
import random

import pytest

pytest.importorskip("torch")

from horo.zero.gather import cut  # noqa: E402
from horo.zero.layout import BLOCK, Extent, Layout  # noqa: E402


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
    layout = Layout(range(len(hosts)), hosts, [(10, "a")])
    assert layout.buddies == buddies
    held = collections.Counter(one for place in range(len(hosts)) for one in layout.held(place))
    assert set(held.values()) == {1 if buddies == [None] else 2}
