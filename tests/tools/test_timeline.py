"""Timelines of digits on four ranks: files that trace viewers read, whose spans nest and sum up to the step."""

import json
import socket

import pytest
import ranks
from launching import ROOT, horo

RANKS = 4
PLACES = ("ph", "pid", "name")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("timelines")
    script = [ranks.start.python(), ROOT / "tests/python/programs/digits_briefly.py", 1]
    env = {"HORO_TIMELINE": str(folder / "trace.json"), "OMP_NUM_THREADS": "1"}
    ended = horo("run", "-n", RANKS, "--", *script, env=env.items())
    assert ended.returncode == 0, ended.stderr
    return folder


def files(folder):
    return [folder / "trace.json", *(folder / f"trace.rank{rank}.json" for rank in range(1, RANKS))]


def spans(events, track):
    return [event for event in events if event["ph"] == "X" and event["tid"] == track]


def tracks(events):
    return {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}


def test_every_event_has_the_fields_of_its_kind(folder):
    for rank, path in enumerate(files(folder)):
        events = json.loads(path.read_text())
        assert len(events) > 100
        for event in events:
            assert all(field in event for field in PLACES) and event["pid"] == rank
            assert event["ph"] in "XMbei"
            assert event["ph"] == "M" or event["ts"] > 0
            assert event["ph"] != "X" or event["dur"] >= 0
            assert event["ph"] not in "be" or (event["id"].startswith(f"{rank}.") and event["cat"] == "tensor")


def test_spans_nest_on_every_track(folder):
    for path in files(folder):
        events = json.loads(path.read_text())
        for track in tracks(events).values():
            open_until = []
            for span in sorted(spans(events, track), key=lambda span: (span["ts"], -span["dur"])):
                end = span["ts"] + span["dur"]
                while open_until and open_until[-1] <= span["ts"] + 0.0005:
                    open_until.pop()
                assert not open_until or end <= open_until[-1] + 0.0015, span
                open_until.append(end)


def test_begins_and_ends_of_each_tensor_match(folder):
    for path in files(folder):
        ways = {}
        for event in json.loads(path.read_text()):
            if event["ph"] == "b":
                ways.setdefault(event["id"], []).append(event["name"])
            elif event["ph"] == "e":
                assert ways[event["id"]].pop() == event["name"]
        assert ways and not any(ways.values())


def test_the_parts_of_a_step_sum_up_to_it(folder):
    for path in files(folder):
        events = json.loads(path.read_text())
        inside = spans(events, tracks(events)["steps"])
        steps = [span for span in inside if span["name"].startswith("step ")]
        assert len(steps) >= 10
        for step in steps:
            assert step["args"]["wait_us"] + step["args"]["compute_us"] == pytest.approx(step["dur"], abs=0.01)
            end = step["ts"] + step["dur"]
            parts = [s for s in inside if s is not step and step["ts"] - 0.001 <= s["ts"] and s["ts"] < end - 0.001]
            assert sum(s["dur"] for s in parts) == pytest.approx(step["dur"], abs=0.01 + 0.001 * len(parts))


def test_merge_joins_all_ranks_and_names_the_last_one(folder):
    merged = folder / "merged.json"
    ended = horo("timeline", "merge", *reversed(files(folder)), "-o", merged, "--json")
    assert ended.returncode == 0, ended.stderr
    ranks = json.loads(ended.stdout)
    assert [one["rank"] for one in ranks] == list(range(RANKS)) and all(one["steps"] >= 10 for one in ranks)
    events = json.loads(merged.read_text())
    assert len(events) == sum(len(json.loads(path.read_text())) for path in files(folder))
    collectives = [event["args"] for event in events if "last_rank" in event.get("args", {})]
    assert sum(one["last"] for one in ranks) == len({(one["epoch"], one["set"], one["number"]) for one in collectives})
    assert all(one["waited_us"] >= 0 and one["last_rank"] in range(RANKS) for one in collectives)
    shown = horo("timeline", "merge", *files(folder), "-o", merged)
    assert shown.returncode == 0 and len(shown.stdout.splitlines()) == 1 + RANKS


def moved(folder, host, clock):
    """The file of rank 1 with times of another clock, which is ahead by 5 s."""
    other = folder / "of_another_host.json"
    lines = files(folder)[1].read_text().splitlines()
    events = [json.loads(line.rstrip(",")) for line in lines[1:-1]]
    for event in events:
        if event["name"] == "horo_timeline":
            event["args"]["host"] = host
            event["args"]["clock"] = clock
        if "ts" in event:
            event["ts"] += 5e6
        for time in ("ready", "released"):
            if time in event.get("args", {}):
                event["args"][time] += 5e6
    other.write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n")
    return other


def test_merge_aligns_clocks_and_states_a_bound_that_holds(folder):
    merged = ["-o", folder / "aligned.json"]
    for host in ("another", socket.gethostname()):  # equal names are not one clock
        other = moved(folder, host, "another clock")
        ended = horo("timeline", "merge", files(folder)[0], other, files(folder)[2], *merged, "--json")
        first, one, same = json.loads(ended.stdout)
        assert 0 < one["clock_bound_us"] < 1e6
        assert abs(one["clock_shift_us"] + 5e6) <= one["clock_bound_us"]
        assert first["clock_shift_us"] == same["clock_shift_us"] == same["clock_bound_us"] == 0
    shown = horo("timeline", "merge", files(folder)[0], other, *merged).stdout
    assert f"  clock of rank 1 (host {socket.gethostname()}): " in shown and " s ahead of that of rank 0, +- " in shown


def test_merge_reads_the_file_of_a_killed_rank(folder):
    cut = folder / "cut.json"
    text = files(folder)[2].read_text()
    cut.write_text(text[: len(text) * 2 // 3])
    ended = horo("timeline", "merge", files(folder)[0], cut, "-o", folder / "joined.json", "--json")
    assert ended.returncode == 0 and json.loads(ended.stdout)[1]["rank"] == 2


def test_merge_leaves_out_a_line_whose_name_is_no_utf8(folder):
    whole, broken, merged = files(folder)[1], folder / "broken.json", folder / "rest.json"
    lines = whole.read_bytes().splitlines(True)
    lines[9] = lines[9].replace(b'"name":"', b'"name":"\xff')
    broken.write_bytes(b"".join(lines))
    assert horo("timeline", "merge", broken, "-o", merged).returncode == 0
    assert len(json.loads(merged.read_text())) == len(json.loads(whole.read_text())) - 1


def test_merge_refuses_what_is_no_job_by_name(folder):
    cases = {
        "are both of rank 0": [files(folder)[0], files(folder)[0]],
        "is no timeline of a rank": [ROOT / "README.md"],
        "cannot read": [folder / "missing.json"],
    }
    for text, given in cases.items():
        ended = horo("timeline", "merge", *given, "-o", folder / "nothing.json")
        assert ended.returncode == 2 and text in " ".join(ended.stderr.split()), ended.stderr
    assert not (folder / "nothing.json").exists()
    ended = horo("timeline", "merge", files(folder)[0], "-o", folder / "no" / "such.json")
    assert ended.returncode == 1 and "cannot write" in ended.stderr
