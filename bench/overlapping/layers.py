"""A model of equal layers that compute by sleeping, so that only communication uses the cores."""

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
        layer.ended = time.perf_counter()
        return gradient, torch.full((layer.weight.numel(),), layer.value), None


class Layer(torch.nn.Module):
    """A layer of one parameter. Every element of its gradient is `value`."""

    def __init__(self, elements):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(elements))
        self.forward_s = self.backward_s = 0.0
        self.value = 0.0
        self.began = 0.0  # of the last forward
        self.ended = 0.0  # end of the last backward; its gradient is reduced later

    def forward(self, x):
        self.began = time.perf_counter()  # by now a hook has waited for the updated parameters
        return _Compute.apply(x, self.weight, self)


def model_of(layers, elements):
    return torch.nn.Sequential(*(Layer(elements) for _ in range(layers)))


def pace(model, forward_s, backward_s):
    """Sets the duration of all layers together."""
    for layer in model:
        layer.forward_s, layer.backward_s = forward_s / len(model), backward_s / len(model)


def set_gradients(model, number, rank):
    """Sets the gradients of the next backward. Their sums are exact, so the order of summation has no effect."""
    for i, layer in enumerate(model):
        layer.value = float((number * 7 + i * 3 + rank) % 32)
