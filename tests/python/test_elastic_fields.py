"""The fields of horo.elastic.State by type: what a rank that joins gets, and what is refused."""

import collections

import numpy
import pytest
import torch
from elastic_ranks import OneProcessBorder, Session

import horo
import horo.torch
import horovod.torch
from horo.elastic import Sampler, State, rest, sharded
from horo.elastic.fields import from_json, to_json
from horo.elastic.giving import Giving


def fields_of(**values):
    return State(**values, seed=False)


def give(donor, joiner):
    """The fields of one State to another one, as at a growth."""
    donor._border = OneProcessBorder(None, (0,), 0)
    fields = donor._fields()
    told = from_json(to_json(donor._rest(fields)))
    sources = {name: tensor for field in fields for name, tensor, _ in field.horo_state()}
    made = joiner._fields()
    rows = [row for field in made for row in field.prepare(told["fields"][field.name])]
    assert [name for name, *_ in rows] == list(sources)  # the bytes come one after the other
    for name, tensor, _ in rows:
        with torch.no_grad():
            tensor[...] = sources[name]
    joiner._take(made, told)


def trained(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW([{"params": model[1].parameters()}, {"params": model[0].parameters()}], lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    for _ in range(seed):
        model(torch.randn(5, 3)).square().mean().backward()
        optimizer.step()
        schedule.step()
        averaged.update_parameters(model)
    return {"model": model, "optimizer": optimizer, "schedule": schedule, "averaged": averaged}


def test_a_joining_state_has_equal_bits():
    values = {"number": numpy.arange(3.0), "tensor": torch.ones(2, 2), "best": 0.5, "log": [1, {"a": (2, None)}]}
    donor = fields_of(**trained(3), **values, sampler=Sampler(10))
    mine = {"number": numpy.zeros(3), "tensor": torch.zeros(2, 2), "best": None, "log": "nothing"}
    joiner = fields_of(**trained(0), **mine, sampler=Sampler(10))
    assert not joiner.optimizer.state_dict()["state"] and donor.terms() == joiner.terms()
    array = joiner.number
    donor.sampler.load_state_dict({"pass": 2, "cursor": 4, "again": [[1, 2]]})
    give(donor, joiner)
    for name in ("model", "averaged"):
        one, other = getattr(donor, name).state_dict(), getattr(joiner, name).state_dict()
        assert all(torch.equal(value, other[key]) for key, value in one.items())
    one, other = donor.optimizer.state_dict(), joiner.optimizer.state_dict()
    assert one["param_groups"] == other["param_groups"] and one["state"].keys() == other["state"].keys()
    assert all(torch.equal(entry[key], other["state"][i][key]) for i, entry in one["state"].items() for key in entry)
    assert donor.schedule.state_dict() == joiner.schedule.state_dict()
    assert joiner.number is array and array.tolist() == [0, 1, 2] and joiner.tensor.sum() == 4
    assert (joiner.best, joiner.log) == (0.5, [1, {"a": (2, None)}])
    assert joiner.sampler.state_dict() == {"pass": 2, "cursor": 4, "again": [[1, 2]]}


def test_tensors_have_the_names_of_torchs_flattened_state():
    state = fields_of(**trained(1))
    names = {name for field in state._fields() for name, *_ in field.horo_state()}
    assert {"model.0.weight", "model.1.running_mean", "optimizer.state.0.weight.exp_avg"} <= names
    assert "averaged.module.0.weight" in names


VALUES = [
    None, True, 3, -0.0, float("inf"), "text", [1, [2]], (1, (2.5,)), {"a": 1, 2: "b"}, {"~tensor": 3}, b"\x00\xff",
    {1, 2}, frozenset("a"), 1 + 2j, collections.OrderedDict(b=1, a=2), numpy.float32(0.1), numpy.int64(7),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back_from_json_as_they_were(value):
    back = rest.decode(from_json(to_json(rest.Encoder("field").encode(value))), [])
    assert back == value and type(back) is type(value) and str(back) == str(value)


def test_what_cannot_be_given_is_refused_by_name():
    with pytest.raises(TypeError, match=r"the field 'thing' at a\.0 is a builtins\.object, which can neither be saved"):
        State(thing={"a": [object()]})
    with pytest.raises(TypeError, match="expected names: State"):
        State(torch.nn.Linear(1, 1))
    with pytest.raises(ValueError, match="State has this name itself"):
        State(batches=3)
    with pytest.raises(ValueError, match="buffers='sum'"):
        State(buffers="sum")
    with pytest.raises(AttributeError, match="no field 'worst'"):
        State(best=1).worst = 3


class Own:
    def __init__(self, kind):
        self.kind, self.tensor = kind, torch.arange(3)

    def horo_state(self):
        yield "part", self.tensor, self.kind


def test_an_object_with_horo_state_yields_tensors_of_three_kinds():
    assert State(own=Own("replicated")).terms()[0] == "state.own.part=int64[3]"
    assert State(own=Own("per rank")).terms()[0] == "state.own.part=int64[3]"
    of_parts = State(own=Own(sharded((6,), [(0, 3)])))
    assert of_parts.terms()[0] == "state.own.part=int64[6], sharded"
    with pytest.raises(ValueError, match="own.part is sharded: in an elastic job"):
        of_parts.check_can_be_given()
    with pytest.raises(TypeError, match="expected a tensor that is 'replicated'"):
        State(own=Own("copied"))


ASSIGNED = {
    "model": ([1], "with a module and cannot become a plain value: make the State with a plain value"),
    "optimizer": (None, "with an optimizer and cannot become a plain value"),
    "schedule": (torch.amp.GradScaler("cpu"), "with a CosineAnnealingLR and cannot become a GradScaler"),
    "sampler": (3, "with a Sampler and cannot become a plain value"),
    "tensor": (numpy.zeros(2), "with a tensor and cannot become an array"),
    "array": (0.5, "with an array and cannot become a plain value"),
    "own": (torch.zeros(2), "with a Own and cannot become a tensor"),
    "best": (torch.nn.Linear(1, 1), "with a plain value and cannot become a module"),
}


def test_a_field_keeps_its_kind():
    made = trained(0)
    given = {"tensor": torch.ones(2), "array": numpy.ones(2), "own": Own("replicated"), "best": None}
    state = fields_of(**made, **given, sampler=Sampler(4))
    for name, (value, text) in ASSIGNED.items():
        with pytest.raises(TypeError, match=f"State.{name} was made {text}"):
            setattr(state, name, value)
    with pytest.raises(TypeError, match="the field 'best' is a builtins.range"):
        state.best = range(3)
    terms = state.terms()
    state.best, state.tensor = torch.zeros(3), torch.zeros(2)
    state.model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    assert [line for line in terms if "params" not in line] == [one for one in state.terms() if "params" not in one]


class Saying(torch.nn.Linear):
    """Whose extra state is no value of JSON."""

    extra = object

    def get_extra_state(self):
        return self.extra()

    def set_extra_state(self, state):
        self.extra = lambda: state


def test_extra_states_of_other_types_are_refused_by_name_and_pickled_with_trust():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), Saying(2, 2))
    with pytest.raises(TypeError, match=r"get_extra_state\(\) of a Saying: .* at 1._extra_state is a builtins"):
        State(model=model)
    horovod.torch.elastic.TorchState(model=model)._terms()
    model[1].extra = lambda: range(3)
    joiner = fields_of(model=torch.nn.Sequential(torch.nn.Linear(2, 2), Saying(2, 2)), trust=True)
    give(fields_of(model=model, trust=True), joiner)
    assert joiner.model[1].extra() == range(3)


def test_tensors_of_extra_states_are_those_of_the_first_rank():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), Saying(2, 2))
    model[1].extra = lambda: {"scales": torch.ones(2)}
    (field,) = fields_of(model=model)._fields()
    rest_of = field.rest()
    for rows in (field.horo_state(), field.prepare(rest_of)):
        assert {name: kind for name, _, kind in rows}["model.1._extra_state.scales"] == "per rank"


