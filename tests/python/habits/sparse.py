"""Embeddings with sparse gradients, which some ranks do not use in every step."""

import torch
from torch import nn


class _Text(nn.Module):
    """An embedding and a layer. A batch without tokens uses the layer alone."""

    def __init__(self, job, sparse):
        super().__init__()
        self.table = nn.Embedding(10, 4, sparse=sparse)
        self.table.weight.data = job.same(10, 4, seed=6)
        self.layer = job.net(4, 2, seed=7)

    def loss(self, tokens, x):
        out = self.layer(x)
        if tokens is not None:
            out = out + self.layer(self.table(tokens).mean(0))
        return (out**2).mean()


def _embedding(job, make, unused, sparse=True, **options):
    """unused(rank, step): whether this rank's batch has no tokens."""
    model = _Text(job, sparse)
    optimizers = make(model)

    def loss(r, step):
        tokens = None if unused(r, step) else job.data(r, step, 6).abs().mul(9).long() % 10
        return model.loss(tokens, job.data(r, step + 40, 3, 4))

    for step in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        job.backward(lambda r: loss(r, step))
        for optimizer in optimizers:
            optimizer.step()
    return model


def habit_a_sparse_embedding(job):
    return _embedding(job, lambda model: [job.wrap(job.sgd(model, momentum=0), model)], lambda r, step: False)


def habit_a_sparse_embedding_unused_on_one_rank_in_the_first_step(job):
    return _embedding(
        job, lambda model: [job.wrap(job.sgd(model, momentum=0), model)], lambda r, step: r == 1 and step == 0
    )


def habit_a_sparse_embedding_used_by_one_rank_alone(job):
    return _embedding(job, lambda model: [job.wrap(job.sgd(model, momentum=0), model)], lambda r, step: r != step % 3)


def habit_a_sparse_embedding_unused_in_the_first_step(job):
    return _embedding(job, lambda model: [job.wrap(job.sgd(model, momentum=0), model)], lambda r, step: step == 0)


def _sparse_adam(job, unused, **options):
    def make(model):
        table, rest = [model.table.weight], list(model.layer.parameters())
        return [
            job.wrap(torch.optim.SparseAdam(table, lr=0.05), [("table", table[0])], **options),
            job.wrap(torch.optim.SGD(rest, lr=0.1), list(model.layer.named_parameters())),
        ]

    return _embedding(job, make, unused)


def habit_sparse_adam(job):
    return _sparse_adam(job, lambda r, step: False)


def habit_sparse_adam_with_sparse_as_dense(job):
    """The reduced gradient is sparse again, as in Horovod: SparseAdam takes no other."""
    model = _Text(job, sparse=True)
    make = lambda: torch.optim.SparseAdam([model.table.weight], lr=0.05)  # noqa: E731
    optimizer = job.wrap(
        make(), [("table", model.table.weight)], **({} if job.is_oracle else {"sparse_as_dense": True})
    )
    for step in range(3):
        optimizer.zero_grad()
        job.backward(lambda r: model.loss(job.data(r, step, 6).abs().mul(9).long() % 10, job.data(r, step, 3, 4)))
        assert model.table.weight.grad.is_sparse
        optimizer.step()
    return [model.table.weight]


def habit_sparse_gradients_as_dense(job):
    """Once per row, also with repeated tokens."""
    return _embedding(
        job,
        lambda model: [job.wrap(job.sgd(model, momentum=0), model, sparse_as_dense=True)],
        lambda r, step: r == 2 and step == 1,
    )


def habit_a_dense_embedding_unused_on_one_rank(job):
    return _embedding(
        job, lambda model: [job.wrap(job.sgd(model), model)], lambda r, step: r == 1 and step < 2, sparse=False
    )


def habit_two_backwards_of_a_sparse_embedding(job):
    model = _Text(job, sparse=True)
    optimizer = job.wrap(job.sgd(model, momentum=0), model)

    def tokens(r, step):
        return job.data(r, step, 6).abs().mul(9).long() % 10

    for step in range(3):
        optimizer.zero_grad()
        job.backward(lambda r: model.loss(tokens(r, step), job.data(r, step, 3, 4)))
        job.backward(lambda r: model.loss(tokens(r, step + 9), job.data(r, step + 5, 3, 4)))
        optimizer.step()
    return model
