"""horo run --hosts: it starts the other host by ssh. The hosts are network namespaces, B has an sshd."""

import os
import re
import signal
import subprocess
import sys

import pytest
import ssh_hosts
from launching import DEADLINE_S, HORO, all_end_soon, pids_in
from ssh_hosts import PORT, A, B

pytestmark = pytest.mark.skipif(ssh_hosts.missing() is not None, reason=str(ssh_hosts.missing()))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    with ssh_hosts.ssh_hosts(tmp_path_factory.mktemp("ssh")) as made:
        yield made


PLACE = """
import os, pathlib, sys
get = os.environ.get
seen = [path.read_bytes() for path in pathlib.Path('/proc').glob('[0-9]*/cmdline') if path.parent.exists()]
key = os.pread(int(get('HORO_KEY_FD')), 99, 0)
print(get('HORO_RANK'), get('HORO_LOCAL_RANK'), get('HORO_SIZE'), get('HOROVOD_CROSS_RANK'), os.getcwd(), sys.argv[1:],
      get('HOROVOD_CYCLE_TIME'), get('ASKED'), get('NOT_ASKED'), len(key),
      any(b'a ' + b'secret' in one for one in seen), 'HORO_KEY_FILE' in os.environ)
print('an error', file=sys.stderr)
"""


def test_both_hosts_run_the_program_in_the_same_folder_with_the_variables_that_travel(both):
    env = {"HOROVOD_CYCLE_TIME": "5", "ASKED": "a secret", "NOT_ASKED": "1", "HORO_KEY_FILE": "x"}
    words = ["-n", 3, "-x", "ASKED", sys.executable, "-c", PLACE, "it's $HOME", "two words"]
    code, out, errors = both.run(*words, env=env)
    assert code == 0, errors
    folder, arguments = str(both.folder), ["it's $HOME", "two words"]
    expected = []
    for rank, (local, cross) in enumerate([(0, 0), (1, 0), (0, 1)]):
        not_asked = None if cross else 1  # the ranks of this host have its whole environment
        expected.append(f"[{rank}] {rank} {local} 3 {cross} {folder} {arguments} 5 a secret {not_asked} 32 False False")
    assert sorted(out.splitlines()) == expected
    assert sorted(re.findall(r"^\[\d\] an error$", errors, re.M)) == [f"[{rank}] an error" for rank in range(3)]


DIES = """
import os, signal, sys, numpy, horo.numpy as horo
horo.init()
assert horo.is_homogeneous() and horo.allreduce(numpy.ones(4), name='first', op=horo.Sum)[0] == 4
if horo.rank() == 3: os.kill(os.getpid(), signal.SIGKILL)
for i in range(5): horo.allreduce(numpy.ones(4), name=f'then{i}')
print('done', horo.size(), horo.is_homogeneous())
"""


def test_a_death_on_one_host_ends_all_with_its_code(both):
    code, out, errors = both.run(sys.executable, "-c", DIES)
    assert code == 128 + signal.SIGKILL and "done" not in out
    assert re.search(r"rank 3 on host \S+ failed first: signal 9 \(SIGKILL\)", errors), errors


def test_an_elastic_job_goes_on_over_hosts(both):
    code, out, errors = both.run("--min-np", 2, sys.executable, "-c", DIES)
    assert code == 0 and sorted(out.splitlines()) == [f"[{rank}] done 3 False" for rank in range(3)], errors


SLEEPS = """
import os, signal, sys, time
def end(number, frame):
    print('got', number, flush=True)
    sys.exit(7)
signal.signal(signal.SIGUSR1, end)
print(f'pid={os.getpid()}', flush=True)
time.sleep(600)
"""


def test_signals_reach_all_hosts_and_the_end_of_the_front_ends_them(both):
    job = both.start(sys.executable, "-c", SLEEPS)
    pids = pids_in("".join(job.stdout.readline() for _ in range(4)))
    job.send_signal(signal.SIGUSR1)
    out, errors = job.communicate(timeout=60)
    assert sorted(out.splitlines()) == [f"[{rank}] got 10" for rank in range(4)], errors
    assert job.returncode == 7 and all_end_soon(pids)
    job = both.start(sys.executable, "-c", SLEEPS)
    pids = pids_in("".join(job.stdout.readline() for _ in range(4)))
    assert len(pids) == 4
    job.kill()
    assert all_end_soon(pids)
    job.communicate()


def test_a_host_that_does_not_let_us_in_is_named_and_nothing_starts(both, tmp_path):
    program = ["sh", "-c", f"touch {tmp_path}/started"]
    known = both.known.read_text()
    both.known.write_text("")
    code, _, errors = both.run(*program)
    both.known.write_text(known)
    assert code == 1 and f"host {B}: ssh ended with exit code 255: Host key verification failed." in errors
    code, _, errors = both.run("--start-timeout", 1, *program, hosts_of=f"{A}:1,10.77.0.9:1")
    assert code == 1 and re.search(r"host 10\.77\.0\.9(: ssh: connect to| did not answer within 1 s)", errors), errors
    os.rename(both.folder / "authorized", both.folder / "moved")
    code, _, errors = both.run(*program)
    os.rename(both.folder / "moved", both.folder / "authorized")
    assert code == 1 and f"host {B}: ssh ended with exit code 255" in errors and "Permission denied" in errors
    assert not (tmp_path / "started").exists()


def test_a_host_without_the_working_folder_and_strangers_are_refused():
    body = bytes(32) + b"\x0f\0\0\0/no/such/folder" + bytes(12)
    for given, expected in (
        (b"horo host 1\n" + len(body).to_bytes(4, "little") + body, "the working folder /no/such/folder: No such file"),
        (b"horo host 1\n" + b"\xff" * 4, "too long"),
        (b"horo host 1\n\x40\0\0\0" + bytes(32) + b"\xff" * 32, "horo: "),
        (b"GET / HTTP/1.1\r\n\r\n", "only horo run starts"),
        (b"", "ends early"),
    ):
        done = subprocess.run([HORO, "host"], input=given, capture_output=True, timeout=DEADLINE_S)
        assert done.returncode in (1, 2) and expected in done.stderr.decode(), (given, done)
        assert not done.stdout


def test_the_plan_names_no_key_and_the_command_of_each_host(both):
    code, out, errors = both.run("--dry-run", "true")
    assert code == 0 and "-o BatchMode=yes" in out and f"-p {PORT} -i {both.identity} -- {B} " in out, errors
    assert "StrictHostKeyChecking" not in out and re.search(rf"--node-rank 1 --ranks-per-node 2,2 --addr {A}:\d+", out)
