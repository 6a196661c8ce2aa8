"""horo.torch.clip_grad_norm_: the bits of a sum that reads each tensor and each chunk by itself, and few reads."""

import math

import pytest

torch = pytest.importorskip("torch")

import horo.torch as hvd  # noqa: E402
from horo.torch import clipping  # noqa: E402

READS = ("item", "tolist", "cpu", "numpy", "nonzero", "__bool__", "__float__", "__int__", "__index__")


def norm_one_by_one(tensors):
    """The norm, by integers of Python."""
    most = max((float(one.detach().abs().max()) for one in tensors if one.numel()), default=0.0)
    if most == 0:
        return most
    exponent, high, low = max(math.frexp(most)[1], -1000), 0, 0
    for part in (part for one in tensors for part in one.detach().reshape(-1).split(clipping.CHUNK)):
        part = torch.view_as_real(part) if part.is_complex() else part
        squares = (part.to(torch.float64) * 2.0**-exponent).square() * (1 << clipping.HIGH)
        first = squares.floor()
        high += int(first.to(torch.int64).sum())
        low += int(((squares - first) * (1 << clipping.LOW)).to(torch.int64).sum())
    total = (high << clipping.LOW) + low
    return math.ldexp(math.sqrt(total / (1 << (clipping.HIGH + clipping.LOW))), exponent)


def params_of(gradients):
    params = [torch.nn.Parameter(torch.zeros_like(one), requires_grad=False) for one in gradients]
    for param, gradient in zip(params, gradients):
        param.grad = gradient.clone(memory_format=torch.preserve_format)
    return params


def drawn(dtype, shape, generator, scale=1.0):
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def odd_gradients(seed):
    """Of odd shapes, strides, types and magnitudes; one has two chunks and a few elements more."""
    generator = torch.Generator().manual_seed(seed)
    scale = 10.0 ** (5 * seed - 15)
    real = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
    scales = [min(scale, 1.0) if dtype is torch.float16 else scale for dtype in real]
    shapes = ((), (1,), (0,), (7, 3), (5, 0, 2))
    found = [drawn(dtype, shape, generator, one) for dtype, one in zip(real, scales) for shape in shapes]
    found.append(drawn(torch.float32, (2 * clipping.CHUNK + 13,), generator, scale))
    found.append(drawn(torch.float64, (41, 30), generator, scale).t())
    found.append(torch.complex(*drawn(torch.float32, (2, 333), generator, scale)))
    found.append(drawn(torch.float32, (2, 6, 5, 4), generator).to(memory_format=torch.channels_last))
    return found


@pytest.mark.parametrize("seed", range(7))
def test_the_norm_has_the_bits_of_a_sum_that_reads_each_chunk_by_itself(seed):
    gradients = odd_gradients(seed)
    norm = norm_one_by_one(gradients)
    params = params_of(gradients)
    found = hvd.clip_grad_norm_(params, 0.5 * norm)
    assert found.dtype is torch.float64 and found.item() == norm
    factor = min(1.0, 0.5 * norm / (norm + 1e-6))
    for param, gradient in zip(params, gradients):
        assert torch.equal(param.grad, gradient * factor) and param.grad.stride() == gradient.stride()


def test_one_value_that_is_no_number_or_infinite_is_the_norm():
    for value, number in ((math.nan, "nan"), (math.inf, "inf")):
        for place in (0, 2):
            gradients = [torch.ones(3), torch.ones(2, dtype=torch.float16), torch.ones(4)]
            gradients[place][1] = value
            assert str(hvd.clip_grad_norm_(params_of(gradients), 1.0).item()) == number


class CountsReads(torch.overrides.TorchFunctionMode):
    """Counts the calls for which the host reads the values of a tensor."""

    count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.count += getattr(function, "__name__", "") in READS
        return function(*args, **(kwargs or {}))


def test_the_host_reads_the_device_twice_however_many_tensors_and_chunks_there_are(monkeypatch):
    monkeypatch.setattr(clipping, "CHUNK", 100)
    for gradients in ([torch.ones(3)], [torch.ones(1_000)] * 20 + [torch.ones(5, dtype=torch.float64)]):
        params = params_of(gradients)
        with CountsReads() as reads:
            hvd.clip_grad_norm_(params, 1.0)
        assert reads.count == 2
