"""Horovod's names, and scripts, commands and variables that were written for Horovod."""

import importlib
import os
import pathlib
import re
import subprocess
import sys

import pytest

import horovod
from horovod.runner import config_file, flags, launch

BIN = pathlib.Path(sys.executable).parent
SEES = "import horo, os; horo.init(); print(horo.rank(), horo.size(), os.environ['HOROVOD_RANK'])"

# Every spelling of a flag of Horovod 0.28's horovodrun, with a value where it takes one.
FLAGS = """
-np 2 | --num-proc 2 | -cb | --check-build | -v | --version | --disable-cache | --start-timeout 9
--network-interfaces eth0,eth1 | --network-interface eth0 | --output-filename out | --verbose | --config-file FILE
-p 22 | --ssh-port 22 | -i key | --ssh-identity-file key | --fusion-threshold-mb 32 | --cycle-time-ms 0.5
--cache-capacity 9 | --hierarchical-allreduce | --no-hierarchical-allreduce | --hierarchical-allgather
--no-hierarchical-allgather | --torus-allreduce | --no-torus-allreduce | --autotune | --no-autotune
--autotune-log-file log | --autotune-warmup-samples 3 | --autotune-steps-per-sample 4
--autotune-bayes-opt-max-samples 5 | --autotune-gaussian-process-noise 0.5 | --min-np 1 | --min-num-proc 1
--max-np 4 | --max-num-proc 4 | --slots-per-host 4 | --elastic-timeout 8 | --reset-limit 3
--blacklist-cooldown-range 1 9 | --timeline-filename t.json | --timeline-mark-cycles | --no-timeline-mark-cycles
--no-stall-check | --stall-check | --stall-check-warning-time-seconds 6 | --stall-check-shutdown-time-seconds 7
--mpi-threads-disable | --no-mpi-threads-disable | --mpi-args=--oversubscribe | --tcp | --binding-args=--bind-to
--num-nccl-streams 2 | --thread-affinity 1 | --gloo-timeout-seconds 60 | --log-level DEBUG | --log-with-timestamp
--log-without-timestamp | -prefix-timestamp | --prefix-output-with-timestamp | --log-hide-timestamp
--no-log-hide-timestamp | -H localhost:2 | --hosts localhost:2 | -hostfile FILE | --hostfile FILE
--host-discovery-script ./hosts.sh | --gloo | --mpi | --jsrun
"""
COMMAND_LINES = [line.split() for line in re.split(r"[|\n]", FLAGS) if line.strip()]
BASE = ["-np", "2", "--min-np", "2"]
PROGRAM = ["python", "train.py", "--verbose"]


def spelled(words):
    return words[0].partition("=")[0]


def test_every_name_of_horovod_has_its_parameters_and_meaning(run_program):
    run_program("horovod_names", 2)


def test_sync_batch_norm_is_batch_norm_of_the_whole_batch(run_program):
    run_program("sync_batch_norm", 3)


def test_all_71_spellings_of_flags_are_known():
    assert len(COMMAND_LINES) == 71 and {spelled(words) for words in COMMAND_LINES} == set(flags.spellings())


def test_the_help_says_what_each_flag_does():
    effects = {name for _, name, _ in [*flags.VALUES, *flags.FOR_OTHER_HOSTS]}
    assert effects == set(flags.HELP) and all(action.help for action in flags.make_parser()._actions)


@pytest.mark.parametrize("words", COMMAND_LINES, ids=map(spelled, COMMAND_LINES))
def test_a_flag_has_an_effect_or_is_told(words, tmp_path):
    """The command of horo run, the variables and what is told differ from those without the flag, or it is refused."""
    file = tmp_path / "file"
    file.write_text("params: {fusion_threshold_mb: 3}\n" if "config" in words[0] else "# all\nlocalhost slots=3\n\n")
    words = [str(file) if word == "FILE" else word for word in words]
    base = ["--min-np", "2"] if words[0] in ("-np", "--num-proc", "-H", "--hosts", "-hostfile", "--hostfile") else BASE
    args = launch.parse_args([*base, *words, *PROGRAM])
    assert args.command == PROGRAM
    if words[0] in flags.QUERIES:
        assert args.version or args.check_build
    elif words[0] == "--host-discovery-script":
        with pytest.raises(ValueError, match="--host-discovery-script ./hosts.sh: .* not there"):
            launch.command_of(args)
    else:
        plain = launch.parse_args([*BASE, *PROGRAM])
        told = launch.ignored(args)
        seen = [[launch.command_of(each), launch.variables_of(each)] for each in (args, plain)]
        assert seen[0][0][-3:] == PROGRAM
        is_ranks = base != BASE  # these give the number of ranks, which the plain command line has as well
        assert is_ranks or told or seen[0] != seen[1], words
        assert not told or told == [flags.spelling_of(*_value_of(words[0], args))]
        assert not is_ranks or seen[0][0][:3] == ["run", "-n", "3" if "file" in words[0] else "2"]


