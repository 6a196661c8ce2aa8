"""As zero_habits.py: types, memory, compiled methods, closures, copies, sets of ranks, chunks."""

import copy

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
    from horo.zero import gather

    before, gather.CHUNK_BYTES = gather.CHUNK_BYTES, 1000
    try:
        alike(lambda kind: trained_odd(kind))
    finally:
        gather.CHUNK_BYTES = before


def trained_odd(kind):
    model = Odd()
    train(model, adam(model, kind), batches(ME, 3))
    return sha_of(model)


short_floats()
masters_keep_what_short_floats_lose()
an_infinite_gradient_is_skipped_by_all()
memory_is_what_the_table_says()
methods_and_compilation()
closures_copies_and_sparse_gradients()
a_state_of_horovods_api()
sets_of_ranks()
gathers_in_many_chunks()
hvd.shutdown()
