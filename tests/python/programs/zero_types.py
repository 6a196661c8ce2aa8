"""As zero_habits.py: types, memory, compiled methods, closures, copies, sets of ranks, chunks."""

import copy
import math

import torch
from raising import raises
from torch import nn
from zero_models import (
    WORDS,
    Odd,
    adam,
    alike,
    batches,
    divided_state_bytes,
    loss_of,
    sha,
    sha_of,
    sha_of_state,
    train,
    wrapped,
)

import horo
import horo.torch as hvd

torch.set_num_threads(1)
hvd.init()
ME, SIZE = hvd.rank(), hvd.size()


def short_floats():
    def script(kind):
        model = Odd(torch.bfloat16)
        model.norm.float()  # two dtypes
        model.head.forward = lambda x: nn.functional.linear(x.bfloat16(), model.head.weight)
        model.norm.forward = lambda x: nn.functional.layer_norm(x.float(), (17,), model.norm.weight, model.norm.bias)
        optimizer = wrapped(kind, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), model)
        train(model, optimizer, batches(ME, 6))
        return sha_of(model)

    alike(script)


def masters_keep_what_short_floats_lose():
    def trained(masters):
        torch.manual_seed(1)
        model = nn.Linear(40, 30).bfloat16()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        optimizer = horo.zero.DistributedOptimizer(optimizer, model.named_parameters(), masters=masters)
        whole = [param.detach().float().clone().requires_grad_() for param in model.parameters()]
        alone = torch.optim.Adam(whole, lr=1e-4)
        for step in range(12):
            optimizer.zero_grad()
            model(torch.ones(4, 40).bfloat16() * (step % 3 + ME)).float().square().mean().backward()
            for one, param in zip(whole, model.parameters()):
                one.grad = param.grad.float()
            optimizer.step()
            alone.step()
        optimizer.gather_state(None)
        return model, [one.detach().bfloat16() for one in whole], optimizer.state_dict()

    model, expected, content = trained(True)
    assert sha(model.parameters()) == sha(expected)
    assert content["state"][0]["exp_avg"].dtype is content["state"][0]["horo_master"].dtype is torch.float32
    assert sha(trained(False)[0].parameters()) != sha(expected)
    again = nn.Linear(40, 30).bfloat16()
    optimizer = horo.zero.DistributedOptimizer(torch.optim.Adam(again.parameters()), masters=True)
    again.load_state_dict(model.state_dict())
    optimizer.load_state_dict(content)
    again(torch.ones(1, 40).bfloat16()).sum().backward()
    optimizer.zero_grad(set_to_none=True)
    optimizer.step()
    optimizer.gather_state(None)
    assert sha_of_state(optimizer.state_dict()) == sha_of_state(content)


def an_infinite_gradient_is_skipped_by_all():
    def script(kind):
        model = Odd()
        optimizer = adam(model, kind)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for step, words in enumerate(batches(ME, 4)):
            optimizer.zero_grad()
            loss = scaler.scale(loss_of(model, words))
            (loss * float("inf") if step == 1 and ME == SIZE - 1 else loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
        assert hvd.allgather_object(scaler.get_scale()) == [4.0] * SIZE
        return sha_of(model)

    alike(script)


def memory_is_what_the_table_says():
    model = nn.Sequential(*(nn.Linear(300, 300) for _ in range(4)))
    optimizer = adam(model, "zero")
    model(torch.ones(1, 300)).sum().backward()
    optimizer.step()
    elements = sum(param.numel() for param in model.parameters())
    assert abs(divided_state_bytes(optimizer) - 8 * elements / SIZE) <= 8 * 256, "within a block"


def methods_and_compilation():
    def script(kind):
        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(2)
                self.layer = nn.Linear(30, 30)

            def encode(self, x):
                return self.layer(x).tanh()

        model = Encoder()
        optimizer = adam(model, kind)
        compiled = torch.compile(model.encode, backend="aot_eager") if ME % 2 == 0 else model.encode
        for _ in range(3):
            optimizer.zero_grad()
            compiled(torch.ones(2, 30)).sum().backward()
            optimizer.step()
        return sha_of(model)

    alike(script)


def closures_copies_and_sparse_gradients():
    def script(kind):
        model = Odd()
        optimizer = adam(model, kind)
        words = batches(ME, 1)[0]

        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, words)
            loss.backward()
            return loss

        losses = [float(optimizer.step(closure)) for _ in range(3)]
        if kind == "zero":
            optimizer.gather_state(None)
        both = copy.deepcopy({"model": model, "optimizer": optimizer})
        train(both["model"], both["optimizer"], batches(ME, 2))
        return losses, sha_of(model), sha_of(both["model"])

    alike(script)
    model = nn.Embedding(WORDS, 30, sparse=True)
    optimizer = wrapped("zero", torch.optim.SGD(model.parameters(), lr=0.1), model)
    model(torch.tensor([1, 2])).sum().backward()
    with raises(ValueError, "parameter weight has a sparse gradient", "partition='tensors'"):
        optimizer.step()

    def sparse(kind):
        torch.manual_seed(1)
        model = nn.Embedding(WORDS, 30, sparse=True)
        options = {"partition": "tensors"} if kind == "zero" else {}
        optimizer = wrapped(kind, torch.optim.SGD(model.parameters(), lr=0.1), model, **options)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.tensor([step, 2 + ME])).square().sum().backward()
            optimizer.step()
        return sha_of(model)

    alike(sparse)