def _value_of(word, args):
    name = next(
        name
        for spellings, name, _ in flags.ALL
        if word.partition("=")[0] in [each.removeprefix("no ") for each in spellings]
    )
    return name, getattr(args, name)


def test_flags_become_options_and_variables():
    args = launch.parse_args(
        "-np 3 --min-np 2 --max-np 4 --elastic-timeout 8 --reset-limit 3 --start-timeout 9 --output-filename out "
        "--verbose --fusion-threshold-mb 32 --no-stall-check --log-level INFO --timeline-filename t.json "
        "-- ./a b".split()
    )
    options = "--min-np 2 --max-np 4 --park-timeout 8 --start-timeout 9 --output-dir out --verbose".split()
    assert launch.command_of(args) == ["run", "-n", "3", *options, "--", "./a", "b"]
    assert launch.variables_of(args) == {
        "HOROVOD_FUSION_THRESHOLD": str(32 << 20),
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_LOG_LEVEL": "INFO",
        "HOROVOD_TIMELINE": "t.json",
        "HOROVOD_ELASTIC_RESET_LIMIT": "3",
    }


def test_other_hosts_are_started_by_ssh_with_the_variables_that_horovod_passes_on(tmp_path, monkeypatch):
    for name in list(os.environ):
        monkeypatch.delenv(name)
    stays = "HOME SSH_AUTH_SOCK HORO_RANK HOROVOD_CYCLE_TIME BASH_FUNC_x%% TORCHELASTIC_RUN_ID MPI_LOCALRANKID".split()
    for name in ["DATA", "PATH", *stays]:
        monkeypatch.setenv(name, "1")
    (tmp_path / "hosts").write_text("b-3 slots=2\nlocalhost slots=2\n")
    for hosts, by_name in (("-H b-3:2,localhost:2", "b-3:2,localhost:2"), ("--hostfile FILE", "b-3:2,localhost:2")):
        words = f"-np 3 {hosts} -p 22 -i key ./a".replace("FILE", str(tmp_path / "hosts"))
        args = launch.parse_args(words.split())
        options = ["--ssh-port", "22", "--ssh-identity-file", "key", "--env", "DATA", "--env", "PATH"]
        assert launch.command_of(args) == ["run", "-n", "3", "--hosts", by_name, *options, "--", "./a"]
        assert launch.ignored(args) == []
    assert launch.ignored(launch.parse_args("-np 3 -p 22 -H localhost:3 ./a".split())) == ["--ssh-port"]


def test_no_variable_that_horo_run_sets_stops_a_job_on_other_hosts(root, monkeypatch):
    source = (root / "tools/horo/run/run_options.cc").read_text()
    names = re.findall(r'"(\w+)"', re.search(r"kOurs = \{(.*?)\}", source, re.S)[1])
    assert "NODE_RANK" in names and len(names) > 20
    for name in names:
        monkeypatch.setenv(name, "1")
    command = launch.command_of(launch.parse_args("-np 2 -H b:2 ./a".split()))
    assert "--env" in command and not set(names) & set(command)


def test_a_host_is_known_by_its_addresses():
    here = launch.parse_args("-np 2 -H 127.0.0.2:1,localhost:1 ./a".split())
    assert launch.command_of(here) == ["run", "-n", "2", "--", "./a"]
    for other in ("192.0.2.1", "a..b", "x" * 64):
        args = launch.parse_args(f"-np 2 -H localhost:1,{other}:1 ./a".split())
        assert launch.command_of(args)[3:5] == ["--hosts", f"localhost:1,{other}:1"]


