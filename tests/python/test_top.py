"""horo top in a terminal: a death, the recovery and a join, live."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

from test_launchers import environment, executable

DEADLINE_S = 120
WIDTH, HEIGHT = 100, 40
GROWS = """
import os, sys, time, torch
import horo.torch as horo
horo.init()
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = horo.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
sampler = horo.elastic.Sampler(900, batch_size=3, seed=0)
loader = torch.utils.data.DataLoader(torch.randn(900, 8), batch_sampler=sampler)
state = horo.elastic.State(model=model, optimizer=optimizer, sampler=sampler)

@horo.elastic.run
def train(state):
    for _ in state.passes(100):
        for x in state.batches(loader):
            optimizer.zero_grad()
            time.sleep(0.01 + 0.01 * (horo.rank() == 0))
            model(x).square().mean().backward()
            optimizer.step()
            if os.path.exists(sys.argv[1]):
                return

train(state)
"""


class Terminal:
    """A program in a terminal of WIDTH x HEIGHT."""

    def __init__(self, command):
        self._fd, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        self.process = subprocess.Popen(command, env=environment({"TERM": "xterm"}), stdin=inner, stdout=inner)
        os.close(inner)
        self._text = ""

    def frame(self, shows):
        """The first frame from now on that shows all these patterns: with its colours, and without."""
        end = time.monotonic() + DEADLINE_S
        last = ""
        while time.monotonic() < end:
            frame, found, rest = self._text.partition("\033[J")
            if found:
                self._text = rest
                last = re.sub(r"\033\[[0-9;]*[A-Za-z]", "", frame.replace("\r\n", "\n"))
                if all(re.search(pattern, last, re.MULTILINE) for pattern in shows):
                    return frame, last
            elif not self._read():
                break
        raise AssertionError(f"no frame with {shows}; the last one:\n{last}")

    def _read(self):
        if not select.select([self._fd], [], [], DEADLINE_S)[0]:
            return False
        try:
            self._text += os.read(self._fd, 1 << 16).decode()
        except OSError:  # its end
            return False
        return True

    def rest(self):
        while self._read():
            pass
        self.process.wait(DEADLINE_S)
        os.close(self._fd)
        return self._text


def pid_of(job, member):
    asked = [executable("horo"), "status", "--json", str(job.pid)]
    told = subprocess.run(asked, env=environment({}), capture_output=True, text=True, timeout=30).stdout
    return next(one["pid"] for one in json.loads(told)["jobs"][0]["members"] if one["id"] == member)


def test_top_shows_a_death_the_recovery_and_a_join(tmp_path):
    script, over = tmp_path / "grows.py", tmp_path / "over"
    script.write_text(GROWS)
    command = [executable("horo"), "run", "-n", "3", "--min-np", "2", "--restarts", "1", sys.executable, script, over]
    with subprocess.Popen(command, env=environment({}), stderr=subprocess.PIPE, text=True) as job:
        time.sleep(1)
        top = Terminal([executable("horo"), "top", str(job.pid)])
        screen, _ = top.frame([r"^ +id +steps", r"^ +0 .*ff+", r"^ +1 .*\d", r"^ +2 .*\d", r"for rank 0: it is late"])
        assert "\033[31m." in screen  # what waits for a late rank has a colour
        os.kill(pid_of(job, 1), signal.SIGKILL)
        top.frame([r"rank 1 died", r"epoch 1 runs on all 2 members after"])
        _, seen = top.frame([r"rank 3 has joined", r"^ +3 .*\d"])
        assert not re.search(r"^ +1 ", seen, re.MULTILINE), seen
        assert max(map(len, seen.splitlines())) <= WIDTH and len(seen.splitlines()) < HEIGHT, seen
        over.touch()
        _, errors = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 0, errors
    assert "has ended" in top.rest()
