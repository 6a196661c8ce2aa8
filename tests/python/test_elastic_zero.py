"""Ranks with a divided optimizer die: no step and no state is lost, and the bits are those of plain horo."""

import ast

import pytest
from test_elastic import torch_job

ONE_AFTER_THE_OTHER = ("4:backward:1", "3:updated:2", "2:after-step:4", "1:before-step:6")
KINDS = ("plain", "zero")
IN_ONE_STEP = ("before-rescue", "after-rescue", "before-objects", "before-state", "before-dealt", "after-dealt")


def end_of(size, kind, *deaths):
    lines, errors = torch_job(size, "zero_deaths", kind, *deaths, options=("--min-np", "1", "--restarts", "0"))
    assert errors.count(" died ") == len([one for one in deaths if ":" in one]), errors
    return lines


@pytest.fixture(scope="module")
def plain_ends():
    """The lines of plain horo by deaths."""
    found = {}

    def end(*deaths):
        if deaths not in found:
            found[deaths] = end_of(5, "plain", *deaths)
        return found[deaths]

    return end


@pytest.mark.parametrize("deaths", [ONE_AFTER_THE_OTHER, ("3:between:2",)], ids=str)
def test_parameters_are_those_of_the_plain_script_with_the_same_deaths(plain_ends, deaths):
    assert end_of(5, "zero", *deaths) == plain_ends(*deaths)


@pytest.mark.parametrize("place", IN_ONE_STEP)
def test_a_second_death_while_the_state_is_dealt_anew_loses_nothing(plain_ends, place):
    assert end_of(5, "zero", "3:updated:2", f"1:{place}:2") == plain_ends("3:updated:2", "1:updated:2")


@pytest.mark.parametrize("place", ["before-step", "before-dealt"])
def test_a_death_in_a_first_gather_of_the_state_is_no_error(place):
    (line,) = end_of(3, "zero", f"2:{place}:-1", "early")
    assert line.startswith("end ")


def test_all_ranks_raise_the_same_if_a_member_and_its_buddy_are_lost_together():
    lines = end_of(4, "zero", "1:updated:3", "2:updated:3")
    assert len(lines) == 2 and len(set(lines)) == 1
    assert "member 1 was lost, and so was its buddy, member 2: a part of the state of AdamW is gone" in lines[0]


def test_ranks_that_join_in_mid_pass_get_their_part_of_the_state():
    lines, _ = torch_job(3, "zero_joins", "2:3", "1:20")
    sizes = ast.literal_eval(lines[-1].removeprefix("end "))
    assert sizes[:3] == [3, 3, 2] and 3 in sizes[4:], sizes


def test_states_of_horovod_have_the_whole_state_also_after_a_death():
    options = ("--min-np", "1", "--restarts", "0")
    (plain, *_), (first, *others) = (torch_job(3, "zero_torch_state", kind, "1", options=options)[0] for kind in KINDS)
    assert plain.startswith("digests ") and plain == first and others == [first]


def test_a_death_in_a_save_leaves_a_whole_checkpoint(tmp_path):
    lines, errors = torch_job(3, "zero_saves", tmp_path / "saved", options=("--min-np", "1", "--restarts", "0"))
    assert lines == ["end 2", "end 2"], errors