def test_flags_of_elastic_jobs_are_told_where_the_job_is_not_elastic():
    args = launch.parse_args("-np 2 --max-np 4 --elastic-timeout 8 ./a".split())
    assert launch.command_of(args) == ["run", "-n", "2", "--", "./a"]
    assert launch.ignored(args) == ["--max-num-proc", "--elastic-timeout"]


CONFIG = """
controller: gloo
verbose: true
params: {fusion_threshold_mb: 16.0, cycle_time_ms: 2.5, hierarchical_allreduce: true}
autotune: {enabled: true, log_file: a.txt}
timeline: {filename: t.json, mark_cycles: true}
stall_check: {enabled: false, warning_time_seconds: 5.0}
library_options: {gloo_timeout_seconds: 77, thread_affinity: 1}
logging: {level: DEBUG}
"""


def test_a_config_file_has_the_values_of_flags_and_the_command_line_wins(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    args = launch.parse_args(["-np", "2", "--config-file", str(path), "--gloo-timeout-seconds", "8", "./a"])
    assert launch.variables_of(args) == {
        "HOROVOD_FUSION_THRESHOLD": str(16 << 20),
        "HOROVOD_TIMELINE": "t.json",
        "HOROVOD_TIMELINE_MARK_CYCLES": "1",
        "HOROVOD_STALL_CHECK_DISABLE": "1",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "5",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "8",
        "HOROVOD_LOG_LEVEL": "DEBUG",
    }
    told = "--cycle-time-ms --hierarchical-allreduce --autotune --autotune-log-file --thread-affinity --gloo verbose"
    assert launch.ignored(args) == told.split()
    names = {name for _, name, _ in flags.ALL}
    assert {name for section in config_file.SECTIONS.values() for name in section.values()} <= names


@pytest.mark.parametrize(
    "arguments, text",
    [
        ("./a", "expected -np RANKS"),
        ("-np 2", "expected a program"),
        ("-np two ./a", "invalid int value"),
        ("-np 4 -H localhost:2 ./a", "-np 4: more ranks than the hosts have slots (2)"),
        ("-np 1 -H ;rm:1 ./a", "expected HOST:SLOTS"),
        ("-np 1 -H localhost:1 --hostfile x ./a", "at most one of them"),
        ("-np 1 --hostfile /no/such/file ./a", "/no/such/file"),
        ("-np 1 --config-file /no/such/file ./a", "--config-file /no/such/file"),
        ("-np 1 --log-level loud ./a", "invalid choice"),
        ("-np 1 --cycle-time-ms -1 ./a", "--cycle-time-ms -1.0: expected a number of at least 0"),
        ("-np 1 --no-such-flag ./a", "--no-such-flag"),
    ],
)
def test_a_wrong_command_line_is_refused_by_name(arguments, text, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["horovodrun", *arguments.split()])
    with pytest.raises(SystemExit) as end:
        launch.run_commandline()
    assert end.value.code == 2 and text in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        *("- a", "params: 3", "controller: smoke", "params: {fusion_threshold_mb: much}", "a: ["),
        *("params: {fusion_threshold_mb: 0.5}", "params: {fusion_threshold_mb: .inf}"),
    ],
)
def test_a_wrong_config_file_is_refused_by_name(text, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match="--config-file|--fusion-threshold-mb (much|0.5|inf): expected"):
        launch.parse_args(["-np", "2", "--config-file", str(path), "./a"])


def run(*command, **env):
    env = {name: value for name, value in os.environ.items() if not name.startswith("HORO")} | env
    return subprocess.run([*map(str, command)], env=env, capture_output=True, text=True, timeout=180)


