"""The end of a rank's program in every way: the error on the other rank, and the exit status."""

import re
import signal
import sys

import pytest
import ranks

HOST = r"\(host \S+\)"
WITH_TEXT = (
    rf"PeerLost, origin 1: rank 1 {HOST} ended by an exception at ends.py:\d+ in exception: "
    "ArithmeticError: the loss is not a number"
)
LEFT = r"Mismatch, origin None: .*rank 1 has left"
HEARD_WITHIN_S = 60  # usually milliseconds; longer on a loaded machine

WAYS = {
    "exception": (1, WITH_TEXT),
    "exception_past_another_hook": (1, WITH_TEXT),
    "exception_with_work_in_flight": (1, WITH_TEXT),
    "exception_without_a_text": (1, rf"origin 1: rank 1 {HOST} .*: Silent: \(its text cannot be formatted\)"),
    "exit_3": (3, LEFT),
    "exit_0": (0, LEFT),
    "end_with_work_in_flight": (0, LEFT),
    "exit_at_once": (4, r"PeerLost, origin 1: rank 1"),
    "terminate": (-signal.SIGTERM, r"PeerLost, origin 1: rank 1"),
    "interrupt": (-signal.SIGINT, rf"PeerLost, origin 1: rank 1 {HOST} .* in finish: KeyboardInterrupt"),
    "exception_in_a_thread": (0, r"\Aheard"),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_other_rank_gets_the_reason(root, way):
    code, text = WAYS[way]
    ended = ranks.run_ranks([sys.executable, str(root / "tests/python/programs/ends.py"), way], 2)
    assert [rank.code for rank in ended] == [0, code], ranks.RanksFailed(ended)
    assert re.search(text, ended[0].output), ranks.RanksFailed(ended)
    heard, began = (
        float(re.search(rf"{word} at ([\d.]+)", rank.output)[1]) for word, rank in zip(("heard", "ends"), ended)
    )
    assert heard - began < HEARD_WITHIN_S
    if code == 1:
        assert re.search("ArithmeticError|Silent|another hook", ended[1].output), "its own traceback"
