"""A line between hosts that changes bytes, made by tools/relay, which needs root."""

import re
import tempfile
import threading
import time

import hosts
import ranks
from table import by_command

SECTION = "Ranks that die, stop or leave"

PROGRAM = """
import sys, torch, horo.torch as hvd
hvd.init()
try:
    for _ in range(100):
        hvd.allreduce(torch.ones(1 << 20), name="gradients")
except hvd.HoroError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def spoil(line):
    """In a thread: changes bytes after 8 MiB have been sent."""
    while sum(one["bytes"] for one in line.counters().values()) < 8 << 20:
        time.sleep(0.01)
    line.send("corrupt 10% a->b")


@by_command(
    SECTION,
    "A line between hosts changes bytes, with valid TCP checksums",
    where="from the wait, every rank",
    session="no",
    do="Check network cards, switches and memory. `HORO_CRC=on` also checks lines that are too fast for `auto`",
    changing=((r"checksum \d+, expected \d+", "checksum <one>, expected <another>"),),
    needs=lambda: hosts.missing(line=True),
)
def line_changes_bytes(run):
    with tempfile.TemporaryDirectory() as folder, hosts.two_namespaces(["rate 200mbit"]) as pair:
        spoiler = threading.Thread(target=spoil, args=(pair.line,), daemon=True)
        spoiler.start()
        command = [run.python, "-c", PROGRAM]
        ended = ranks.run_ranks(command, 2, 180, {"HORO_CRC": "on"}, hosts.Places(pair, folder, (1, 1)))
        spoiler.join(timeout=10)
    said = {re.findall(r"^PeerLost: .*", rank.output, re.M)[-1] for rank in ended}
    assert len(said) == 1, said
    return said.pop()
