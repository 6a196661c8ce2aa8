"""What users write first: it works, or the error says what to write instead. All ranks make the same call."""

import numpy
import torch
import torch.nn.utils.prune
from claims import check, raises

import horo
import horo.numpy as hnp
import horo.torch as hvd

SGD = torch.optim.SGD


def net():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 2))


def wrapped(model, **options):
    return hvd.DistributedOptimizer(SGD(model.parameters(), lr=0.1), model.named_parameters(), **options)


def train(model, optimizer, steps=1):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(3, 4, device="cpu")).square().mean().backward()
        optimizer.step()


def a_name_that_is_elsewhere_is_told():
    told = {
        "allreduce": "import horo.torch as horo",
        "DistributedOptimizer": "import horo.torch as horo",
        "all_reduce": "import horo.torch as horo",
        "local_rnak": "expected local_rank",
        "get_world_size": "expected size",
        "nothing_alike": "has no attribute 'nothing_alike'",
    }
    for name, text in told.items():
        with raises(AttributeError, text):
            getattr(horo, name)
    told = {
        "all_reduce": "expected allreduce",
        "get_rank": "expected rank",
        "DistributedDataParallel": "expected DistributedOptimizer",
        "brodcast_parameters": "expected broadcast_parameters",
        "ReduceOp": "expected Average, Sum",
    }
    for name, text in told.items():
        with raises(AttributeError, text):
            getattr(hvd, name)
    with raises(AttributeError, "expected allgather"):
        hnp.all_gather
    assert not hasattr(hvd, "__wrapped__") and not hasattr(horo, "__path_hooks__")


def what_is_no_optimizer_is_told():
    model = net()
    told = {
        "a model. There is no wrapper of models: wrap its optimizer": model,
        "the class SGD: make an optimizer of it first, as in SGD(params)": SGD,
        "not a generator": model.parameters(),
        "not a NoneType": None,
        "a scheduler: wrap the optimizer": torch.optim.lr_scheduler.StepLR(SGD(model.parameters(), lr=0.1), 1),
    }
    for text, value in told.items():
        with raises(TypeError, "DistributedOptimizer: expected a torch.optim.Optimizer", text):
            hvd.DistributedOptimizer(value)
    with raises(ValueError, "is a DistributedOptimizer already"):
        hvd.DistributedOptimizer(wrapped(model))


def names_of_parameters_are_taken_in_every_form():
    model = net()
    names = model.named_parameters()
    list(names)
    told = {
        "named_parameters is empty: a generator gives its values once": names,
        "It names other tensors, as of a copy": net().named_parameters(),
        "or its state_dict()": model.state_dict(),
        "Name all parameters of the optimizer": list(model.named_parameters())[:2],
        "as model.named_parameters() returns them": model.named_parameters,
        "expected pairs (name, parameter)": model,
        "sequence of tuples (name, parameter)": list(model.parameters()),
        "must be unique": [("a", param) for param in model.parameters()],
    }
    for text, value in told.items():
        with raises(ValueError, text):
            hvd.DistributedOptimizer(SGD(model.parameters(), lr=0.1), value)
    optimizer = hvd.DistributedOptimizer(SGD(model.parameters(), lr=0.1), dict(model.named_parameters()))
    train(model, optimizer)


def parameters_are_broadcast_from_every_form():
    for form in (
        lambda model: model,
        lambda model: model.parameters(),
        lambda model: model.named_parameters(),
        lambda model: tuple(model.named_parameters()),
        lambda model: model.state_dict(),
    ):
        model = net()
        with torch.no_grad():
            for param in model.parameters():
                param.add_(hvd.rank())
        hvd.broadcast_parameters(form(model), 1)
        assert all((a == b + 1).all() for a, b in zip(model.parameters(), net().parameters()))
    optimizer = wrapped(net())
    with raises(ValueError, "invalid params", "broadcast_optimizer_state(optimizer, root_rank) is for optimizers"):
        hvd.broadcast_parameters(optimizer, 0)
    with raises(ValueError, "param_groups is a list", "broadcast_optimizer_state(optimizer, root_rank)"):
        hvd.broadcast_parameters(optimizer.state_dict(), 0)
    used = net().parameters()
    list(used)
    with raises(ValueError, "the generator is empty"):
        hvd.broadcast_parameters(used, 0)
    with raises(TypeError, "expected an optimizer, not Sequential", "broadcast_parameters"):
        hvd.broadcast_optimizer_state(net(), 0)
    with raises(TypeError, "expected an optimizer, not SGD"):
        hvd.broadcast_optimizer_state(SGD, 0)


