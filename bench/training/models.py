"""The models of bench/train_step. Each is a Task: a module that computes its own loss, and its data."""

import collections

import torch
from torch import nn
from torch.nn import functional

# make() returns the module, whose forward(*batch) returns the loss. draw(generator) returns a batch of `samples`
# samples. rate is the learning rate.
Task = collections.namedtuple("Task", "make draw samples rate")

FLOATS = 4096  # per parameter of tensors1000
CLASSES, IMAGE = 1000, 64
WIDTH, HEADS, LAYERS, TOKENS, POSITIONS = 768, 12, 4, 4096, 64


class ManyTensors(nn.Module):
    """A sum of products with each parameter; backward computes the gradients one after the other."""

    def __init__(self, count):
        super().__init__()
        self.parts = nn.ParameterList([torch.zeros(FLOATS) for _ in range(count)])

    def forward(self, x, target):
        y = x
        for part in self.parts:
            y = torch.addcmul(y, part, x)
        return functional.mse_loss(y, target)


def _convolution(inputs, outputs, size, stride):
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class _Residual(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.path = nn.Sequential(
            _convolution(inputs, outputs, 3, stride),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            _convolution(outputs, outputs, 3, 1),
            nn.BatchNorm2d(outputs),
        )
        changes = stride != 1 or inputs != outputs
        self.skip = (
            nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
            if changes
            else nn.Identity()
        )

    def forward(self, x):
        return functional.relu(self.path(x) + self.skip(x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        stem = [_convolution(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
        widths = [64, 64, 128, 256, 512]
        blocks = []
        for inputs, outputs in zip(widths, widths[1:]):
            stride = 1 if inputs == outputs else 2
            blocks += [_Residual(inputs, outputs, stride), _Residual(outputs, outputs, 1)]
        self.layers = nn.Sequential(
            *stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], CLASSES)
        )

    def forward(self, images, labels):
        return functional.cross_entropy(self.layers(images), labels)


class _Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_perceptron = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.queries_keys_values, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.perceptron = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        batch, length, _ = x.shape
        heads = self.queries_keys_values(self.before_attention(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.perceptron(self.before_perceptron(x))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(TOKENS, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)
        self.blocks = nn.Sequential(*(_Block() for _ in range(LAYERS)))
        self.last = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        read, expected = tokens[:, :-1], tokens[:, 1:]
        x = self.tokens(read) + self.positions.weight[: read.shape[1]]
        scores = functional.linear(self.last(self.blocks(x)), self.tokens.weight)
        return functional.cross_entropy(scores.flatten(0, 1), expected.flatten())


BLOCKS = (_Residual, _Block)  # what is a unit of sharding


def _draw_vectors(generator):
    return torch.randn(FLOATS, generator=generator), torch.randn(FLOATS, generator=generator)


def _draw_images(generator, count=4):
    images = torch.randn(count, 3, IMAGE, IMAGE, generator=generator)
    return images, torch.randint(CLASSES, (count,), generator=generator)


def _draw_text(generator):
    return (torch.randint(TOKENS, (1, POSITIONS + 1), generator=generator),)


def task_of(name, tensors):
    """The Task of a model; tensors is the number of parameters of "tensors1000"."""
    return {
        "tensors1000": Task(lambda: ManyTensors(tensors), _draw_vectors, 1, 20.0 / tensors),
        "resnet18": Task(ResNet18, _draw_images, 4, 0.005),
        "gpt2": Task(Gpt2, _draw_text, 1, 0.01),
    }[name]
