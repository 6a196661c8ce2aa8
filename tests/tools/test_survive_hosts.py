"""Elastic jobs on two hosts: network namespaces, with one horo run. The ranks that are left have equal results."""

import json
import re
import subprocess
import sys
import time

import pytest
from launching import HORO, ROOT, clean_environment

sys.path.insert(0, str(ROOT / "tools"))

import hosts  # noqa: E402
from soaks import survivors  # noqa: E402

RANK = ROOT / "build/release/tests/horo/elastic_rank"
PORT = 29412
DEADLINE_S = 120
SIZE = 4
SOME_BYTES = 20_000_000  # of about ten steps
ON_HOST = """
[ $HORO_RANK -lt 2 ] && host=A || host=B
export HORO_LOCAL_RANK=$((HORO_RANK % 2)) HORO_LOCAL_SIZE=2 HORO_ADDR={address}
exec ip netns exec {names}$host "$@"
"""

pytestmark = [
    pytest.mark.skipif(hosts.missing() is not None, reason=str(hosts.missing())),
    pytest.mark.skipif(not RANK.exists(), reason="no build tree has elastic_rank: tools/test release"),
]


@pytest.fixture(scope="module")
def pair():
    with hosts.two_namespaces() as made:
        yield made


def start(pair, steps, kills="", deadline_ms=30_000):
    names = hosts.name_of("")
    on_host = ON_HOST.format(address=f"{pair.addresses['A']}:{PORT}", names=names)
    job = [HORO, "run", "-n", str(SIZE), "--min-np", "1", "sh", "-c", on_host, "sh", RANK, "views", str(steps), "7"]
    variables = {"TEST_KILL": kills, "HORO_DEADLINE_MS": str(deadline_ms)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([str(word) for word in job], env=clean_environment(variables), **pipes)


def results_of(text):
    """By rank: the number of results, their hash and their members."""
    return {int(line[0]): line[2:5] for line in survivors.LINE.findall(text)}


def sent_bytes():
    shown = hosts.ip("-n", hosts.name_of("A"), "-s", "-j", "link", "show", "dev", hosts.DEVICE)
    return json.loads(shown)[0]["stats64"]["tx"]["bytes"]


@pytest.mark.parametrize("lost", [[3], [0], [0, 1], [2, 3]], ids=["one", "rank 0", "host A", "host B"])
def test_the_ranks_that_are_left_have_equal_results(pair, lost):
    job = start(pair, 12, ",".join(f"{rank}:lane.reduced:20" for rank in lost))
    text, _ = job.communicate(timeout=DEADLINE_S)
    results = results_of(text)
    assert job.returncode == 0 and sorted(results) == [rank for rank in range(SIZE) if rank not in lost], text
    (result,) = set(results.values())
    mask = sum(1 << rank for rank in results)
    assert result[2].startswith("15x") and re.search(rf",{mask}x\d+,$", result[2]), text


@pytest.mark.parametrize("point", ["after", "start.connected"])
def test_the_host_of_rank_0_may_be_lost_at_the_start(pair, point):
    job = start(pair, 12, f"0:{point}:1,1:{point}:1")
    text, _ = job.communicate(timeout=DEADLINE_S)
    results = results_of(text)
    assert job.returncode == 0 and sorted(results) == [2, 3] and results[2] == results[3], text
    assert results[2][2] == "12x12,", text


# No process ends: the transports fail by the deadline, or by the kernel's limit of silence.
def test_a_network_that_comes_back_costs_no_rank(pair):
    before = sent_bytes()
    job = start(pair, 150, deadline_ms=2_000)
    cable = ("-n", hosts.name_of("A"), "link", "set", hosts.DEVICE)
    try:
        while job.poll() is None and sent_bytes() < before + SOME_BYTES:
            time.sleep(0.01)
        hosts.ip(*cable, "down")
        first = job.stdout.readline() + job.stdout.readline()  # a long line is folded
        hosts.ip(*cable, "up")
        rest, _ = job.communicate(timeout=DEADLINE_S)
    finally:
        hosts.ip(*cable, "up")
        job.kill()
        job.wait()
    assert "epoch 1 has ranks 0, 1, 2, 3" in " ".join(first.split()), first + rest
    assert re.search(r"epoch \d+ runs on all 4 members", rest), first + rest
    (result,) = set(results_of(rest).values())
    assert re.fullmatch(r"15x\d+,", result[2]) and len(results_of(rest)) == SIZE, first + rest
