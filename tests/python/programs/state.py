"""After a broadcast every rank has the root's parameters, optimizer state and objects."""

import claims
import torch
from claims import raises, same_bits

import horo.torch as hvd
from horo.torch.functions import averaged_loss


def everywhere_the_same(value):
    values = hvd.allgather_object(value)
    assert all(str(other) == str(values[0]) for other in values), values
    return values


def parameters_and_buffers_become_those_of_root():
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2).half())
    mine = hvd.allgather_object(model.state_dict())
    hvd.broadcast_parameters(model.state_dict(), root_rank=1)
    for name, tensor in model.state_dict().items():
        same_bits(tensor, mine[1][name])


def a_list_of_tensors_is_broadcast_too():
    tensors = [torch.full((2,), float(hvd.rank())), torch.full((), hvd.rank())]
    hvd.broadcast_parameters(tensors, root_rank=1)
    hvd.broadcast_parameters([("named", tensors[0])], root_rank=1)
    assert tensors[0].tolist() == [1.0, 1.0] and tensors[1].item() == 1


def optimizer_of(kind, rank, **options):
    torch.manual_seed(rank)
    model = torch.nn.Linear(3, 2)
    return model, kind(model.parameters(), lr=0.1 * (rank + 1), **options)


def stepped(model, optimizer):
    model(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()


def optimizer_state_becomes_that_of_root():
    kinds = [(torch.optim.SGD, {"momentum": 0.9}), (torch.optim.SGD, {}), (torch.optim.Adam, {"amsgrad": True}),
             (torch.optim.AdamW, {"weight_decay": 0.1 * (hvd.rank() + 1)})]  # fmt: skip
    for kind, options in kinds:
        model, optimizer = optimizer_of(kind, hvd.rank(), **options)
        if hvd.rank() == 1:
            stepped(model, optimizer)
        before = [p.detach().clone() for p in model.parameters()]
        hvd.broadcast_optimizer_state(optimizer, root_rank=1)
        everywhere_the_same(optimizer.state_dict())
        assert optimizer.param_groups[0]["lr"] == 0.2
        assert bool(optimizer.state) == bool(everywhere_the_same(dict(optimizer.state_dict()["state"]))[1])
        for a, b in zip(model.parameters(), before):
            same_bits(a.detach(), b)
        hvd.broadcast_parameters(model.state_dict(), root_rank=1)
        optimizer.zero_grad()
        stepped(model, optimizer)
        everywhere_the_same([p.tolist() for p in model.parameters()])


def a_distributed_optimizers_state_is_broadcast():
    model, optimizer = optimizer_of(torch.optim.Adam, hvd.rank())
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), 0)
    stepped(model, optimizer)
    optimizer.param_groups[0]["lr"] = 0.5 + hvd.rank()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
    hvd.broadcast_parameters(model.state_dict(), 0)
    everywhere_the_same(optimizer.state_dict())
    optimizer.zero_grad()
    stepped(model, optimizer)
    everywhere_the_same([p.tolist() for p in model.parameters()])


def objects_travel():
    for root in range(hvd.size()):
        obj = {"rank": hvd.rank(), "text": "é" * 100 * hvd.rank(), "tensor": torch.ones(2)}
        got = hvd.broadcast_object(obj if hvd.rank() == root else None, root_rank=root)
        assert got["rank"] == root and len(got["text"]) == 100 * root
    gathered = hvd.allgather_object(list(range(hvd.rank())), name="gathered")
    assert gathered == [list(range(rank)) for rank in range(hvd.size())]
    assert hvd.broadcast_object(hvd.rank(), name="named", root_rank=1) == 1


