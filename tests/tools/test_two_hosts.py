"""The cable between the hosts of tools/two_hosts: its rate, and the errors for invalid cables and lines."""

import pathlib
import re
import subprocess
import sys

import pytest
from launching import DEADLINE_S, ROOT

sys.path.insert(0, str(ROOT / "tools"))

import hosts  # noqa: E402

pytestmark = pytest.mark.skipif(hosts.missing(line=True) is not None, reason=str(hosts.missing(line=True)))


def two_hosts(*arguments):
    command = [sys.executable, str(ROOT / "tools/two_hosts"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)


def test_a_cable_has_the_rate_both_ways():
    show = f"PATH=$PATH:/usr/sbin:/sbin tc qdisc show dev {hosts.DEVICE}"
    done = two_hosts("--cable", "250mbit", "-n", "1", "sh", "-c", show)
    if "qdisc kind is unknown" in done.stderr:
        pytest.skip("this kernel has no tbf")
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert [line[0] for line in lines] == ["A", "B"]
    assert all("tbf" in line and "rate 250Mbit burst 16Kb" in line for line in lines)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--cable", "fast"), 'two_hosts: a cable of fast: tbf: illegal value for "rate": "fast"'),
        (("--line", "rate"), "two_hosts: a line of rate: relay: the relay ended with exit code 2"),
        (("--line", "delay 1ms", "--cable", "1gbit"), "two_hosts: --line and --cable: expected one of them"),
    ],
)
def test_an_invalid_connection_is_reported_and_nothing_is_left(option, said):
    done = two_hosts(*option, "-n", "1", "true")
    assert done.returncode != 0
    assert done.stderr.splitlines()[-1] == said
    owners = re.findall(r"^horo-(\d+)-", hosts.ip("netns", "list"), re.M)
    assert all(pathlib.Path("/proc", pid).exists() for pid in owners)
