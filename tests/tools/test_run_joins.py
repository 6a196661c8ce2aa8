"""horo run --restarts and horo resize: ranks that are started later. Stand-ins of ranks speak the guard's socket."""

import json
import re
import subprocess
import time

import pytest
from elastic_member import MEMBER
from launching import DEADLINE_S, all_end_soon, clean_environment, command, horo, pids_in, run

# A rank that has joined prints what it is, and the others go on until then.
JOINS = """
names = ('HORO_RANK', 'HORO_LOCAL_RANK', 'HORO_SIZE', 'HORO_LOCAL_SIZE', 'RANK', 'WORLD_SIZE', 'HOROVOD_RANK')
if member.joins:
    print('is', *(os.environ[name] for name in names), flush=True)
"""
WAIT = """
def wait_for(name):
    while not os.path.exists(os.environ['FOLDER'] + '/' + name):
        os.sched_yield()

def make(name):
    open(os.environ['FOLDER'] + '/' + name, 'x').close()
"""


def joins(ranks, program, options=(), env=()):
    return run(ranks, MEMBER + WAIT + JOINS + program, env=env, options=("--min-np", "1", *options))


def start(ranks, program, options, env=()):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    words = command(ranks, MEMBER + WAIT + JOINS + program, ("--min-np", "1", *options))
    return subprocess.Popen(words, env=clean_environment(env), **pipes)


REPLACED = """
if member.joins:
    print('members', *member.join(), flush=True)
    make('joined')
else:
    member.can_grow()
    if rank == 1: die()
    member.grow_until([0, 2, 3])
    wait_for('joined')
member.leave()
"""


