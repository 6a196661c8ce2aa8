"""horo run: its options, and the environment of the ranks."""

import os
import re
import subprocess
import sys

import pytest
from launching import DEADLINE_S, HORO, horo, run


def test_every_rank_gets_its_place_in_the_world():
    names = ["RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "ADDR"]
    done = run(2, f"print(*(os.environ['HORO_' + name] for name in {names}))")
    found = [line.split() for line in sorted(done.stdout.splitlines())]
    assert [line[:5] for line in found] == [["[0]", "0", "2", "0", "2"], ["[1]", "1", "2", "1", "2"]]
    assert found[0][5] == found[1][5] and re.fullmatch(r"127\.0\.0\.1:\d+", found[0][5])


def test_trainers_find_the_variables_of_torchrun():
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "MASTER_ADDR"]
    program = f"""
import socket
print(*(os.environ[name] for name in {names}), os.environ.get('TORCHELASTIC_RUN_ID'), os.environ['MASTER_PORT'])
if os.environ['RANK'] == '0':
    socket.create_server(('', int(os.environ['MASTER_PORT'])))
"""
    outer = {"TORCHELASTIC_RUN_ID": "outer", "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "1", "RANK": "5"}
    for variables in ({}, outer, {"HORO_RANK": "5", "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "1"}):
        found = [line.split() for line in sorted(run(2, program, variables).stdout.splitlines())]
        assert [line[1:-1] for line in found] == [[*f"{r} 2 {r} 2 0 0 127.0.0.1 None".split()] for r in range(2)]
        assert found[0][-1] == found[1][-1]
    own = {"MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "1"}
    assert "192.0.2.1 None 1\n" in run(2, program.partition("if")[0], own).stdout


def test_a_launcher_in_between_may_close_all_descriptors():
    rank = "import horo.numpy as h, numpy; h.init(); print(h.rank(), h.allreduce(numpy.ones(1), op=h.Sum))"
    between = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {rank!r}], check=True)"
    assert sorted(run(2, between).stdout.splitlines()) == ["[0] 0 [2.]", "[1] 1 [2.]"]


def test_ranks_share_the_cores_among_their_threads_unless_the_user_sets_a_number():
    program = "print(os.environ['OMP_NUM_THREADS'], os.environ['PYTHONUNBUFFERED'])"
    fair = max(1, len(os.sched_getaffinity(0)) // 2)
    assert set(run(2, program).stdout.splitlines()) == {f"[0] {fair} 1", f"[1] {fair} 1"}
    assert "[0] 7 1" in run(2, program, {"OMP_NUM_THREADS": "7"}).stdout


def test_the_key_is_the_same_for_all_new_in_each_job_and_in_no_variable_or_command_line():
    program = """
fd = int(os.environ['HORO_KEY_FD'])
key = os.pread(fd, 100, 0)
assert len(key) == 32
seen = open('/proc/self/environ', 'rb').read() + open('/proc/self/cmdline', 'rb').read()
seen += open(f'/proc/{os.getppid()}/environ', 'rb').read() + open(f'/proc/{os.getppid()}/cmdline', 'rb').read()
assert key not in seen and key.hex().encode() not in seen.lower()
try:
    os.pwrite(fd, b'0', 0)
except PermissionError:
    print(key.hex())
"""
    jobs = [{line.split()[1] for line in run(2, program).stdout.splitlines()} for _ in range(2)]
    assert [len(job) for job in jobs] == [1, 1] and jobs[0] != jobs[1]


@pytest.mark.parametrize("dashes", [[], ["--"]])
def test_the_programs_own_options_are_left_alone(dashes):
    arguments = ["-n", "5", "--help", "--", "x"]
    command = [HORO, "run", "-n", "1", *dashes, "printf", "%s ", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0 and done.stdout.split() == ["[0]", *arguments]


WRONG = [
    ["-n", "1", "--start-timeout", "1e300", "true"],
    ["-n", "0", "true"],
    ["-n", "2"],
    ["true"],
    ["-n", "2", "--bogus", "true"],
    ["-n", "x", "true"],
]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_command_line_is_refused(wrong):
    done = subprocess.run([HORO, "run", *wrong], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 2 and done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "run -hostfile F",
        "run -n 2 -hostfile=F true",
        "run -n 1 -vhx true",
        "run -h=3",
        "run --help=false",
        "run -help",
        "doctor -hostfile",
        "doctor --help=1",
        "bench all_reduce -hx",
        "bench -hx",
        "conformance op -hx",
        "-hx",
    ],
)
def test_a_word_that_only_begins_like_help_is_refused(line):
    done = horo(*line.split())
    assert done.returncode == 2 and done.stderr and not done.stdout


@pytest.mark.parametrize("line", ["-h", "--help", "run -h", "run -n 2 -v -h", "doctor --help", "bench wire -h"])
def test_help_is_printed_for_the_exact_words(line):
    done = horo(*line.split())
    assert done.returncode == 0 and "-h means the same" in done.stdout


def test_no_ranks_is_refused_with_what_was_expected():
    done = horo("run", "-n", 0, "true")
    assert done.returncode == 2 and "-n 0: expected a number of ranks from 1 to 1024" in done.stderr


@pytest.mark.parametrize(
    "spelling",
    [
        ["-np", "3"],
        ["-np=3"],
        ["--num-proc", "3"],
        ["--num-proc=3"],
        ["-n3"],
        ["-H", "localhost:3"],
        ["--hosts", "localhost:4", "-np", "3"],
    ],
)
def test_horovods_spellings_mean_the_same(spelling):
    program = ["sh", "-c", "echo $HORO_SIZE $HORO_START_TIMEOUT_MS"]
    done = horo("run", "--verbose", "--start-timeout", 60, *spelling, *program)
    assert done.returncode == 0 and sorted(done.stdout.splitlines()) == [f"[{r}] 3 60000" for r in range(3)]
    assert all(f"rank {r}: process " in done.stderr for r in range(3))


WRONG_WORDS = {
    "rnu": "unknown subcommand horo rnu; did you mean run?",
    "wrong-word": "unknown subcommand horo wrong-word; expected run, bench, doctor",
    "train.py": "unknown subcommand horo train.py; did you mean horo run -n 4 train.py?",
    "run -n 2 --verbose=3 true": "unknown option --verbose=3; --verbose has no value",
    "bench all_reduce --dtype flaot32": "--dtype: flaot32 is unknown; did you mean float32?",
    "bench all_redcue": "unknown subcommand horo bench all_redcue; did you mean all_reduce?",
    "bench all_reduce --transport tpc": 'expected tcp, shm or auto, not "tpc"; did you mean tcp?',
    "bench net --rouns 3": "unknown option --rouns; did you mean --rounds?",
    "doctor --jsn": "unknown option --jsn; did you mean --json?",
    "run --num-porc 2 true": "unknown option --num-porc; did you mean --num-proc?",
    "run -n 2 --bind-to cores true": "expected auto, none or core; did you mean core?",
    "run -n 2 --log-level debgu true": "did you mean debug?",
    "run -n 2 -x HORO_TRANSPORT=tpc true": "did you mean tcp?",
    "run -n 2 -x HORO_KERNELS=avx3 true": "did you mean avx2?",
    "run -n 2 -x HORO_ALGORITHMS=all_reduce=best true": 'has no algorithm "best"',
    "run -n many true": "many: expected a number",
    "run -n 1 --timeout -1 true": "--timeout: expected a number above 0",
    "run -n 1 --min-np 1 --evict-after 1e999 true": "--evict-after: expected a number above 0",
    "run -n 1 --start-timeout 1e300 true": "1e300 not in range",
    "run -n 2 --max-restarts 3 true": "--min-np RANKS the job goes on without those that fail, and --restarts",
    "run --nnodes 1:4 true": "expected --nnodes 4; with --min-np",
}


@pytest.mark.parametrize("line", WRONG_WORDS)
def test_a_wrong_word_is_named_with_the_right_one(line):
    done = horo(*line.split())
    assert done.returncode == 2 and done.stdout == "" and "horo: " in done.stderr
    assert WRONG_WORDS[line] in " ".join(done.stderr.split()), done.stderr
    assert max(map(len, done.stderr.splitlines())) <= 160 and len(done.stderr.splitlines()) <= 3


@pytest.mark.parametrize(
    "words",
    [
        "--nproc-per-node 2",
        "--nproc_per_node=2 --standalone --nnodes=1",
        "--nproc-per-node 2 --nnodes 1:1 --rdzv-backend c10d --rdzv-endpoint localhost:0 --max_restarts 0",
        "--nproc_per_node 2 --master_addr 127.0.0.1 --master_port 4711",
    ],
)
def test_torchruns_words_mean_the_same(words, tmp_path):
    (tmp_path / "train.py").write_text("import os, sys; print(os.environ['WORLD_SIZE'], *sys.argv[1:])")
    (tmp_path / "x.py").write_text((tmp_path / "train.py").read_text())
    (tmp_path / "x.py").chmod(0o755)  # without a first line that names Python
    for program in ("train.py", "-m train", f"{tmp_path}/train.py", "./x.py"):
        done = horo("run", *words.split(), "--cwd", tmp_path, *program.split(), "--nproc_per_node", "x")
        expected = [f"[{rank}] 2 --nproc_per_node x" for rank in range(2)]
        assert sorted(done.stdout.splitlines()) == expected, done.stderr


def test_a_setting_that_is_none_is_told_once_for_all_ranks():
    program = "import horo.numpy as h; h.init(); h.barrier()"
    done = run(3, program, {"HORO_BUKET_BYTES": "5"})
    assert done.returncode == 0 and done.stderr.count("HORO_BUKET_BYTES") == 1
    assert "horo run: warning: HORO_BUKET_BYTES is not a setting of horo; did you mean" in done.stderr


def test_options_set_what_the_ranks_log_and_record(tmp_path):
    (tmp_path / "job.yaml").write_text("num-proc: 1\nlog-level: info\ntimeline: of_file.json\n")
    program = ["sh", "-c", "echo $HORO_SIZE $HORO_LOG_LEVEL $HORO_TIMELINE"]
    options = ["--config", tmp_path / "job.yaml", "--timeline", "t.json", "--log-level", "debug"]
    assert horo("run", *options, *program).stdout == f"[0] 1 debug {os.getcwd()}/t.json\n"


def test_the_log_tells_what_the_engine_decides():
    program = """
import horo.numpy as h, numpy
h.init()
for _ in range(4):
    for name in 'ab': h.allreduce(numpy.ones(4), name=name)
    h.allgather(numpy.ones(4), name='c')
    h.step_end() if hasattr(h, 'step_end') else None
h.remove_process_set(h.add_process_set([0]))
"""
    done = run(2, program, {"HORO_TRANSPORT": "tcp"}, ["--log-level", "debug"])
    assert done.returncode == 0, done.stderr
    for text in ("all_reduce of up to", "process set 1 (", "process set 1 is removed"):
        assert text in done.stderr, done.stderr


def test_too_few_descriptors_are_told_with_the_remedy():
    for most in (8, 24):  # at the start, and for the ranks
        limit = f"ulimit -n {most}; exec {HORO} run -n 8 true"
        done = subprocess.run(["sh", "-c", limit], capture_output=True, text=True, timeout=DEADLINE_S)
        assert done.returncode in (1, 126) and "Too many open files" in done.stderr
        said = " ".join(done.stderr.split())
        assert f"may open {most} descriptors" in said and f"ulimit -n {2 * most} (the hard limit, {most}," in said, said


def test_python_runs_the_executable_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "horo", "run", "-n", "2", "echo", "hello"],
        **{"capture_output": True, "text": True, "timeout": DEADLINE_S, "cwd": "/"},
    )
    assert done.returncode == 0 and sorted(done.stdout.splitlines()) == ["[0] hello", "[1] hello"], done.stderr


def test_a_wrong_list_of_hosts_is_refused_by_name(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("localhost slots=1\nnode1 slots=many\n")
    far = "10.255.255.1"
    for words, text in (
        (["-H", "localhost:1,-oProxyCommand=x:1"], '"-oProxyCommand=x:1": expected HOST:SLOTS'),
        (["-H", "localhost:1,a;b:1"], '"a;b:1": expected HOST:SLOTS'),
        (
            ["-H", "localhost:1,0.0.0.0:1"],
            '"0.0.0.0:1": expected a host, not the address that stands for all interfaces',
        ),
        (["-H", "localhost:1,[::]:1"], '"[::]:1": expected a host, not the address that stands for all interfaces'),
        (["-n", "2", "--addr", "0.0.0.0:4000"], "--addr=0.0.0.0:4000: 0.0.0.0 stands for all interfaces of a host"),
        (["-H", "localhost:1,a@-b"], '"a@-b": expected HOST:SLOTS'),
        (["-H", f"localhost:1,{far}:0"], "a number of slots from 1 to 1024"),
        (["-H", f"localhost:1,{far}:x"], "a number of slots from 1 to 1024"),
        (["-H", f"localhost:1,,{far}"], '"": expected HOST:SLOTS'),
        (["-H", "[::1:2"], "expected [IPV6 ADDRESS]:SLOTS"),
        (["-H", f"localhost:1,{far}:2", "-n", 4], "-n 4: more ranks than the 3 slots of --hosts"),
        (["-H", f"localhost:1,{far}:2", "--nnodes", 2], "expected one of them"),
        (["-H", f"localhost:1,{far}:2", "-x", "HORO_RANK=1", "--addr", "127.0.0.1:1"], "horo run itself sets"),
        (["-H", "localhost:1,no-such-host.invalid"], "or give --addr HOST:PORT"),
        (["-hostfile", path], 'line 2: "node1:many": expected a number of slots'),
        (["-hostfile", tmp_path / "none"], "no such file"),
        (["-hostfile", tmp_path], "no such file, or it cannot be read"),
        (["-hostfile", path, "-H", "localhost"], "--hosts and --hostfile: expected one of them"),
    ):
        done = horo("run", *words, "true")
        assert done.returncode == 2 and text in " ".join(done.stderr.split()), (words, done.stderr)


def test_variables_reach_the_ranks(tmp_path):
    program = "print(os.environ['A'], os.environ['B'], os.environ.get('OMP_NUM_THREADS'))"
    options = ["--env", "A=1 2", "-x", "B", "--env", "OMP_NUM_THREADS=5"]
    done = run(1, program, env={"B": "from outside"}, options=options)
    assert done.stdout == "[0] 1 2 from outside 5\n"


def test_variables_of_another_launcher_do_not_reach_the_ranks():
    foreign = {
        "TORCHELASTIC_RUN_ID": "7",
        "PMI_SIZE": "9",
        "OMPI_COMM_WORLD_RANK": "7",
        "SLURM_PROCID": "7",
        "HORO_KEY_FILE": "x",
    }
    done = run(1, f"print([name for name in {list(foreign)} if name in os.environ])", env=foreign)
    assert done.stdout == "[0] []\n"


def test_ranks_run_in_the_folder_of_cwd(tmp_path):
    (tmp_path / "tool").write_text("#!/bin/sh\npwd; echo $PWD")
    (tmp_path / "tool").chmod(0o755)
    done = horo("run", "-n", 1, "--cwd", tmp_path, "./tool")
    assert done.stdout == f"[0] {tmp_path}\n" * 2, done.stderr


def test_a_missing_folder_is_refused():
    done = horo("run", "-n", 1, "--cwd", "/no/such", "true")
    assert done.returncode == 2 and "--cwd /no/such: No such file or directory" in done.stderr


CORES = sorted(os.sched_getaffinity(0))
SHOW_CORES = "print(sorted(os.sched_getaffinity(0)))"


def cores_of(done):
    return [eval(line.partition("]")[2]) for line in sorted(done.stdout.splitlines())]


def test_ranks_share_the_cores_if_there_are_enough():
    for options in ([], ["--bind-to", "core"]):
        shares = cores_of(run(len(CORES), SHOW_CORES, options=options))
        assert sorted(sum(shares, [])) == CORES and all(len(share) == 1 for share in shares)


def test_ranks_are_not_bound_with_none_or_with_too_few_cores():
    assert cores_of(run(1, SHOW_CORES, options=["--bind-to", "none"])) == [CORES]
    assert cores_of(run(len(CORES) + 1, SHOW_CORES)) == [CORES] * (len(CORES) + 1)


def test_our_own_affinity_is_kept():
    program = ["taskset", "-c", str(CORES[-1]), HORO, "run", "-n", "1", "grep", "Cpus_allowed_list"]
    done = subprocess.run([*program, "/proc/self/status"], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.stdout.split() == ["[0]", "Cpus_allowed_list:", str(CORES[-1])]


def test_more_ranks_than_cores_cannot_be_bound():
    done = run(len(CORES) + 1, "", options=["--bind-to", "core"])
    assert done.returncode == 2 and "expected at least as many cores as ranks" in done.stderr


def test_a_dry_run_prints_everything_but_the_key_and_starts_nothing(tmp_path):
    options = ["--env", "A=it's", "--cwd", tmp_path, "--output-dir", tmp_path / "not made"]
    done = horo("run", "-n", 2, "--dry-run", *options, "touch", "a file")
    assert done.returncode == 0 and list(tmp_path.iterdir()) == []
    assert "\n  HORO_RANK=1\n" in done.stdout and "touch 'a file'" in done.stdout and f"in {tmp_path}" in done.stdout
    assert "A='it'\\''s'" in done.stdout and "HORO_KEY_FD=N" in done.stdout
    assert not re.search(r"[0-9a-f]{32}", done.stdout)


def test_the_help_names_every_option():
    done = horo("run", "--help")
    assert done.returncode == 0
    for name in "np nnodes node-rank addr key-file ranks-per-node env cwd timeout output-dir bind-to dry-run".split():
        assert f"-{name}" in done.stdout


def test_standard_streams_may_be_closed():
    done = subprocess.run(
        ["sh", "-c", f"{HORO} run -n 2 true <&- >&- 2>&-"], timeout=DEADLINE_S, capture_output=True, text=True
    )
    assert done.returncode == 0
