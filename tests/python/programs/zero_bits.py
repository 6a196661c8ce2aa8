"""Divided steps have the bits of plain horo: every optimizer, with clipping, accumulation and several sizes of buckets.

Arguments: steps, sizes of buckets."""

import sys

import torch
from zero_models import OPTIMIZERS, Odd, batches, loss_of, sha_of, sha_of_state, train, wrapped

import horo.torch as hvd

torch.set_num_threads(1)
STEPS, BUCKETS = int(sys.argv[1]), sys.argv[2:]


def trained(kind, name, passes, clip):
    model = Odd() if name == "Adafactor" else Odd().add_empty()  # it divides by the number of elements
    optimizer = OPTIMIZERS[name](model)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=STEPS + 1) if name == "AdamW" else None
    optimizer = wrapped(kind, optimizer, model, backward_passes_per_step=passes)
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_optimizer_state(optimizer, 0)
    norms = train(model, optimizer, batches(hvd.rank(), STEPS * passes), passes, clip, scheduler)
    if kind == "zero":
        optimizer.gather_state(hvd.size() - 1)
    state = sha_of_state(optimizer.state_dict()) if hvd.rank() == hvd.size() - 1 else None
    return sha_of(model), norms, state


def as_one_process():
    """In float64, against one process that has all batches."""
    words = [batches(rank, 5) for rank in range(hvd.size())]
    models = [Odd(torch.float64) for _ in range(2)]
    optimizers = [torch.optim.Adam(model.parameters(), lr=0.01) for model in models]
    divided = wrapped("zero", optimizers[0], models[0])
    train(models[0], divided, words[hvd.rank()])
    for step in range(5):
        optimizers[1].zero_grad()
        for of_rank in words:
            (loss_of(models[1], of_rank[step]) / hvd.size()).backward()
        optimizers[1].step()
    for (name, mine), other in zip(models[0].named_parameters(), models[1].parameters()):
        assert torch.allclose(mine, other, rtol=1e-10, atol=1e-12), name


for bucket in BUCKETS:
    hvd.init(settings={"HORO_BUCKET_BYTES": bucket})
    for name in OPTIMIZERS:
        for passes, clip in ((1, 0.5), (3, None)):
            plain, divided = (trained(kind, name, passes, clip) for kind in ("plain", "zero"))
            assert plain == divided, (name, passes, clip, bucket)
    as_one_process()
    hvd.shutdown()