def a_state_of_horovods_api():
    def script(kind):
        model = Odd()
        optimizer = adam(model, kind)
        state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0)
        state.sync()
        train(model, optimizer, batches(ME, 3))
        if kind == "zero":
            optimizer.gather_state(None)
        state.commit()
        train(model, optimizer, batches(ME, 2, seed=4))
        state.restore()
        state.sync()
        train(model, optimizer, batches(ME, 2, seed=5))
        return sha_of(model)

    alike(script)


def sets_of_ranks():
    part = hvd.add_process_set(range(SIZE - 1)) if SIZE > 2 else hvd.global_process_set

    def script(kind):
        model = Odd()
        optimizer = adam(model, kind, process_set=part)
        train(model, optimizer, batches(ME, 3))
        return sha(model.parameters())

    alike(script)


def gathers_in_many_chunks():
    from horo.torch.sharding import layout

    before, layout.CHUNK_BYTES = layout.CHUNK_BYTES, 1000
    try:
        alike(lambda kind: trained_odd(kind))
    finally:
        layout.CHUNK_BYTES = before


def trained_odd(kind):
    model = Odd()
    train(model, adam(model, kind), batches(ME, 3))
    return sha_of(model)


def whole_state_goes_to_all_ranks_and_so_does_that_of_frozen_parameters():
    model = Odd()
    source = torch.optim.Adam(model.parameters())
    for number, param in enumerate(model.parameters()):
        source.state[param] = {"step": torch.tensor(3.0), "exp_avg": param + number, "exp_avg_sq": param.abs() + number}
    content = source.state_dict()
    optimizer = adam(model, "zero")
    if ME == 0:
        optimizer.load_state_dict(content)
    state = horo.elastic.State(model=model, optimizer=optimizer)
    horo.elastic.run(lambda state: None)(state)
    assert sha_of_state({**optimizer.state_dict(), "param_groups": []}) == sha_of_state({**content, "param_groups": []})
    train(model, optimizer, batches(ME, 1))
    frozen = optimizer.state[model.frozen]["exp_avg"].clone()
    if ME:
        optimizer.state.clear()
    optimizer._zero.state["count"] = ME + 5
    horo.elastic.run(lambda state: None)(state)
    assert torch.equal(optimizer.state[model.frozen]["exp_avg"], frozen) and optimizer._zero.loose_state()["count"] == 5
    assert {"partition=blocks", "masters=False", "redundancy=0"} <= {
        line.split("distributed.")[-1] for line in state.terms()
    }


def states_are_broadcast_after_steps_and_keep_their_dtypes():
    model = Odd(torch.bfloat16)
    optimizer = wrapped("zero", torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model)
    if ME == 0:
        optimizer.state[model.odd]["momentum_buffer"] = torch.arange(1003.0)
    hvd.broadcast_optimizer_state(optimizer, 0)
    assert torch.equal(optimizer.state_of(model.odd)["momentum_buffer"], torch.arange(1003.0))
    model = Odd()
    optimizer = adam(model, "zero")
    train(model, optimizer, batches(ME, 2))
    optimizer.gather_state(None)
    before = sha_of_state(optimizer.state_dict())
    hvd.broadcast_optimizer_state(optimizer, SIZE - 1)
    assert optimizer._zero_whole is None and {*optimizer.state} <= {model.frozen}, "each rank has its part alone"
    parts = torch.tensor(float(divided_state_bytes(optimizer)))
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert hvd.allreduce(parts, op=hvd.Sum) <= 8 * trained
    optimizer.gather_state(None)
    assert sha_of_state(optimizer.state_dict()) == before
    train(model, optimizer, batches(ME, 1))
    assert optimizer._zero_whole is None
    saved = horo.elastic.State(optimizer=optimizer)._fields()[0].of_checkpoint()
    rows = [(tensor.numel(), kind.shape) for _, tensor, kind in saved.horo_state() if tensor.dim()]
    most = sum(math.prod(shape) / SIZE + math.prod(shape[1:]) for _, shape in rows)
    assert 0 < sum(count for count, _ in rows) <= most, "a share of the rows of each tensor"
    assert optimizer._zero_whole is None


