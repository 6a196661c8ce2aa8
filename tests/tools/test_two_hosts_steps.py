"""Where the steps of ranks on two hosts go: the hosts have clocks of their own, and a line of 10 ms and 4 ms."""

import json
import re
import subprocess
import sys

import pytest
from launching import DEADLINE_S, ROOT, horo

sys.path.insert(0, str(ROOT / "tools"))

import hosts  # noqa: E402

MISSING = hosts.missing(line=True)
if MISSING is None and subprocess.run(["unshare", "-T", "--monotonic", "1", "--fork", "true"]).returncode != 0:
    MISSING = "this kernel has no time namespaces"
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

STEPS, LATE_MS, AHEAD_S = 30, 40, 100
ROUND_TRIP_MS = 14
SCRIPT = f"""
import json, os, time
import numpy, horo.numpy as horo
horo.init()
rank, data = horo.rank(), numpy.ones(64, numpy.float32)
for step in range({STEPS}):
    if rank == (0 if step % 5 == 4 else 1):
        time.sleep({LATE_MS} / 1000)
    horo.allreduce(data, name="gradient")
    horo.step_end()
with open(os.environ["HORO_TIMELINE"] + f".steps{{rank}}", "w") as file:
    json.dump(horo.last_steps(), file)
horo.shutdown()
"""


def median(values):
    return sorted(values)[len(values) // 2]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Two ranks; rank 1, late in four of five steps, has a clock that is ahead. The summary, the steps, the folder."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "train.py").write_text(SCRIPT)
    env = f"HORO_TIMELINE={folder / 'trace.json'}"
    places = ["--nnodes", "2", "-x", env, "--summary"]
    with hosts.two_namespaces(["delay 10ms a->b", "delay 4ms b->a"]) as pair:
        places += ["--addr", f"{pair.addresses['A']}:29400", "--key-file", hosts.write_key(folder)]
        runs = []
        for node, ahead in enumerate([[], ["unshare", "-T", "--monotonic", str(AHEAD_S), "--fork"]]):
            words = [*pair.on("AB"[node]), *ahead, hosts.horo_executable(), "run", "-n", "1", *places]
            words += ["--node-rank", str(node), sys.executable, str(folder / "train.py")]
            runs.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        outputs = [run.communicate(timeout=DEADLINE_S) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    steps = [json.loads((folder / f"trace.json.steps{rank}").read_text()) for rank in range(2)]
    return outputs[0][1], steps, folder


def bars_of(steps, bar):
    return median([step["bars"][bar] / 1e6 for step in steps[3:]])


def test_a_wait_is_divided_within_the_stated_bound(job):
    _, (early, late), _ = job
    skew = sum(step["bars"]["skew"] for step in early[3:])
    assert sum(step["late"].get("1", 0) for step in early[3:]) > 0.9 * skew > 0
    # Rank 0 leaves a step when the bytes of rank 1 have come, 4 ms after rank 1.
    assert bars_of(early, "skew") == pytest.approx(LATE_MS - 4, abs=ROUND_TRIP_MS / 2 + 3)
    # What the rank that is last waits for is the way of its report and of the release, and no rank.
    assert bars_of(late, "skew") <= ROUND_TRIP_MS / 2
    assert bars_of(late, "agreement") == pytest.approx(ROUND_TRIP_MS, abs=ROUND_TRIP_MS / 2 + 3)


def test_the_summary_of_the_first_host_has_all_ranks_and_the_verdict(job):
    summary, _, _ = job
    assert re.search(r"^ *0 .*\n *1 ", summary, re.M), summary
    assert "rank 1" in summary.splitlines()[-1], summary


FOUR = """
import json, os, sys, time
import numpy, horo.numpy as horo
horo.init()
rank, late_ms, count = horo.rank(), float(sys.argv[1]), int(sys.argv[2])
data = numpy.ones(count, numpy.float32)
for step in range(40):
    time.sleep(0.02 + (late_ms / 1000 if rank >= 2 else 0))
    horo.allreduce(data, name="gradient")
    horo.step_end()
with open(os.path.join(os.path.dirname(sys.argv[0]), f"steps{rank}"), "w") as file:
    json.dump(horo.last_steps(), file)
horo.shutdown()
"""


def four_ranks(folder, line, *arguments):
    """Two hosts of two ranks: the summary, and the steps of all ranks."""
    script = folder / "four.py"
    script.write_text(FOUR)
    command = [sys.executable, ROOT / "tools/two_hosts", "--line", line, "-n", "2", "--summary", "--progress", "0.4"]
    command += [sys.executable, script, *arguments]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr, [json.loads((folder / f"steps{rank}").read_text()) for rank in range(4)]


def test_a_host_whose_ranks_are_late_is_named(tmp_path):
    named = re.compile(r"^A .*for ranks 2, 3 of one host: they are late in ", re.M)
    for _ in range(3):  # on a busy machine one rank may have no core
        summary, _ = four_ranks(tmp_path, "delay 1ms", 20, 64)
        if named.search(summary):
            break
    assert named.search(summary), summary
    assert re.search(r"^A horo run: step \d+: [\d.]+ steps/s, 4 ranks$", summary, re.M), summary


def test_a_slow_line_is_transfer_and_no_ranks_fault(tmp_path):
    _, fast = four_ranks(tmp_path, "rate 1gbit", 0, 1 << 18)
    summary, slow = four_ranks(tmp_path, "rate 100mbit", 0, 1 << 18)
    lost = median([step["time"] for step in slow[0][5:]]) - median([step["time"] for step in fast[0][5:]])
    assert lost > 50e6, lost
    for rank in range(4):
        assert median([step["bars"]["skew"] for step in slow[rank][5:]]) < 0.1 * lost, rank
        grown = [median([step["bars"]["transfer"] for step in steps[rank][5:]]) for steps in (slow, fast)]
        assert grown[0] - grown[1] > 0.8 * lost, (rank, grown, lost)
    blamed = re.search(r"(\d+) % of the time .* of one host", summary)
    assert blamed is None or int(blamed[1]) < 10, summary  # on a busy machine ranks wait for others that have no core


def test_merge_finds_the_clock_that_is_ahead_within_its_bound(job):
    _, _, folder = job
    files = [folder / "trace.json", folder / "trace.rank1.json"]
    done = horo("timeline", "merge", *files, "-o", folder / "all.json", "--json")
    assert done.returncode == 0, done.stderr
    other = json.loads(done.stdout)[1]
    assert other["clock_bound_us"] < ROUND_TRIP_MS * 1e3
    assert abs(other["clock_shift_us"] + AHEAD_S * 1e6) <= other["clock_bound_us"]