def test_a_rank_that_joins_gets_the_tensors_of_extra_states_whatever_their_order():
    donor, joiner = (torch.nn.Sequential(*(Saying(2, 2) for _ in range(11))) for _ in range(2))
    for place, one in enumerate(donor):
        value = {"scale": torch.full((2,), float(place)), "amax": torch.ones(3)}
        one.extra = lambda value=value: value
    for one in joiner:
        one.extra = dict
    give(fields_of(model=donor), fields_of(model=joiner))
    for place, one in enumerate(joiner):
        assert one.extra()["scale"].tolist() == [place, place] and one.extra()["amax"].tolist() == [1, 1, 1]


def test_masked_arrays_and_long_numbers_are_refused_by_name():
    for value, kind in (
        (numpy.ma.array([1.0], mask=[True]), "numpy.ma.*MaskedArray"),
        (numpy.longdouble(1), "numpy.*"),
    ):
        with pytest.raises(TypeError, match=f"the field 'thing' is a {kind}, which can neither be saved"):
            State(thing=value)
        with pytest.raises(TypeError, match=f"the field 'things' at 0 is a {kind}, which can neither be saved"):
            State(things=[value])
    joiner = fields_of(thing=None, trust=True)
    give(fields_of(thing=numpy.ma.array([1.0, 2.0], mask=[True, False]), trust=True), joiner)
    assert joiner.thing.mask.tolist() == [True, False]


def test_a_plain_field_can_hold_a_tensor_that_a_joiner_gets():
    donor, joiner = fields_of(best=None), fields_of(best=None)
    donor.best = torch.arange(3)
    give(donor, joiner)
    assert joiner.best.tolist() == [0, 1, 2] and donor.terms() == joiner.terms()


def test_buffers_of_modules_are_those_of_the_first_rank():
    state = fields_of(**trained(1))
    buffers = {one.name: one for one in Giving(state, None, True)._own(state._fields())}
    marked = {name for name, one in buffers.items() if one.of_first}
    of_norm = {f"1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    assert marked == {
        "averaged.n_averaged",
        *(f"model.{name}" for name in of_norm),
        *(f"averaged.module.{name}" for name in of_norm),
    }
    assert "state.model.1.running_mean=float32[4]" in state.terms()
    rest = from_json(to_json({"fields": {one.name: one.rest() for one in state._fields()}}))
    room = Giving(state, Session((0,), 0), False)._room(state._fields(), rest)
    assert [(one.name, one.form, one.of_first) for one in room] == [
        (one.name, one.form, one.of_first) for one in buffers.values()
    ]


def test_trust_pickles():
    assert from_json(to_json(rest.Encoder("f", True).encode(range(3))))["~pickle"]
    with pytest.raises(ValueError, match="horo.elastic.State: .* expected trust=True"):
        rest.decode(rest.Encoder("f", True).encode(range(3)), [])
    assert rest.decode(rest.Encoder("f", True).encode(range(3)), [], True) == range(3)


def test_all_names_are_reachable():
    assert horo.elastic.Sampler is horo.torch.elastic.Sampler
    assert isinstance(horo.torch.elastic.State(best=1), horo.elastic.State)
    assert isinstance(horo.elastic.State(bcast_object=None, get_rank=None), horo.torch.elastic.State)
    assert horovod.torch.elastic.State is horo.torch.elastic.State
