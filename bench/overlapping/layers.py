"""A model of equal layers that compute by sleeping: all that is left to see is when bytes move."""

import time

import torch


class _Compute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, layer):
        time.sleep(layer.forward_s)
        ctx.layer = layer
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        layer = ctx.layer
        time.sleep(layer.backward_s)
        return gradient, torch.full((layer.weight.numel(),), layer.value), None


class Layer(torch.nn.Module):
    """Its gradient is `value` in every element."""

    def __init__(self, elements):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(elements))
        self.forward_s = self.backward_s = 0.0
        self.value = 0.0
        self.began = 0.0

    def forward(self, x):
        self.began = time.perf_counter()  # its parameters are those after the step
        return _Compute.apply(x, self.weight, self)


def model_of(layers, elements):
    return torch.nn.Sequential(*(Layer(elements) for _ in range(layers)))


def pace(model, forward_s, backward_s):
    """How long all layers take together."""
    for layer in model:
        layer.forward_s, layer.backward_s = forward_s / len(model), backward_s / len(model)


def give(model, number, rank):
    """The gradients of the next backward: numbers whose sums are exact, so that orders of addition do not show."""
    for i, layer in enumerate(model):
        layer.value = float((number * 7 + i * 3 + rank) % 32)
