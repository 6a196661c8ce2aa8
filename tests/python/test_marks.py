"""What the accounting of steps takes from batches and loaders: it has nothing of them to rely on."""

import copy
import pickle
import threading

import numpy as np
import pytest
import torch

import horo
from horo import _marks


class Shaped:
    def __init__(self, shape):
        self._shape = shape

    @property
    def shape(self):
        if isinstance(self._shape, Exception):
            raise self._shape
        return self._shape


class Broken(tuple):
    def __iter__(self):
        raise RuntimeError("broken")

    __len__ = __eq__ = __ne__ = __iter__


class Lazy(dict):
    def values(self):
        raise KeyError("not loaded")


def nested(layout):
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout)


ODD = (
    *map(Shaped, ("abc", None, 5, float("nan"), [2, 3], ("a", "b"), (None,), (2.5, 3), (float("nan"),), (-1, 3))),
    *map(Shaped, ((np.ones(2), 3), (np.ones(2),), (torch.ones(2),), np.ones(2), Broken((1, 2)), {"a": 1})),
    *map(Shaped, (RuntimeError("no shape"), KeyError("shape"), RecursionError(), AttributeError())),
    *(nested(layout) for layout in (torch.strided, torch.jagged)),
    *(Broken(), Lazy(a=1), [Lazy(a=1)], "abc", b"abc", None, 3, {}, [], (), object()),
)


@pytest.fixture
def marks(monkeypatch):
    """Those of a training thread: this one."""
    found = _marks.Marks()
    found.thread = threading.get_ident()
    monkeypatch.setattr(_marks, "marks", found)
    return found


def take(marks, *batches):
    """A backward uses the batches, each of a loader."""
    iterators = [iter(horo.input([batch])) for batch in batches]
    for iterator in iterators:
        next(iterator)
    marks.uses_batch()
    return marks._samples, marks._work


@pytest.mark.parametrize("batch", ODD, ids=lambda batch: type(batch).__name__)
def test_a_batch_with_an_odd_shape_is_not_known_and_raises_nothing(marks, batch):
    assert take(marks, np.ones((2, 3)), batch, np.ones((2, 3))) == (4, 12)
    assert take(marks, batch) == (4, 12)


@pytest.mark.parametrize("shape", [(1 << 70, 2), (1 << 40, 1 << 40), (1 << 62,) * 9])
def test_huge_shapes_fit_into_the_record_of_a_step(marks, shape):
    for _ in range(3):
        samples, work = take(marks, Shaped(shape))
        _marks._ENDED.pack(_marks._ENDED.size, 0, 0, samples, work, 0, 0, 0)
    assert work == _marks.LARGEST


def test_batches_that_no_backward_uses_take_no_more_memory(marks):
    for _ in range(3 * _marks.MOST_BATCHES):
        list(horo.input([np.ones(2)]))
    assert len(marks.batches) <= _marks.MOST_BATCHES and len(marks._gone) <= _marks.MOST_BATCHES
    iterator = iter(horo.input([np.ones(2)]))
    next(iterator)
    for _ in range(3 * _marks.MOST_BATCHES):
        assert not list(iterator)
    assert len(marks._gone) <= _marks.MOST_BATCHES


class Loader(list):
    """A loader with methods of its own, some of which copies and pickles look for."""

    epoch = 3

    def __deepcopy__(self, memo):
        return Loader(["copied"])

    def __getstate__(self):
        return {}


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_the_copy_of_an_input_is_an_input(copied):
    loader = horo.input([1, 2, 3])
    other = copied(loader)
    assert type(other) is type(loader) and len(other) == 3 and list(other) == list(loader) == [1, 2, 3]
    assert type(copied(horo.input(Loader([1])))) is type(loader)
    assert horo.input(Loader([1])).epoch == 3
    with pytest.raises(AttributeError, match="lacks"):
        loader.lacks