def what_is_no_tensor_is_told_with_what_to_pass():
    told = {
        "torch.tensor(values) makes one": [1.0],
        "the grouped_ forms take several tensors": [torch.ones(1)],
        "metric_average is for numbers": 3.0,
        "broadcast_object() and allgather_object()": None,
        "horo.numpy has this call for arrays": numpy.ones(2),
        "DistributedOptimizer are for models": net(),
    }
    for text, value in told.items():
        with raises(TypeError, "expected a torch.Tensor", text):
            hvd.allreduce(value)
    with raises(TypeError, "numpy.array(values) makes one"):
        hnp.allreduce([1])
    with raises(ValueError, "arrays of object are not supported"):
        hnp.allreduce(numpy.array([object()]))
    with raises(RuntimeError, "tensor.reshape(1)"):
        hvd.allgather(torch.tensor(1.0))
    with raises(NotImplementedError, "not yet", "model.to_empty(device='cpu')"):
        hvd.allreduce(torch.ones(2, device="meta"))
    with raises(TypeError, "cannot be pickled", "Send lists, dicts"):
        hvd.allgather_object(lambda: 1)
    with raises(TypeError, "expected a handle", "not a Tensor", "have waited"):
        hvd.synchronize(hvd.allreduce(torch.ones(2)))
    assert (hvd.allreduce_async(torch.ones(2), name="waited").wait() == 1).all()


def lazy_modules_are_told_and_work_after_a_forward():
    model = torch.nn.Sequential(torch.nn.LazyLinear(3))
    text = "belongs to a lazy module: run one forward pass on all ranks first"
    with raises(ValueError, "parameter 0.weight", text):
        wrapped(model)
    with raises(ValueError, "horo.broadcast_parameters: 0.bias", text):
        hvd.broadcast_parameters(model.state_dict(), 0)
    with raises(ValueError, "horo.allreduce", text):
        hvd.allreduce(model[0].weight)
    model(torch.ones(1, 4))
    hvd.broadcast_parameters(model.state_dict(), 0)
    train(model, wrapped(model))


def a_model_of_another_dtype_is_told_at_the_next_backward():
    model = net()
    optimizer = wrapped(model)
    train(model, optimizer)
    optimizer.zero_grad()
    with raises(ValueError, "torch.float64", "convert the model first"):
        model.double()(torch.ones(3, 4).double()).sum().backward()


def parameters_that_torch_takes_in_place_train_on():
    """New memory, pruning and a default dtype: what torch trains is trained, the same on all ranks."""
    model = net()
    optimizer = wrapped(model)
    train(model, optimizer, 2)
    model[0].weight.data = torch.full((6, 4), 0.5)
    torch.nn.utils.prune.l1_unstructured(model[1], "weight", amount=0.3)
    train(model, optimizer, 2)
    assert (model[0].weight != 0.5).any()
    hvd.audit()
    for dtype in (torch.float64, torch.bfloat16):
        torch.set_default_dtype(dtype)
        try:
            train_in(dtype)
            assert hvd.metric_average(2.0, "metric") == 2.0
        finally:
            torch.set_default_dtype(torch.float32)


def train_in(dtype):
    model = net()
    assert model[0].weight.dtype is dtype
    optimizer = wrapped(model)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(3, 4, dtype=dtype)).square().mean().backward()
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, 0)


def a_default_device_changes_nothing():
    """Every call makes its own memory on the CPU, whatever the default device."""
    model, ones = net(), torch.ones(4, 3)
    norm, indices, values = hvd.SyncBatchNorm(3), torch.tensor([[0]]), torch.tensor([1.0])
    sparse = torch.sparse_coo_tensor(indices, values, (3,))
    options = ({"gradient_as_bucket_view": True}, {"cross_barrier": True}, {"op": hvd.Adasum}, {"groups": 1})
    torch.set_default_device("meta")
    try:
        for option in ({}, *options):
            optimizer = wrapped(model, **option)
            train(model, optimizer, 3)
            optimizer.synchronize()
            del optimizer
        optimizer = wrapped(model)
        hvd.broadcast_parameters(model.state_dict(), 0)
        hvd.broadcast_optimizer_state(optimizer, 0)
        assert hvd.broadcast_object([1]) == [1] and hvd.allgather_object(2) == [2, 2]
        assert hvd.metric_average(2.0, "metric") == 2.0
        norm(ones).sum().backward()
        assert hvd.synchronize(hvd.sparse_allreduce_async(sparse, "sparse", hvd.Sum)).to_dense()[0] == 2
        for call in (hvd.allgather, hvd.alltoall, hvd.reducescatter, hvd.barrier, hvd.audit):
            call(*([ones] if call.__name__ not in ("barrier", "audit") else []))
        hvd.elastic.TorchState(model, optimizer, epoch=0).sync()
    finally:
        torch.set_default_device(None)


check(
    a_name_that_is_elsewhere_is_told,
    what_is_no_optimizer_is_told,
    names_of_parameters_are_taken_in_every_form,
    parameters_are_broadcast_from_every_form,
    what_is_no_tensor_is_told_with_what_to_pass,
    lazy_modules_are_told_and_work_after_a_forward,
    a_model_of_another_dtype_is_told_at_the_next_backward,
    parameters_that_torch_takes_in_place_train_on,
    a_default_device_changes_nothing,
)
