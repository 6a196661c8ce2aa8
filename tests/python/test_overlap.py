"""A short part of bench/overlap."""

import json
import pathlib
import sys

import ranks

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

from overlapping import figures  # noqa: E402

CONTESTANTS = {"fifo-barrier", "priority-barrier", "fifo", "priority"}


def test_overlap_times_all_contestants_and_finds_them_equal(root, tmp_path):
    sizes = ["--layers", "3", "--mib", "0.01", "--backward-ms", "6,3", "--forward-ms", "3", "--rounds", "2"]
    command = [sys.executable, root / "bench/overlap", *sizes, "--line", "none", "--json", tmp_path / "result.json"]
    ended = ranks.run_ranks([str(word) for word in command], 2, deadline_s=360)
    assert [rank.code for rank in ended] == [0, 0], ranks.RanksFailed(ended)
    written = json.loads((tmp_path / "result.json").read_text())
    assert written["equal"] and len(written["quiet"]) == 2
    assert written["machine"]["ranks"] == 2 and written["options"]["line"] == "none"
    assert [row["backward_ms"] for row in written["rows"]] == [6, 3]
    for row in written["rows"]:
        assert row["contestants"].keys() == CONTESTANTS and len(row["round_transfer_s"]) == 2
        for name, one in row["contestants"].items():
            assert one["backward_ms"] >= row["backward_ms"] and one["forward_done_ms"] >= 3
            assert 0 < one["next_forward_ms"] < one["forward_done_ms"] and len(one["round_first_s"]) == 2
            assert (one["hidden"] is None) == (not name.endswith("barrier"))
            assert name in ended[0].output


def test_figures_are_medians_and_shares_those_of_a_round():
    def turns(reduced, first):
        return {"backward": [0.15] * 3, "reduced": reduced, "first": first, "forward": [0.2] * 3}

    case = {"transfer": [0.1, 0.2, 0.1], "fifo-barrier": turns([0.01, 0.04, 0.01], [0.02] * 3)}
    case |= {"fifo": turns([None] * 3, [0.04, 0.08, 0.04]), "priority": turns([None] * 3, [0.01, 0.06, 0.02])}
    row = figures.row_of(150, case)
    assert row["transfer_ms"] == 100 and row["contestants"]["fifo-barrier"]["hidden"] == 0.9
    assert row["contestants"]["priority"]["earlier_than_fifo"] == 0.5
    assert row["contestants"]["priority"]["next_forward_ms"] == 20 and row["contestants"]["fifo"]["hidden"] is None
    assert "priority" in figures.table([row])
