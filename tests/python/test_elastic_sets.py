"""Process sets with shrinks=True: after a death the members that are left go on, as the world does."""

import re

import pytest
from test_elastic import LOST, command, job, run, torch_job

SURVIVORS = {1: (0, 2, 4), 4: (0, 1, 2)}  # of the set, by the rank that dies
# By call: the results on these ranks of what was in flight at the death; None: the rank does not take part.
CALLS = {
    1: {
        "average": ([7.0],) * 3,
        "unnamed": ([21.0],) * 3,
        "unit": ([21.0] * 4,) * 3,
        "gathered": ([1.0, 1.0, 4.0, 4.0, 16.0, 16.0],) * 3,
        "of first": ([1.0],) * 3,
        "of middle": (LOST,) * 3,
        "of last": (LOST,) * 3,
        "at first": ([7.0], "nothing", "nothing"),
        "at last": (LOST,) * 3,
        "dealt": (LOST,) * 3,
        "exchanged": (LOST,) * 3,
        "scattered": (LOST,) * 3,
        "message": (LOST, None, None),
        "barrier": ("nothing",) * 3,
    },
    4: {
        "average": ([7 / 3],) * 3,
        "unnamed": ([7.0],) * 3,
        "unit": ([7.0] * 4,) * 3,
        "gathered": ([1.0, 1.0, 2.0, 2.0, 4.0, 4.0],) * 3,
        "of first": ([1.0],) * 3,
        "of middle": ([4.0],) * 3,
        "of last": (LOST,) * 3,
        "at first": ([7 / 3], "nothing", "nothing"),
        "at last": (LOST,) * 3,
        "dealt": (LOST,) * 3,
        "exchanged": (LOST,) * 3,
        "scattered": (LOST,) * 3,
        "message": ("nothing", None, [1.0]),
        "barrier": ("nothing",) * 3,
    },
}


def again(victim):
    """The results of the same calls, made again by the three members that are left."""
    values = [2.0**rank for rank in SURVIVORS[victim]]
    first, middle, last = values
    three = (sum(values),) * 3
    return {
        "average": ([sum(values) / 3],) * 3,
        "unnamed": ([three[0]],) * 3,
        "unit": ([three[0]] * 4,) * 3,
        "gathered": ([value for value in values for _ in range(2)],) * 3,
        "of first": ([first],) * 3,
        "of middle": ([middle],) * 3,
        "of last": ([last],) * 3,
        "at first": ([sum(values) / 3], "nothing", "nothing"),
        "at last": ("nothing", "nothing", [value for value in values for _ in range(2)]),
        "dealt": ([three[0]] * 4,) * 3,
        "exchanged": ([first] * 4 + [middle] * 2,) * 3,
        "scattered": ([first] * 4,) * 3,
        "message": ("nothing", [first], None),
        "barrier": ("nothing",) * 3,
    }


def check(found, expected, victim):
    assert found.keys() == expected.keys()
    for key, result in expected.items():
        if result == LOST:
            assert re.match(rf"PeerLost {victim}: .*rank {victim}\b", found[key]), (key, found[key])
        elif result == "nothing":
            assert found[key] == result, key
        else:
            numbers = [float(number) for number in re.findall(r"[\d.]+", found[key])]
            assert numbers[: len(result)] == pytest.approx(result), (key, found[key])


@pytest.mark.parametrize("victim", [1, 4])
def test_calls_in_flight_run_again_or_fail_once_on_all_members(victim):
    output, _ = run(command(5, "elastic_sets", "calls", victim))
    found = {True: {}, False: {}}
    for rank, repeated, name, result in re.findall(r"^\[(\d)\] (again: )?(.+?) = (.*)$", output, re.MULTILINE):
        found[bool(repeated)][name, int(rank)] = result
    for repeated, rows in ((False, CALLS[victim]), (True, again(victim))):
        of_rank = zip(SURVIVORS[victim], *rows.values())
        expected = {(name, rank): one for rank, *each in of_rank for name, one in zip(rows, each) if one is not None}
        check(found[repeated], expected, victim)


@pytest.mark.parametrize(
    "victims, call, root, result, size",
    [
        ("4,2", "broadcast", 1, "[1.0", 2),
        ("0,1", "broadcast", 2, LOST, 2),
        ("0,1", "broadcast", 4, LOST, 2),
        ("4,0", "broadcast", 0, LOST, 2),
        ("3,0", "broadcast", 1, LOST, 3),
        ("3,4", "gather", 0, "[0.0", 3),
        ("3,2", "gather", 4, LOST, 3),
        ("3,0", "alltoall", 0, LOST, 3),
        ("1,4", "alltoall", 0, LOST, 2),
        ("4,2", "allreduce", 0, "[0.5", 2),
    ],
)
def test_a_call_from_before_the_losses_were_seen_means_the_ranks_of_then(victims, call, root, result, size):
    lines, errors = job(5, "elastic_sets", "stale", victims, call, root, deadline=10)
    found = [line for line in lines if line.startswith(call)]
    expected = [f"{call} = {result}"] + [f"{call} = nothing"] * (size - 1) * (call == "gather" and result != LOST)
    assert len(found) == size and all(line.endswith(f" {size}") for line in found), (found, errors)
    assert all(any(line.startswith(one) for one in expected) for line in found), found
    assert lines.count("end of 3") == ("3" not in victims)


def test_a_set_without_members_is_gone_and_one_set_has_the_ranks_of_another():
    lines, errors = job(4, "elastic_sets", "gone")
    assert sorted(lines) == ["end of 0", "end of 3"], errors


def test_a_join_ends_among_those_who_are_left():
    lines, errors = job(4, "elastic_sets", "join")
    assert sorted(lines) == ["end of 0", "end of 1", "end of 3"], errors


def test_a_set_of_its_members_alone_is_lost_by_name_or_shrinks():
    lines, errors = job(4, "elastic_sets", "members")
    assert sorted(lines) == ["end of 0", "end of 1", "end of 3"], errors


@pytest.mark.parametrize("options", [("--min-np", "1"), ()])
def test_ranks_agree_on_shrinks(options):
    lines, errors = job(3, "elastic_sets", "differ", options=options)
    assert sorted(lines) == ["end of 0", "end of 1", "end of 2"], errors


@pytest.mark.parametrize("form", ["plain", "views", "groups"])
def test_an_optimizer_of_the_set_goes_on_with_the_bits_of_an_oracle(form):
    lines, errors = torch_job(5, "elastic_sets_training", form)
    assert sorted(lines) == [f"rank {rank} has the bits of the oracle" for rank in (0, 3)], errors


@pytest.mark.parametrize("form", ["plain", "views", "priority"])
def test_a_complete_round_is_applied_although_its_set_is_lost(form):
    lines, errors = torch_job(3, "elastic_sets_step", form)
    assert lines == ["the last round is applied"], errors
