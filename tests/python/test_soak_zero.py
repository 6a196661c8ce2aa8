"""A short run of tools/soak zero, and its judge."""

import json
import random
import subprocess

import pytest
import ranks
from soaks import learn, zero
from test_launchers import executable


def test_ranks_that_die_in_divided_steps_leave_the_bits_of_one_process(root):
    words = [root / "tools/soak", "zero", "--json", "--horo", executable("horo"), "--jobs", "1", "--seed", "2"]
    command = [*ranks.start.tool(), *words, "--kinds", "moments"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    table = json.loads(done.stdout)["table"]
    assert table["moments"]["deaths"] >= 2, table


def test_the_plans_reach_every_place():
    plans = [zero.plan_of(random.Random(f"0/zero/{n}"), n, zero.KINDS[n % len(zero.KINDS)]) for n in range(200)]
    places = {event[2] for plan in plans for events in plan.events.values() for event in events}
    assert places == {*zero.PLACES, *zero.AFTER_A_DEATH, "timer", "full"}
    assert sum(len(plan.events) for plan in plans if plan.what == "moments") >= 200
    assert {plan.way for plan in plans} == set(zero.WAYS) and all(len(plan.events) >= 2 for plan in plans)


MESSAGE = "horo: member 1 was lost, and so was its buddy, member 2: a part of the state of AdamW is gone"
ROUNDS = "[0] round 1 0,1,2,3 0,1,2,3\n[3] round 1 0,1,2,3 0,1,2,3\n"
DEATHS = "[1] kills updated@7\n[2] kills updated@8\n"


@pytest.mark.parametrize(
    "text, found",
    [
        (f"{ROUNDS}{DEATHS}[0] lost {MESSAGE}\n[3] lost {MESSAGE}", []),
        (f"{ROUNDS}{DEATHS}[0] lost {MESSAGE}\n[3] lost other", ["the ranks raise different errors"]),
        (f"{ROUNDS}{DEATHS}[0] lost {MESSAGE}", ["ranks [3] have neither died nor raised ShardLost"]),
        (f"{ROUNDS}[1] kills updated@7\n[0] lost {MESSAGE}\n[3] lost {MESSAGE}", ["neither died", "no such deaths"]),
        (f"{ROUNDS}{DEATHS.replace('8', '10')}[0] lost {MESSAGE}\n[3] lost {MESSAGE}", ["no such deaths"]),
    ],
)
def test_a_loss_without_a_cause_is_found(text, found):
    losses = {int(member): words for member, words in zero.LOST.findall(text)}
    wrong = list(zero.faults_of_lost(learn.Told(text), text, losses))
    assert len(wrong) == len(found) and all(words in one for words, one in zip(found, wrong)), wrong


def test_the_numbers_of_ranks_of_a_job():
    assert zero.sizes_of(learn.Told(f"{ROUNDS}[0] round 2 0,2 0,2,3\n[0] round 3 0,2 0,2,3"), 0) == [4, 3]