def test_horovodrun_starts_ranks_and_tells_once_what_has_no_effect(tmp_path):
    options = "-np 3 -H localhost:2,127.0.0.1:1 --cycle-time-ms 5 --gloo".split()
    options += ["--timeline-filename", str(tmp_path / "t.json")]
    done = run(BIN / "horovodrun", *options, sys.executable, "-c", SEES, HOROVOD_CACHE_CAPACITY="9")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] {rank} 3 {rank}" for rank in range(3)]
    for text in (
        "horovodrun: --cycle-time-ms, --gloo: no effect",
        "HOROVOD_CACHE_CAPACITY: no effect",
    ):
        assert done.stderr.count(text) == 1, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json", "t.rank1.json", "t.rank2.json"]
    failed = run(BIN / "horovodrun", "-np", 2, "sh", "-c", "exit $HOROVOD_RANK")
    assert failed.returncode == 1 and "rank 1 on host" in failed.stderr


def test_horovodrun_answers_questions():
    assert run(BIN / "horovodrun", "--version").stdout == f"{horovod.__version__}\n"
    built = run(BIN / "horovodrun", "--check-build").stdout
    assert "[X] PyTorch" in built and "[ ] TensorFlow" in built and "[X] horo" in built


def test_ranks_have_horovods_variables(tmp_path):
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    hosts = [
        "--nnodes",
        3,
        "--node-rank",
        1,
        "--ranks-per-node",
        "3,2,3",
        "--addr",
        "127.0.0.1:29399",
        "--key-file",
        key,
    ]
    done = run(BIN / "horo", "run", "--dry-run", *hosts, "true")
    names = "RANK SIZE LOCAL_RANK LOCAL_SIZE CROSS_RANK CROSS_SIZE".split()
    found = [re.findall(rf"^  HOROVOD_{name}=(\d+)$", done.stdout, re.M) for name in names]
    assert found == [["3", "4"], ["8", "8"], ["0", "1"], ["2", "2"], ["1", "1"], ["3", "3"]], done.stdout + done.stderr
    refused = run(BIN / "horo", "run", "-n", 1, "-x", "HOROVOD_RANK=1", "true")
    assert refused.returncode == 2 and "horo run itself sets HOROVOD_RANK" in refused.stderr
    assert run(BIN / "horo", "run", "-n", 2, "--min-np", 1, "true", HOROVOD_ELASTIC_TIMEOUT="").returncode == 0
    refused = run(BIN / "horo", "run", "-n", 2, "--min-np", 1, "true", HOROVOD_ELASTIC_TIMEOUT="long")
    assert refused.returncode == 2 and "HOROVOD_ELASTIC_TIMEOUT=long" in refused.stderr


@pytest.mark.parametrize("name", ["tensorflow", "keras", "mxnet", "spark", "ray", "data"])
def test_a_part_that_horo_does_not_have_says_what_is_there(name):
    with pytest.raises(ImportError, match=f"horovod.{name} is not part of horo, .*; .* "):
        importlib.import_module(f"horovod.{name}")
    with pytest.raises(AttributeError, match=f"horovod.{name} is not part of horo"):
        getattr(horovod, name)
    assert not hasattr(horovod, "no_such_thing")


