"""The ranks agree on the layouts of gradients: a rank without a gradient takes part in the reduction of sparse ones."""

import random

import claims
import torch
from claims import raises, same_bits, value

import horo.torch as hvd
from horo import _default
from horo.torch.sparse import DENSE, LayoutExchange, agree_layouts, in_layout, layout_of, without_entries

SHAPE = (6, 4)


def by_rank(*layouts):
    return layouts[hvd.rank()]


def agreed(name, *layouts):
    """The agreed layouts of parameters 0, 1, ..., which every rank has in another order."""
    named = [(str(number), layout) for number, layout in enumerate(layouts)]
    random.Random(hvd.rank()).shuffle(named)
    found = agree_layouts(_default.session(), 0, name, dict(named))
    return [found[str(number)] for number in range(len(layouts))]


def a_rank_without_a_gradient_learns_the_layout_of_the_others():
    mine = by_rank([None, 1, None, DENSE], [None, None, None, None], [None, None, 2, None])
    assert agreed("layouts", *mine) == [None, 1, 2, DENSE]


def the_layout_with_the_fewest_sparse_dimensions_wins():
    mine = by_rank([1, 3, 2, 62], [DENSE, 2, 2, None], [None, None, 2, 62])
    assert agreed("layouts", *mine) == [DENSE, 2, 2, 62]


def a_parameter_that_no_rank_uses_is_agreed_on_later():
    assert agreed("later", None, None) == [None, None]
    assert agreed("later", *by_rank([None, None], [None, 1], [DENSE, None])) == [DENSE, 1]
    assert agreed("later", by_rank(2, None, 2)) == [2]  # fewer parameters under the same name


def different_parameters_are_a_mismatch_on_all_ranks():
    with raises(hvd.Mismatch, "wrong", "shape"):
        agreed("wrong", *[None] * (2 + hvd.rank()))
    names = by_rank(["a", "b"], ["a", "c"], ["a", "b"])
    with raises(hvd.Mismatch, "renamed", f"rank {hvd.rank()} has {', '.join(names)};"):
        agree_layouts(_default.session(), 0, "renamed", dict.fromkeys(names))


class InterruptedOnce:
    """A session whose first wait is interrupted."""

    def __init__(self, session):
        self._session = session
        self.waits = 0

    def __getattr__(self, name):
        return getattr(self._session, name)

    def wait_until(self, works, until):
        self.waits += 1
        if self.waits == 1:
            raise KeyboardInterrupt
        return self._session.wait_until(works, until)


def an_interrupted_wait_may_be_repeated():
    session = InterruptedOnce(_default.session())
    exchange = LayoutExchange(session, 0, "interrupted", {"w": by_rank(1, None, None)})
    try:
        exchange.wait()
    except KeyboardInterrupt:
        assert exchange.wait() == exchange.wait() == {"w": 1}
    assert session.waits >= 2


def gradient(rank, kind):
    """The gradient of a rank, whose values every rank can compute. Rows occur twice in a sparse one."""
    dense = value(rank, torch.float64, SHAPE)
    if kind is None or kind == DENSE:
        return None if kind is None else dense
    sparse = torch.cat([dense[:3], dense[1:2]])
    rows = torch.tensor([[0, 2, 4, 2]])
    return in_layout(torch.sparse_coo_tensor(rows, sparse, SHAPE, check_invariants=True), kind)


def reduced(name, kind):
    """The sum over ranks by the collectives of the agreed layout."""
    mine = gradient(hvd.rank(), kind)
    (layout,) = agreed("layouts", layout_of(mine))
    if layout is None:
        return None
    if layout == DENSE:
        tensor = torch.zeros(SHAPE, dtype=torch.float64) if mine is None else in_layout(mine, DENSE).contiguous()
        return hvd.allreduce(tensor, name=name, op=hvd.Sum)
    mine = without_entries(torch.Size(SHAPE), torch.float64, layout) if mine is None else in_layout(mine, layout)
    return hvd.sparse_allreduce_async(mine, name, hvd.Sum)()


def gradients_of_any_layouts_are_summed_with_the_same_bits_on_all_ranks():
    kinds = [None, DENSE, 1, 2]
    for number, mine in enumerate((a, b, c) for a in kinds for b in kinds for c in kinds):
        total = reduced(f"gradient {number}", mine[hvd.rank()])
        all_kinds = [kind for kind in mine if kind is not None]
        if not all_kinds:
            assert total is None
            continue
        assert layout_of(total) == min(all_kinds)
        parts = [gradient(rank, kind) for rank, kind in enumerate(mine)]
        parts = [part.to_dense() if part.is_sparse else part for part in parts if part is not None]
        torch.testing.assert_close(in_layout(total, DENSE), sum(parts))
        same_bits(hvd.broadcast(in_layout(total, DENSE), 0), in_layout(total, DENSE))


def conversions_keep_every_value():
    dense = value(hvd.rank(), torch.bfloat16, SHAPE)
    dense[1], dense[2, 1] = 0, float("nan")
    for layout in (1, 2):
        same_bits(in_layout(in_layout(dense, layout), DENSE), dense)
    assert in_layout(dense, DENSE) is dense
    sparse = in_layout(dense, 1)
    assert in_layout(sparse, 1) is sparse and sparse._nnz() == SHAPE[0] - 1
    assert layout_of(in_layout(sparse, 2)) == 2


def every_member_counts_a_join():
    before = _default.session().joins[0]
    hvd.join()
    assert _default.session().joins[0] == before + 1


claims.check(
    a_rank_without_a_gradient_learns_the_layout_of_the_others,
    the_layout_with_the_fewest_sparse_dimensions_wins,
    a_parameter_that_no_rank_uses_is_agreed_on_later,
    different_parameters_are_a_mismatch_on_all_ranks,
    an_interrupted_wait_may_be_repeated,
    gradients_of_any_layouts_are_summed_with_the_same_bits_on_all_ranks,
    conversions_keep_every_value,
    every_member_counts_a_join,
)