def test_a_lost_rank_is_replaced_in_its_slot(tmp_path):
    done = joins(3, REPLACED, options=("--output-dir", tmp_path / "out"), env={"FOLDER": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[3] is 3 1 4 3 1 3 1", "[3] members 0 2 3"]
    lines = [line.removeprefix("horo run: ") for line in done.stderr.splitlines()]
    expected = [
        r"rank 1 died \(signal 9 \(SIGKILL\)\); epoch 1 has ranks 0, 2 as ranks 0, 1",
        r"rank 3 is started in the place of rank 1",
        r"rank 3 is ready",
        r"epoch 2 has ranks 0, 2, 3 as ranks 0, 1, 2: rank 3 joins",
        r"rank 3 has joined: 1 B from rank 0 in 1 ms; the others waited \d+ ms",
    ]
    for text in expected:
        assert any(re.fullmatch(text, line) for line in lines), (text, done.stderr)
    assert (tmp_path / "out" / "rank.3.out").read_text() == "is 3 1 4 3 1 3 1\nmembers 0 2 3\n"


def test_the_second_replacement_waits_and_joins_again(tmp_path):
    program = """
if member.joins:
    member.join()
    member.can_grow()
    if member.id == 2: die()
    make('joined')
else:
    member.can_grow()
    if rank == 1: die()
    member.grow_until([0, 3])
    wait_for('joined')
member.leave()
"""
    begun = time.monotonic()
    done = joins(2, program, env={"FOLDER": str(tmp_path)})
    assert done.returncode == 0 and time.monotonic() - begun >= 1, done.stderr
    assert "rank 2 is started in the place of rank 1" in done.stderr
    assert "rank 3 is started in the place of rank 2" in done.stderr


def test_a_job_that_waits_for_a_place_that_rests_ends_at_once():
    program = """
member.can_grow()
if member.joins:
    member.join()
    die()
elif rank == 1: die()
member.grow_until([0, 2])
while member.receive(FREEZE, PARKED, SETTLE, EVICTED)[0] != EVICTED: member.frozen({})
sys.exit(3)
"""
    options = ("--min-np", "2", "--restarts", "1")
    begun = time.monotonic()
    done = run(2, MEMBER + WAIT + JOINS + program, options=options)
    assert done.returncode != 0 and time.monotonic() - begun < 30, done.stderr
    assert "rank 0 is left of 2, fewer than --min-np 2, and none can come back" in done.stderr


FAILS = """
if member.joins: sys.exit('no module named x')
member.can_grow()
if rank == 1: die()
member.grow_until([0])
{}
member.leave()
"""


def test_three_ranks_that_fail_alike_before_they_join_are_the_last():
    done = joins(2, FAILS.format("time.sleep(5)"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is started in the place of") == 3
    why = "no rank is started any more, because 3 ranks have failed alike before they joined: exit code 1, no module"
    assert done.stderr.count(why) == 1


def test_a_rank_that_has_not_joined_does_not_decide_the_exit_code(tmp_path):
    program = FAILS.replace("sys.exit('no module named x')", "make('failed'); sys.exit(9)")
    ends = "wait_for('failed'); time.sleep(0.3); member.leave(); sys.exit(6)"
    done = joins(2, program.format(ends), env={"FOLDER": str(tmp_path)})
    assert done.returncode == 6, done.stderr
    assert "rank 0 on host" in done.stderr and "exit code 9; it had not joined the job" in done.stderr


def test_a_rank_with_other_terms_is_refused_by_name_and_hurts_no_other(tmp_path):
    program = """
if member.joins:
    member.send(READY, struct.pack('<I', 3) + b'a=2' + struct.pack('<I', 0))
    print(member.text(EVICTED), flush=True)
    make('refused')
else:
    member.can_grow()
    if rank == 1: die()
    member.grow_until([0])
    wait_for('refused')
    member.leave()
"""
    done = joins(2, program, env={"FOLDER": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert "a is 2 here and 1 on the ranks that it joins" in done.stdout


@pytest.mark.parametrize("pause", ["signal.pause()", "os.kill(os.getpid(), signal.SIGSTOP)"], ids=["runs", "stopped"])
def test_a_rank_that_has_not_joined_ends_with_the_job(tmp_path, pause):
    program = f"""
if member.joins:
    print(f'pid={{os.getpid()}}', flush=True)
    make('started')
    {pause}
member.can_grow()
if rank == 1: die()
member.grow_until([0])
wait_for('started')
member.leave()
"""
    begun = time.monotonic()
    done = joins(2, program, env={"FOLDER": str(tmp_path)})
    assert done.returncode == 0 and time.monotonic() - begun < 60, done.stderr
    assert all_end_soon(pids_in(done.stdout))


def test_no_rank_is_replaced_without_restarts():
    done = joins(2, FAILS.format("time.sleep(0.5)"), options=("--restarts", "0"))
    assert done.returncode == 0 and "is started" not in done.stderr, done.stderr


def test_a_rank_that_leaves_in_good_order_is_not_replaced():
    program = "member.can_grow()\nif rank == 1: member.leave(); sys.exit()\ntime.sleep(0.5)\nmember.leave()"
    done = joins(2, program)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_plain_script_is_told_once_why_no_rank_is_replaced():
    done = joins(3, "if rank: die()\nwhile member.view()[0] != [0]: pass\ntime.sleep(6)\nmember.leave()")
    assert done.returncode == 0, done.stderr
    why = r"rank [12] is not replaced: no rank is in a function of horo\.elastic\.run \(docs/elastic\.md\)"
    assert len(re.findall(why, done.stderr)) == 1 and "is started" not in done.stderr, done.stderr


def test_no_rank_is_started_after_a_notice():
    program = """
member.can_grow()
print('ready', flush=True)
member.notice()
if rank == 1: die()
member.grow_until([0])
time.sleep(0.5)
member.leave(text=b'drained')
"""
    job = start(2, program, ("--grace", "20"))
    assert job.stdout.readline() and job.stdout.readline()
    job.terminate()
    _, errors = job.communicate(timeout=DEADLINE_S)
    assert "rank 1 died" in errors and "is started" not in errors, errors


GROWS = """
if member.joins:
    print('members', *member.join(), flush=True)
    member.can_grow()
else:
    member.can_grow()
    print('ready', flush=True)
    member.grow_until([0, 1, 2, 3])
    print('grown', flush=True)
wait_for('end')
member.leave()
"""


def resized(job, ranks):
    done = horo("resize", ranks, job.pid)
    return done.returncode, re.sub(r"job \d+: ", "", done.stdout + done.stderr)


def test_a_job_is_resized_up(tmp_path):
    job = start(2, GROWS, ("--max-np", "4"), env={"FOLDER": str(tmp_path)})
    assert [job.stdout.readline()[4:] for _ in range(2)] == ["ready\n"] * 2
    assert resized(job, 4) == (0, "it has places for 4 ranks; ranks to be started: 2\n")
    lines = sorted(job.stdout.readline() for _ in range(6))
    assert lines == ["[0] grown\n", "[1] grown\n", "[2] is 2 2 3 3 2 3 2\n"] + lines[3:4] + lines[4:5] + lines[5:]
    assert "[3] is 3 3 4 4 3 4 3\n" in lines
    assert resized(job, 4) == (0, "it has places for 4 ranks; ranks to be started: 0\n")
    refused = "horo resize: it has places for 4 ranks: a job cannot be made smaller in this version\n"
    assert resized(job, 3) == (1, refused)
    most = "horo resize: it may have at most 4 ranks: start it with a greater --max-np\n"
    assert resized(job, 5) == (1, most)
    state = json.loads(horo("status", "--json", job.pid).stdout)["jobs"][0]
    assert (state["slots"], state["size"], [one["rank"] for one in state["members"]]) == (4, 2, [0, 1, 2, 3])
    (tmp_path / "end").touch()
    _, errors = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 0, errors
    assert "horo run: the job has places for 4 ranks from now on (horo resize)\n" in errors
    assert "horo run: rank 2 is started\n" in errors


@pytest.mark.parametrize(
    "options, why",
    [
        ((), "it is not elastic: start it with --min-np"),
        (("--min-np", "1"), "it may have at most 2 ranks: start it with a greater --max-np"),
        (
            ("--min-np", "1", "--max-np", "4"),
            "no rank has come to a loop of horo.elastic.State, without which no rank can join (docs/elastic.md)",
        ),
    ],
    ids=["static", "without_max_np", "plain"],
)
def test_a_job_that_cannot_grow_is_not_resized(options, why):
    program = "print('ready', flush=True)\nsignal.sigwait([signal.SIGUSR1])"
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\n"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    job = subprocess.Popen(command(2, block + program, options), env=clean_environment(), **pipes)
    assert job.stdout.readline() and job.stdout.readline()
    assert resized(job, 3) == (1, f"horo resize: {why}\n")
    job.kill()
    job.communicate(timeout=DEADLINE_S)


def test_a_wrong_resize_is_refused():
    for words, text in {("0",): "N: ", ("x",): "N: ", (): "N is required", ("2", "4194303"): "no job 4194303"}.items():
        done = horo("resize", *words)
        assert done.returncode in (1, 2) and text in done.stderr, (words, done.stderr)
    done = horo("run", "-n", 1, "--min-np", 1, "--restarts", "1", "--nnodes", 2, "--node-rank", 0, "true")
    assert done.returncode == 2


def test_an_evicted_rank_keeps_its_slot_until_its_process_ends(tmp_path):
    program = """
if member.joins:
    member.join()
    make('joined')
    member.leave()
    sys.exit()
member.can_grow()
if rank == 1:
    print(f'pid={os.getpid()}', flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    member.text(EVICTED)
    sys.exit(1)
while member.view()[0] != [0]: pass
print('alone', flush=True)
member.grow_until([0, 2])
wait_for('joined')
member.leave()
"""
    job = start(2, program, ("--evict-after", "0.3"), env={"FOLDER": str(tmp_path)})
    lines = sorted(job.stdout.readline() for _ in range(2))
    assert lines[0] == "[0] alone\n"
    state = json.loads(horo("status", "--json", job.pid).stdout)["jobs"][0]
    assert [one["state"] for one in state["members"]] == ["running", "evicted"]
    subprocess.run(["kill", "-CONT", str(pids_in(lines[1])[0])], check=True)
    _, errors = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 0 and "rank 2 is started in the place of rank 1" in errors, errors