def test_a_horovod_beside_the_alias_is_named(tmp_path):
    other = tmp_path / "horovod-0.28.1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n")
    done = run(sys.executable, "-c", "import horovod.torch", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert re.search(r"ImportError: two distributions .*: horo-horovod \d.* and horovod 0\.28\.1 \(", done.stderr)


def test_helpers_of_horovod_common_are_there():
    from horo import _built
    from horovod.common import exceptions, util

    assert util.split_list([1, 2, 3, 4, 5], 3) == [[1, 2], [3, 4], [5]] and util.is_iterable("a")
    assert [util.num_rank_is_power_2(n) for n in (0, 1, 2, 3, 8)] == [False, True, True, False, True]
    assert util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2") is None
    with pytest.raises(ImportError, match="horovod.mxnet has not been built"):
        util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", __file__, "mpi_lib")
    assert not any(query() for query in (util.mpi_built, util.gloo_built, util.rocm_built))
    assert (util.nccl_built(), util.cuda_built()) == (_built.nccl_built(), _built.cuda_built())
    with util.env(HOROVOD_A="1", PATH=None):
        assert os.environ["HOROVOD_A"] == "1"
    assert "HOROVOD_A" not in os.environ
    error = exceptions.HorovodVersionMismatchError("torch", "1", "2")
    assert isinstance(error, ImportError) and (error.name, error.installed_version) == ("torch", "2")


def test_helpers_of_the_launcher_are_there():
    """The modules of horovod.runner that other programs import."""
    import threading

    from horovod.runner.common.util import hosts, secret, timeout
    from horovod.runner.util import network, threads

    found = hosts.parse_hosts("a:2, b:1,c:3")
    assert [(host.hostname, host.slots) for host in found] == [("a", 2), ("b", 1), ("c", 3)]
    assert hosts.parse_hosts_and_slots("a:2,b:1") == (["a", "b"], {"a": 2, "b": 1})
    places = [place.to_response_string() for place in hosts.get_host_assignments(found, 2, 5)]
    assert places == ["0,5,0,2,0,3", "1,5,1,2,0,2", "2,5,0,1,1,3", "3,5,0,2,2,3", "4,5,1,2,1,2"]
    with pytest.raises(ValueError, match=r"more processes \(7\) than there are available slots \(6\)"):
        hosts.get_host_assignments(found, 7)
    key = secret.make_secret_key()
    assert secret.check_digest(key, b"a", secret.compute_digest(key, b"a")) and len(key) == 32
    assert not secret.check_digest(key, b"b", secret.compute_digest(key, b"a"))
    limit = timeout.Timeout(-1, "cannot {activity}.")
    with pytest.raises(timeout.TimeoutException, match="^cannot start. Timeout after -1 seconds.$"):
        limit.check_time_out_for("start")
    assert limit.timed_out() and timeout.Timeout(60, "").remaining() > 30
    assert threads.execute_function_multithreaded(pow, [[2, 3], [3, 2]]) == {0: 8, 1: 9}
    seen, event = [], threading.Event()
    waiting = threads.on_event(event, seen.append, (1,))
    event.set()
    waiting.join(60)
    threads.in_thread(seen.append, (2,)).join(60)
    assert seen == [1, 2] and network.filter_local_addresses(["localhost"]) == []
    assert "127.0.0.1" in network.get_local_host_addresses() and network.resolve_host_address("no.such.invalid") is None


@pytest.mark.parametrize("name", ["http.http_server", "elastic.driver", "gloo_run", "common.service.driver_service"])
def test_a_part_of_the_launcher_that_horo_does_not_have_says_what_is_there(name):
    with pytest.raises(ImportError, match="horovod.runner.* is not part of horo, .*horovodrun"):
        importlib.import_module(f"horovod.runner.{name}")


def test_the_log_level_of_horovod_counts_where_horos_is_not_set():
    def warned(**env):
        done = run(sys.executable, "-c", "import horo; horo.init()", HOROVOD_CYCLE_TIME="1", **env)
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert "HOROVOD_CYCLE_TIME: no effect" in warned(HOROVOD_LOG_LEVEL="INFO")
    assert "expected TRACE" not in warned(HOROVOD_LOG_LEVEL="")
    assert warned(HOROVOD_LOG_LEVEL="ERROR") == "" == warned(HOROVOD_LOG_LEVEL="fatal")
    assert "HOROVOD_CYCLE_TIME" in warned(HOROVOD_LOG_LEVEL="FATAL", HORO_LOG_LEVEL="warning")
    assert 'HOROVOD_LOG_LEVEL="loud": expected TRACE' in warned(HOROVOD_LOG_LEVEL="loud")


def test_every_difference_in_the_document_names_a_test_that_exists(root):
    page = (root / "docs/from_horovod.md").read_text()
    rows = [line for line in page.partition("## Variables")[0].splitlines() if line.startswith("| ")]
    named = [re.search(r"\| `([\w./]+): (\w+)` \|$", line) for line in rows if "tested by" not in line]
    assert len(named) > 35 and all(named), [line for line, found in zip(rows, named) if not found]
    for found in named:
        assert f"\ndef {found[2]}(" in (root / "tests/python" / found[1]).read_text(), found[0]
    variables = set(re.findall(r"HOROVOD_\w+", page.partition("## Variables")[2]))
    read = (root / "horo/base/horovod_variables.cc").read_text() + (root / "tools/horo/run/run_options.cc").read_text()
    assert {name for name in variables if f'"{name}"' not in read} == set()