def losses_are_averaged_without_a_graph():
    mean = sum(range(hvd.size())) / hvd.size() + 0.1
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        for shape in ((), (1,), (1, 1)):
            loss = torch.full(shape, hvd.rank() + 0.1, dtype=torch.float64, requires_grad=True).to(dtype)
            result = averaged_loss(loss)
            assert (result.dtype, result.shape, result.requires_grad) == (dtype, torch.Size(shape), False)
            torch.testing.assert_close(result, torch.full(shape, mean, dtype=dtype))
            everywhere_the_same(result.tolist())
    assert averaged_loss(hvd.rank() + 0.5) == averaged_loss(torch.tensor(hvd.rank() + 0.5)).item() == mean + 0.4
    assert averaged_loss(torch.tensor(hvd.rank())).item() == averaged_loss(hvd.rank()) == round(mean)
    with torch.inference_mode():
        inferred = torch.tensor(float(hvd.rank()))
    assert averaged_loss(inferred).item() == round(mean) and not averaged_loss(inferred).is_inference()
    assert averaged_loss(float("nan") if hvd.rank() == 1 else 1.0) != averaged_loss(1.0) == 1.0


def what_is_no_loss_is_returned_as_it_is():
    for thing in (None, (torch.ones(1), "logits"), torch.ones(2), torch.ones((), dtype=torch.complex64), "loss"):
        assert averaged_loss(thing) is thing
    found = averaged_loss(None if hvd.rank() == 1 else 1.0 + hvd.rank())
    assert found is None if hvd.rank() == 1 else found == 2.0


def a_loss_is_averaged_over_a_process_set():
    pair = hvd.add_process_set([0, 2])
    assert averaged_loss(float(hvd.rank()), pair, name="of the pair") == 1.0
    hvd.remove_process_set(pair)


def a_line_search_takes_the_same_steps_on_all_ranks():
    torch.manual_seed(hvd.rank())
    data, target = torch.randn(20, 3), torch.randn(20, 1)
    torch.manual_seed(7)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")
    calls = []

    def closure():
        optimizer.zero_grad()
        loss = torch.nn.functional.l1_loss(model(data), target)
        loss.backward()
        for param in model.parameters():
            hvd.allreduce_(param.grad)
        calls.append(averaged_loss(loss))
        return calls[-1]

    for _ in range(3):
        optimizer.step(closure)
    everywhere_the_same([len(calls), calls, model.state_dict()])


def topology_is_that_of_one_host():
    assert hvd.local_size() == hvd.size() == hvd.global_process_set.size()
    assert hvd.local_rank() == hvd.rank() == hvd.global_process_set.rank()
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    assert hvd.global_process_set.ranks == list(range(hvd.size()))


def init_may_follow_shutdown_with_other_settings():
    handle = hvd.allreduce_async(torch.ones(2), name="old") if hvd.rank() == 0 else None
    for bucket_bytes in (0, 1 << 20):
        hvd.shutdown()
        with raises(ValueError, "has not been initialized"):
            hvd.size()
        hvd.init(settings={"HORO_BUCKET_BYTES": bucket_bytes})
        hvd.init()
        assert hvd.allreduce(torch.ones(2), name="old", op=hvd.Sum).tolist() == [hvd.size()] * 2
    if handle is not None:
        try:
            hvd.synchronize(handle)
        except (hvd.ShutDown, hvd.Mismatch) as error:  # this rank or another one left first
            assert "shut down" in str(error) or "has left" in str(error) or "have left" in str(error), error
        else:
            raise AssertionError("the old session's work succeeded")
    with raises(ValueError, "already"):
        hvd.init(settings={"HORO_BUCKET_BYTES": 1})


def a_wrong_setting_is_refused_by_name():
    hvd.shutdown()
    with raises(ValueError, "HORO_BUCKET_BYTES", "many"):
        hvd.init(settings={"HORO_BUCKET_BYTES": "many"})
    assert not hvd.is_initialized()
    hvd.init()


claims.check(
    parameters_and_buffers_become_those_of_root,
    a_list_of_tensors_is_broadcast_too,
    optimizer_state_becomes_that_of_root,
    a_distributed_optimizers_state_is_broadcast,
    objects_travel,
    losses_are_averaged_without_a_graph,
    what_is_no_loss_is_returned_as_it_is,
    a_loss_is_averaged_over_a_process_set,
    a_line_search_takes_the_same_steps_on_all_ranks,
    topology_is_that_of_one_host,
    init_may_follow_shutdown_with_other_settings,
    a_wrong_setting_is_refused_by_name,
)
