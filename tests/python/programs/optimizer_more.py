"""DistributedOptimizer with groups, compression, sparse gradients and process sets, on three ranks."""

import claims
import torch
from claims import raises, same_bits

import horo.torch as hvd

MEAN = lambda: sum(range(hvd.size())) / hvd.size()  # noqa: E731


def params_of(*names, dtype=torch.float32):
    return {name: torch.nn.Parameter(torch.zeros(3, dtype=dtype)) for name in names}


def distributed(params, **options):
    sgd = torch.optim.SGD(list(params.values()), lr=1.0)
    return hvd.DistributedOptimizer(sgd, list(params.items()), **options)


def backward(params, factor):
    sum((param * factor).sum() for param in params.values()).backward()


def groups_are_reduced_together():
    for groups in (2, 1, 5, "lists"):
        params = params_of(*(f"{groups} {name}" for name in "abcde"))
        values = list(params.values())
        chosen = [values[:2], [values[4]]] if groups == "lists" else groups
        optimizer = distributed(params, groups=chosen)
        for _ in range(3):
            optimizer.zero_grad()
            backward(params, float(hvd.rank()))
            optimizer.step()
        assert all((param == -3 * MEAN()).all() for param in values), [param.tolist() for param in values]


def groups_carry_no_names_after_the_first_step():
    params = params_of(*(f"frozen {name}" for name in "abcde"))
    optimizer = distributed(params, groups=2)
    seen = []
    for _ in range(12):
        optimizer.zero_grad()
        backward(params, 1.0)
        optimizer.step()
        seen.append(hvd.counters()["control"]["messages_with_names"])
    assert seen[4:] == [seen[4]] * 8, seen


def a_group_waits_for_its_last_gradient():
    params = params_of("early", "late")
    optimizer = distributed(params, num_groups=1)
    before = hvd.counters()["submitted"]
    seen = []
    params["late"].register_post_accumulate_grad_hook(lambda _: seen.append(hvd.counters()["submitted"] - before))
    params["early"].register_post_accumulate_grad_hook(lambda _: seen.append(hvd.counters()["submitted"] - before))
    (params["late"].sum() * 2 + params["early"].sum()).backward()
    assert seen == [0, 2], seen
    optimizer.step()


def groups_are_predivided_and_may_lack_gradients():
    """A gradient that this rank lacks is absent; one that all ranks lack stays None."""
    params = params_of("all", "some", "none")
    optimizer = distributed(params, groups=1, gradient_predivide_factor=2.0)
    for _ in range(2):
        optimizer.zero_grad()
        loss = (params["all"] * 3).sum()
        if hvd.rank() == 1:
            loss = loss + params["some"].sum()
        loss.backward()
        optimizer.step()
        assert params["none"].grad is None
        assert (params["all"].grad == 3).all()
        torch.testing.assert_close(params["some"].grad, torch.full((3,), 1 / hvd.size()))


def invalid_groups_are_refused():
    params = params_of("a", "b")
    first = params["a"]
    for groups in (-1, "all", [first], [[first], [first]], [[first, first]], [[torch.zeros(3)]], True):
        with raises(ValueError, "groups"):
            distributed(params, groups=groups)


def gradients_are_compressed():
    generator = torch.Generator().manual_seed(hvd.rank())
    for name in ("none", "fp16", "bf16", "fp8", "int8"):
        params = {f"{name} {i}": torch.nn.Parameter(torch.zeros(700)) for i in range(3)}
        optimizer = distributed(params, compression=getattr(hvd.Compression, name))
        gradient = torch.randn(700, generator=generator)
        exact = hvd.allreduce(gradient)
        sum((param * gradient).sum() for param in params.values()).backward()
        optimizer.step()
        for param in params.values():
            assert (param.grad - exact).abs().max() <= 0.1 * exact.abs().max(), name
            same_bits(hvd.broadcast(param.grad, 0), param.grad)


class Halves(hvd.Compressor):
    """Sends float64 as float32, of twice the value."""

    @staticmethod
    def compress(tensor):
        return (tensor * 2).float(), tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.to(ctx) / 2


