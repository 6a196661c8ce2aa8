"""Training on a device: ranks have the same bits, gradients are the mean of the ranks', memory does not grow."""

import sys
import time

import place
import torch
from place import DEVICE, bytes_of

import horo.torch as hvd

STEPS, WARM_UP = (int(word) for word in (sys.argv[1:] or ("300", "60")))


def model_of():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 256),
        hvd.SyncBatchNorm(256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 256),
        torch.nn.ReLU(),
        torch.nn.Linear(256, 10),
    ).to(DEVICE)


def batch(step):
    generator = torch.Generator().manual_seed(100 * step + hvd.rank())
    return torch.randn(32, 64, generator=generator).to(DEVICE)


def alike(tensors):
    """Whether the bytes of these tensors are equal on all ranks."""
    return len(set(hvd.allgather_object(b"".join(map(bytes_of, tensors))))) == 1


def reduced_gradients_are_means():
    model, own = model_of(), model_of()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    model(batch(0)).square().mean().backward()
    own(batch(0)).square().mean().backward()
    # torch's CPU kernels are not the device's, so the means are made of the gradients of the device.
    parts = [torch.stack(hvd.allgather_object(each.grad.cpu())).double().mean(0) for each in own.parameters()]
    are_means = all(torch.allclose(a.grad.cpu().double(), b, 1e-5, 1e-7) for a, b in zip(model.parameters(), parts))
    optimizer.zero_grad()
    return are_means


def held():
    """Bytes of the device in use, by torch and by all."""
    if place.IS_FAKE:
        return [0, 0]
    free, total = torch.cuda.mem_get_info()
    return [torch.cuda.memory_allocated(), total - free]


def training():
    model = model_of()
    hvd.broadcast_parameters(model.state_dict(), 0)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    scaler = torch.amp.GradScaler(DEVICE.type, enabled=not place.IS_FAKE)
    before, begun = None, None
    for step in range(STEPS):
        if step == WARM_UP:
            place.synchronize()
            before, begun = held(), time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=not place.IS_FAKE):
            loss = model(batch(step)).float().square().mean()
        scaler.scale(loss).backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    place.synchronize()
    took = (time.perf_counter() - begun) / (STEPS - WARM_UP)
    grown = [after - then for after, then in zip(held(), before)]
    return {"bits_alike": alike(list(model.parameters())), "step_ms": round(1e3 * took, 3), "grown_bytes": grown}


place.start()
result = {"means": reduced_gradients_are_means()} | training()
place.tell(**result)
hvd.shutdown()
