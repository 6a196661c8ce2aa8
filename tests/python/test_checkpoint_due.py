"""Due: at which steps a State is saved, the same on all ranks."""

import pytest

from horo.checkpoint.due import MOST_STEPS, Due


def test_every_so_many_steps_whatever_step_it_begins_at():
    due = Due(every_rounds=10)
    due.begin(7)
    saved = []
    for step in range(7, 45):
        if due.ask(step, agree=None):
            saved.append(step)
            due.begin(step)
    assert saved == [10, 20, 30, 40]


def test_a_step_that_was_no_border_is_made_up_for():
    due = Due(every_rounds=10)
    due.begin(0)
    assert [step for step in (4, 9, 13, 15) if due.ask(step, agree=None)] == [13, 15]  # not saved meanwhile


@pytest.mark.parametrize(("of_step", "every_s"), [(0.01, 60.0), (0.3, 5.0), (4.0, 60.0), (90.0, 60.0), (1e-6, 0.001)])
def test_by_seconds_with_few_agreements(of_step, every_s):
    due, last, asked, saved = Due(every_s=every_s), 0, [], []
    due.begin(0)

    def agree():
        asked.append(step)
        return (step - last) * of_step, of_step

    steps = int(5 * max(every_s, of_step) / of_step) + 1
    for step in range(1, steps + 1):
        if due.ask(step, agree):
            saved.append(step)
            last = step
            due.begin(step)
    expected = max(1, round(every_s / of_step))
    assert saved, (asked[:10], steps)
    for before, after in zip([0, *saved], saved):
        assert abs(after - before - expected) <= 1
    assert len(asked) <= len(saved) * (2 + 2 * expected.bit_length() + expected / MOST_STEPS)


def test_slower_steps_delay_a_save_by_few_of_them():
    due = Due(every_s=100.0)
    due.begin(0)
    now, step = 0.0, 0
    while True:
        step += 1
        now += 0.1 if step <= 200 else 1.0
        if due.ask(step, lambda: (now, now / step)):
            break
    assert 100 <= now + 0.5 and now < 200


def test_ranks_that_join_ask_at_the_same_steps():
    one, other = Due(every_s=60.0), Due(every_s=60.0)
    one.begin(0)
    now = 0.0
    for step in range(1, 50):
        now += 0.7
        assert not one.ask(step, lambda: (now, 0.7))
    other.load_state(one.state())
    for step in range(50, 120):
        now += 0.7
        asked = [[], []]
        answers = [
            due.ask(step, lambda place=place: (asked[place].append(step), (now, 0.7))[1])
            for place, due in enumerate((one, other))
        ]
        assert answers[0] == answers[1] and asked[0] == asked[1]
        if answers[0]:
            return
    pytest.fail("no save")
