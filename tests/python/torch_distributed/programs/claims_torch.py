"""Checks of programs of torch.distributed: claims are printed and then checked, in order, on every rank."""

import contextlib
import datetime

import torch
import torch.distributed as dist

DEADLINE = datetime.timedelta(seconds=60)


def check(*claims, backend="horo"):
    """Runs each function in one default group; the last line printed names the one that failed or hung."""
    dist.init_process_group(backend, timeout=DEADLINE)
    for claim in claims:
        print(f"{claim.__name__} ...", flush=True)
        torch.manual_seed(1)
        claim()
    dist.destroy_process_group()
    print("done", flush=True)


@contextlib.contextmanager
def raises(kind, *parts):
    """The block raises exactly this kind, and its text has all these parts."""
    try:
        yield
    except Exception as error:
        assert type(error) is kind, f"{type(error).__name__}: {error}; expected {kind.__name__}"
        missing = [part for part in parts if part.lower() not in str(error).lower()]
        assert not missing, f"{missing} not in: {error}"
    else:
        raise AssertionError(f"nothing was raised; expected {kind.__name__}")


def equal(found, expected):
    assert found.dtype == expected.dtype, f"{found.dtype}, expected {expected.dtype}"
    assert torch.equal(found, expected), f"{found}, expected {expected}"


def close(found, expected, bound=1e-5):
    """Within a relative bound of what one process computes in float64."""
    scale = expected.double().abs().max().clamp(min=1e-30)
    worst = (found.double() - expected.double()).abs().max() / scale
    assert worst < bound, f"relative error {worst:g}, expected less than {bound:g}"
