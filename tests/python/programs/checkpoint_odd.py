"""Two ranks whose objects are not alike: dicts made in other orders, a tensor that is expanded on one rank alone, a
tensor in several fields. FOLDER: for checkpoints."""

import os
import pathlib

import torch
from claims import check, raises

import horo
import horo.torch as hvd

FOLDER = pathlib.Path(os.environ["FOLDER"])


def dicts_in_another_order_on_each_rank_are_one():
    names = ["a", "b", "c"] if hvd.rank() == 0 else ["c", "b", "a"]
    x = {name: torch.full((3,), float(ord(name))) for name in names} | {"all": {}}
    x["all"] = {name: [x[name] + 1] for name in names}
    horo.checkpoint.save(FOLDER / "order", x).wait()
    there = {name: torch.zeros(3) for name in reversed(names)} | {"all": None}
    found = horo.checkpoint.load(FOLDER / "order", there)
    for name in names:
        assert torch.equal(there[name], x[name]) and torch.equal(found["all"][name][0], x[name] + 1)


def a_tensor_that_one_rank_cannot_set_is_refused_on_all_before_any_is_set():
    values = {"one": torch.arange(12.0).reshape(4, 3), "same": torch.ones(4, 3), "z": torch.ones(7)}
    horo.checkpoint.save(FOLDER / "expanded", values).wait()
    is_last, z = hvd.rank() == 1, torch.zeros(7)
    for made, said in ((torch.zeros(3).expand(4, 3), "expanded"), (torch.zeros(6).unfold(0, 3, 1), "share memory")):
        one = made if is_last else torch.zeros(4, 3)
        with raises(ValueError, "rank 1: horo.checkpoint.load: ", "one", said):
            horo.checkpoint.load(FOLDER / "expanded", {"one": one, "z": z})
        assert not one.any() and not z.any()
    same = torch.zeros(3).expand(4, 3) if is_last else torch.zeros(4, 3)
    horo.checkpoint.load(FOLDER / "expanded", {"same": same, "z": z})
    assert same.all() and z.all()


def a_tensor_in_several_fields_gets_to_each_of_them():
    tensor, model = torch.arange(5.0), torch.nn.Linear(2, 2)
    x = {"a": tensor, "b": tensor, "part": tensor[:3], "m": model, "n": model, "w": model.weight, "l": [tensor, tensor]}
    horo.checkpoint.save(FOLDER / "several", x).wait()
    there = {"b": torch.zeros(5), "part": torch.zeros(3), "n": torch.nn.Linear(2, 2), "w": torch.zeros(2, 2), "l": 0}
    for _ in range(2):
        found = horo.checkpoint.load(FOLDER / "several", there)
    assert torch.equal(there["b"], tensor) and torch.equal(there["part"], tensor[:3])
    assert torch.equal(there["n"].weight, model.weight) and torch.equal(there["w"], model.weight)
    assert all(torch.equal(one, tensor) for one in found["l"])


class Failing:
    """Of which a load can fail on one rank."""

    def __init__(self, fails):
        self.fails = fails

    def state_dict(self):
        return {"a": 1}

    def load_state_dict(self, state):
        del state

    def horo_state(self):
        if self.fails:
            raise KeyError("lost")
        return iter(())


def a_rank_whose_object_fails_ends_the_load_of_all():
    horo.checkpoint.save(FOLDER / "failing", {"thing": Failing(False), "z": torch.ones(7)}).wait()
    z, is_first = torch.zeros(7), hvd.rank() == 0
    with raises(KeyError if is_first else ValueError, "lost" if is_first else "rank 0: KeyError: 'lost'"):
        horo.checkpoint.load(FOLDER / "failing", {"thing": Failing(is_first), "z": z})
    assert not z.any()
    horo.checkpoint.load(FOLDER / "failing", {"thing": Failing(False), "z": z})
    assert z.all()


def a_rank_that_cannot_save_or_load_its_object_leaves_no_other_waiting():
    is_first, good = hvd.rank() == 0, {"z": torch.ones(7)}
    horo.checkpoint.save(FOLDER / "there", good | {"thing": Failing(False)}).wait()
    before = sorted(os.listdir(FOLDER))
    for call in (horo.checkpoint.save, horo.checkpoint.load):
        for bad, error, said in (
            (good | {"thing": object()}, TypeError, "thing"),
            ([good], TypeError, "a list"),
            (good | {"thing": Failing(True)}, KeyError, "lost"),
            (good | {"z": torch.ones(7).to_sparse()}, ValueError, "z"),
        ):
            bad = bad if is_first else good | ({"thing": Failing(False)} if "thing" in bad else {})
            with raises(error if is_first else ValueError, said if is_first else "rank 0: "):
                call(FOLDER / ("bad" if call is horo.checkpoint.save else "there"), bad)
        with raises(ValueError, "" if is_first else "rank 0: ", "the name of a folder"):
            call(b"path" if is_first else FOLDER / "there", good)
    assert sorted(os.listdir(FOLDER)) == before
    horo.checkpoint.save(FOLDER / "good", good).wait()


check(
    a_rank_that_cannot_save_or_load_its_object_leaves_no_other_waiting,
    a_rank_whose_object_fails_ends_the_load_of_all,
    dicts_in_another_order_on_each_rank_are_one,
    a_tensor_that_one_rank_cannot_set_is_refused_on_all_before_any_is_set,
    a_tensor_in_several_fields_gets_to_each_of_them,
)
