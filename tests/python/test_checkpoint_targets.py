"""horo.checkpoint.load() into tensors and arrays whose elements are not one run of memory: all or nothing."""

import numpy
import pytest
import torch
from numpy.lib.stride_tricks import as_strided
from test_checkpoint import checkpoint, saved

VALUES = torch.arange(12.0).reshape(4, 3)


def loads(path, there):
    """load() of the field `there` beside tensors that come before and after it, which stay as they are if it fails."""
    x = {"a": torch.zeros(5), "there": there, "z": torch.zeros(3).expand(2, 3), "zz": torch.zeros(6, 2)[:, 0]}
    try:
        checkpoint.load(path, x)
    except ValueError:
        assert not x["a"].any() and not x["z"].any() and not x["zz"].any()
        raise
    assert x["a"].all() and x["z"].all() and x["zz"].all()


def saved_with(path, values):
    return saved(path, {"a": torch.ones(5), "there": values, "z": torch.ones(2, 3), "zz": torch.ones(6)})


OVERLAPPING = {
    "unfold": lambda: torch.zeros(6).unfold(0, 3, 1),
    "steps": lambda: torch.zeros(20).as_strided((4, 3), (2, 3)),
    "array": lambda: as_strided(numpy.zeros(6, numpy.float32), (4, 3), (4, 4)),
    "bytes": lambda: as_strided(numpy.zeros(20, numpy.float32), (4, 3), (10, 4)),
}


@pytest.mark.parametrize("made", OVERLAPPING.values(), ids=OVERLAPPING)
def test_elements_that_share_memory_are_refused_by_name(tmp_path, made):
    path, there = saved_with(tmp_path / "x", VALUES), made()
    with pytest.raises(ValueError, match=r"^horo.checkpoint.load: elements of the (tensor|array) there, of shape"):
        loads(path, there)
    assert not there.any()


EXPANDED = {
    "tensor": lambda: torch.zeros(3).expand(4, 3),
    "array": lambda: as_strided(numpy.zeros(3, numpy.float32), (4, 3), (0, 4)),
}


@pytest.mark.parametrize("made", EXPANDED.values(), ids=EXPANDED)
def test_an_expanded_target_that_cannot_have_the_values_is_refused_before_any_is_set(tmp_path, made):
    path, there = saved_with(tmp_path / "x", VALUES), made()
    with pytest.raises(ValueError, match="^horo.checkpoint.load: the (tensor|array) there is expanded"):
        loads(path, there)
    assert not there.any()
    loads(saved_with(tmp_path / "y", torch.ones(4, 3)), there)
    assert there.all()


APART = {
    "interleaved": lambda: torch.zeros(8).as_strided((2, 3), (3, 2)),
    "reversed": lambda: numpy.zeros((4, 3), numpy.float32)[::-1, ::-1].T[1:, :2].T,
    "one": lambda: torch.zeros(1, 6).expand(1, 6).unfold(1, 2, 4)[0],
    "empty": lambda: torch.zeros(0, 4).as_strided((0, 4), (1, 1)),
}


@pytest.mark.parametrize("made", APART.values(), ids=APART)
def test_elements_apart_from_each_other_are_set_whatever_the_strides(tmp_path, made):
    there = made()
    values = torch.arange(1.0, there.shape[0] * there.shape[1] + 1).reshape(tuple(there.shape))
    loads(saved_with(tmp_path / "x", values), there)
    assert numpy.array_equal(numpy.asarray(there), values)


def test_tensors_of_inference_mode_are_set(tmp_path):
    with torch.inference_mode():
        there, strided = torch.zeros(2, 3), torch.zeros(3, 2).t()
    saved(tmp_path / "x", {"there": torch.ones(2, 3), "strided": torch.ones(2, 3)})
    checkpoint.load(tmp_path / "x", {"there": there, "strided": strided})
    assert there.all() and strided.all()


def test_messages_have_the_name_of_the_call(tmp_path):
    saved(tmp_path / "x", {"one": numpy.arange(3.0)})
    with pytest.raises(ValueError, match="^horo.checkpoint.load: the array one is read-only"):
        checkpoint.load(tmp_path / "x", {"one": numpy.frombuffer(bytes(24))})
    with pytest.raises(ValueError, match="^horo.checkpoint.save: the tensor one is torch.sparse_coo on cpu"):
        checkpoint.save(tmp_path / "y", {"one": torch.eye(2).to_sparse()})
    with pytest.raises(ValueError, match="^horo.checkpoint.save: the tensor one is nested, torch.strided on cpu"):
        checkpoint.save(tmp_path / "y", {"one": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])})
    with pytest.raises(ValueError, match="^horo.checkpoint.save: net.weight has no shape yet"):
        checkpoint.save(tmp_path / "y", {"net": torch.nn.LazyLinear(3)})