def a_compressor_of_the_users_own_is_called():
    for groups in (0, 1):
        params = params_of(f"used {groups}", f"absent {groups}", f"unused {groups}", dtype=torch.float64)
        used, absent, unused = params.values()
        optimizer = distributed(params, compression=Halves, groups=groups)
        for _ in range(3):
            optimizer.zero_grad()
            loss = (used * hvd.rank()).sum()
            if hvd.rank() == 0:
                loss = loss + (absent * 6).sum()
            loss.backward()
            optimizer.step()
        assert used.grad.dtype == torch.float64
        assert (used == -3 * MEAN()).all() and (absent == -3 * 6 / hvd.size()).all() and unused.grad is None


def tables(dense):
    torch.manual_seed(4)
    table = torch.nn.Embedding(10, 2, sparse=True, dtype=torch.float64)
    return table, hvd.DistributedOptimizer(
        torch.optim.SGD(table.parameters(), lr=0.5), [(f"table {dense}", table.weight)], sparse_as_dense=dense
    )


def sparse_gradients_are_summed():
    """Against one process; in the last step rank 0 looks nothing up."""
    for dense in (False, True):
        torch.manual_seed(4)
        alone = torch.nn.Embedding(10, 2, dtype=torch.float64)
        plain = torch.optim.SGD(alone.parameters(), lr=0.5)
        table, optimizer = tables(dense)
        for step in range(3):
            lookups = [torch.tensor([rank, 2 * step, 2 * step]) for rank in range(hvd.size())]
            if step == 2:
                lookups[0] = None
            optimizer.zero_grad()
            plain.zero_grad()
            if lookups[hvd.rank()] is not None:
                table(lookups[hvd.rank()]).square().sum().backward()
            for each in lookups:
                if each is not None:
                    (alone(each).square().sum() / hvd.size()).backward()
            optimizer.step()
            plain.step()
            assert table.weight.grad.layout is torch.sparse_coo
        torch.testing.assert_close(table.weight, alone.weight)


def sparse_gradients_in_a_group_are_refused():
    table = torch.nn.Embedding(10, 2, sparse=True)
    sgd = torch.optim.SGD(table.parameters(), lr=0.5)
    optimizer = hvd.DistributedOptimizer(sgd, [("grouped table", table.weight)], groups=1)
    with raises(ValueError, "grouped table", "sparse_as_dense"):
        table(torch.tensor([1])).sum().backward()
    del optimizer


def an_optimizer_of_a_set_reduces_in_that_set_only():
    pair = hvd.add_process_set([0, 2])
    params = params_of("of the pair")
    optimizer = distributed(params, process_set=pair)
    backward(params, float(hvd.rank()))
    optimizer.step()
    assert (params["of the pair"] == (-1 if pair.included() else -hvd.rank())).all(), params
    both = params_of("of the world")
    world = distributed(both)
    for _ in range(3):
        optimizer.zero_grad()
        world.zero_grad()
        backward(params, 1.0)
        backward(both, float(hvd.rank()))
        optimizer.step()
        world.step()
    assert (both["of the world"] == -3 * MEAN()).all()
    hvd.barrier()
    hvd.remove_process_set(pair)


def ranks_without_data_join_the_training():
    """Rank r makes r + 1 steps; the means of the others count the ranks that joined as zeros."""
    params = params_of("joined", dtype=torch.float64)
    optimizer = distributed(params)
    for step in range(hvd.rank() + 1):
        optimizer.zero_grad()
        backward(params, 1.0)
        optimizer.step()
        here = sum(step <= rank for rank in range(hvd.size()))
        torch.testing.assert_close(params["joined"].grad, torch.full((3,), here / hvd.size(), dtype=torch.float64))
    last = hvd.join()
    assert last == hvd.size() - 1
    hvd.broadcast_parameters(params, last)
    torch.testing.assert_close(params["joined"].detach(), torch.full((3,), -(hvd.size() + 1) / 2, dtype=torch.float64))
    optimizer.zero_grad()
    backward(params, 1.0)
    optimizer.step()


claims.check(
    groups_are_reduced_together,
    groups_carry_no_names_after_the_first_step,
    a_group_waits_for_its_last_gradient,
    groups_are_predivided_and_may_lack_gradients,
    invalid_groups_are_refused,
    gradients_are_compressed,
    a_compressor_of_the_users_own_is_called,
    sparse_gradients_are_summed,
    sparse_gradients_in_a_group_are_refused,
    an_optimizer_of_a_set_reduces_in_that_set_only,
    ranks_without_data_join_the_training,
)