def masters_of_parameters_without_gradients():
    def made(**options):
        torch.manual_seed(1)
        model = nn.ModuleList([nn.Linear(40, 30), nn.Linear(9, 9)]).bfloat16()
        kind = torch.optim.Adam(model.parameters(), lr=1e-3)
        return model, horo.zero.DistributedOptimizer(kind, model.named_parameters(), **options)

    def step(model, optimizer):
        model[0](torch.ones(4, 40).bfloat16()).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        optimizer.gather_state(None)
        return optimizer.state_dict()

    model, optimizer = made(masters=True)
    content = step(model, optimizer)
    assert sorted(content["state"]) == [0, 1]
    content["state"][2] = {"horo_master": model[1].weight.float() + 1e-4}  # as of an older file
    called = []
    optimizer.register_load_state_dict_pre_hook(lambda *_: called.append("before"))
    optimizer.register_load_state_dict_post_hook(lambda one: called.append(len(one.state)))
    optimizer.load_state_dict(content)
    assert called == ["before", 3]
    step(model, optimizer)
    short = {key: value.bfloat16() if value.dim() else value for key, value in content["state"][0].items()}
    del short["horo_master"]
    optimizer.load_state_dict({**content, "state": {0: short}})
    assert step(model, optimizer)["state"][0]["exp_avg"].dtype is torch.float32
    other = torch.optim.Adam(made()[0].parameters())
    other.load_state_dict({**content, "state": {n: content["state"][n] for n in (0, 1)}})


class Marked(torch.optim.SGD):
    """Its step() reads an attribute of parameters."""

    def step(self, closure=None):
        for group in self.param_groups:
            self.found = [param.use_muon for param in group["params"]]
        super().step(closure)


def calls_of_hooks(kind):
    """The calls of step hooks of an optimizer and of its copy."""
    model = nn.Linear(3, 2)
    optimizer = wrapped(kind, Marked(model.parameters(), lr=0.1), model)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    both = copy.deepcopy([model, optimizer])
    both[1].register_step_post_hook(lambda *_: calls.append(2))
    for one, other in ((model, optimizer), both):
        for param in one.parameters():
            param.use_muon = True
        one(torch.ones(1, 3)).sum().backward()
        other.step()
        assert all(other.found)
    return calls


def hooks_and_attributes():
    assert calls_of_hooks("zero") == calls_of_hooks("plain")
    model = nn.Linear(3, 2)
    names = list(model.named_parameters())
    for named, words in (
        ([*names, names[0]], "must be unique"),
        ([names[0]], "were not named"),
        (model, "expected pairs"),
        (["weight", "bias"], "sequence of tuples"),
    ):
        with raises(ValueError, words):
            horo.zero.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named)


def sets_of_one_rank():
    last = hvd.add_process_set([SIZE - 1]) if SIZE > 1 else hvd.global_process_set
    model = Odd()
    optimizer = adam(model, "zero", process_set=last)
    train(model, optimizer, batches(ME, 2))
    assert len(optimizer.state_dict()["state"]) > 5
    assert optimizer.state_of(model.odd)["step"].item() == 2
    with raises(ValueError, f"gather_state({SIZE}); expected one of the ranks [{SIZE - 1}]"):
        optimizer.gather_state(SIZE)
    hvd.barrier()  # ranks outside of the set stay until the end


def numbers_on_a_device_are_values():
    from torch._subclasses import FakeTensorMode

    from horo.torch.sharding import Extent, entries

    with FakeTensorMode():
        param, part = torch.zeros(512, device="cuda"), torch.zeros(256, device="cuda")
        entry = {"step": torch.zeros((), device="cuda"), "exp_avg": part}
        forms = entries._forms(param, Extent(0, 0, 256), entry, "Adam")
        assert forms["exp_avg"][0] == "cut" and forms["step"][0] == "value" and forms["step"][1].device.type == "cpu"
        entry = {}
        entries._join(entry, param, slice(0, 256), {"step": forms["step"]}, None)
        assert entry["step"].device == param.device


short_floats()
masters_keep_what_short_floats_lose()
an_infinite_gradient_is_skipped_by_all()
memory_is_what_the_table_says()
methods_and_compilation()
closures_copies_and_sparse_gradients()
a_state_of_horovods_api()
sets_of_ranks()
gathers_in_many_chunks()
whole_state_goes_to_all_ranks_and_so_does_that_of_frozen_parameters()
states_are_broadcast_after_steps_and_keep_their_dtypes()
masters_of_parameters_without_gradients()
hooks_and_attributes()
sets_of_one_rank()
numbers_on_a_device_are_values()
hvd.shutdown()
