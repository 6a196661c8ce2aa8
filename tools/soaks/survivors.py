"""Jobs of tests/horo/elastic_rank under horo run --min-np, in which ranks end or stop themselves, and their judge."""

import collections
import os
import pathlib
import re
import shlex
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = "plain views small units streams rounds singles sets shrinks groups failures mixed".split()
RESULTS = r"results (\d+) hash (\w+) members (\S*)"
LINE = re.compile(
    rf"survivor (\d+)( apart)? {RESULTS}(?: ends \S*)?(?: set {RESULTS})? longest (\d+) ms"
)  # apart: this rank takes no part in what the others reduce
FIRED = re.compile(r"^\[\d+\] fired (\d+):([\w.]+):\d+(?:\+\d+)?$", re.M)
HANGS_AFTER = 3  # limits of a job: then it is killed
STEPS_IN_LIMIT = 24  # jobs with more have as many times the limit
# Starts a rank on a simulated host: ranks that share it have one HORO_HOST_ID, and all others are reached by TCP.
ON_HOST = """
first=$((HORO_RANK / {0} * {0})); rest=$((HORO_SIZE - first))
export HORO_HOST_ID=host-$first HORO_LOCAL_RANK=$((HORO_RANK - first)) HORO_LOCAL_SIZE=$((rest < {0} ? rest : {0}))
exec "$@"
"""

# kills and stops: TEST_KILL and TEST_STOP of kill_points.h. options: of horo run. rank: the command of a rank, if it is
# not that of elastic_rank. more: further variables, as pairs.
Job = collections.namedtuple(
    "Job", "what size program steps seed kills stops options rank more", defaults=("", *[()] * 3)
)
Outcome = collections.namedtuple("Outcome", "code text seconds")


def add_arguments(parser):
    parser.add_argument("--steps", type=int, default=12, help="steps of each job (default: 12)")
    limit = f"longest job of at most {STEPS_IN_LIMIT} steps in seconds (default: 10)"
    parser.add_argument("--limit", type=float, default=10, help=limit)
    parser.add_argument("--step-limit", type=float, default=5, help="longest step in seconds (default: 5)")
    fake = ROOT / "build/release/tests/ring/libhoro_fake_cuda.so"
    what = "tensors of the fake of a device, which the fake of NCCL reduces (LIBRARY: both)"
    parser.add_argument("--devices", nargs="?", const=str(fake), default="", metavar="LIBRARY", help=what)
    parser.add_argument("--per-host", type=int, help="ranks per simulated host (default: all ranks on one host)")
    parser.add_argument("--horo", default=str(ROOT / "build/release/tools/horo/horo"), help="the horo executable")
    parser.add_argument("--rank", default=str(ROOT / "build/release/tests/horo/elastic_rank"), help="the rank program")


def limit_of(job, options):
    return options.limit * max(1, job.steps / STEPS_IN_LIMIT)


def command(job, options):
    rank = job.rank or [options.rank, job.program, str(job.steps), str(job.seed)]
    if options.per_host:
        rank = ["sh", "-c", ON_HOST.format(options.per_host), "sh", *rank]
    return [options.horo, "run", "-n", str(job.size), "--min-np", "1", *job.options, *rank]


def of_devices(options):
    """The variables of ranks whose tensors are those of a device."""
    if not options.devices:
        return {}
    names = ("HORO_CUDA_LIBRARY", "HORO_NCCL_LIBRARY")
    return dict.fromkeys(names, options.devices) | {"HORO_GPU_BACKEND": "nccl"}


def variables(job, options):
    names = {"TEST_KILL": job.kills, "TEST_STOP": job.stops, **dict(job.more), **of_devices(options)}
    return {name: value for name, value in names.items() if value}


def command_line(job, options):
    given = [f"{name}={value}" for name, value in variables(job, options).items()]
    return shlex.join(["env", *given, *command(job, options)])


def run(job, options, on_line=None, kill_after_s=None):
    """Runs the job to its end, or kills it long after its limit. on_line: called with each line of output."""
    begin = time.monotonic()
    process = subprocess.Popen(
        command(job, options),
        env=os.environ | variables(job, options),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    limit = threading.Timer(kill_after_s or HANGS_AFTER * limit_of(job, options), process.kill)  # its ranks end with it
    limit.start()
    lines = []
    try:
        for line in process.stdout:
            lines.append(line)
            if on_line:
                on_line(line)
        return Outcome(process.wait(), "".join(lines), time.monotonic() - begin)
    finally:
        limit.cancel()
        process.kill()
        process.wait()


def fired(outcome):
    """[(rank, point)] of the kills and stops that took place."""
    return [(int(rank), point) for rank, point in FIRED.findall(outcome.text)]


def faults(job, outcome, options):
    """What contradicts the promises of an elastic job: texts."""
    lines = {int(line[0]): line[1:] for line in LINE.findall(outcome.text)}
    victims = {rank for rank, _ in fired(outcome)}
    wrong = [f"the job took {outcome.seconds:.1f} s"] * (outcome.seconds > limit_of(job, options))
    for line in re.findall(r"member \d+: a result differs.*", outcome.text):
        wrong.append(line)
    missing = sorted(set(range(job.size)) - victims - set(lines))
    if missing:
        wrong.append(f"ranks {missing} have neither died nor printed results")
    apart = {rank for rank, line in lines.items() if line[0]}
    together = {line[1:4] for rank, line in lines.items() if rank not in apart}
    if len(together) > 1:
        wrong.append("results differ between ranks")
    for _, _, members in together:
        wrong += faults_of_members(members, job.size, set(range(job.size)) - victims - apart)
    in_set = {rank: line[4:7] for rank, line in lines.items() if line[4]}  # the set that shrinks
    if len(set(in_set.values())) > 1:
        wrong.append("results in the set differ between ranks")
    for members in {line[2] for line in in_set.values()}:
        wrong += [f"in the set: {fault}" for fault in faults_of_members(members, job.size, set(in_set) - victims)]
    longest_ms = max((int(line[7]) for line in lines.values()), default=0)
    wrong += [f"a step took {longest_ms} ms"] * (longest_ms > 1000 * options.step_limit)
    if outcome.code != 0 and set(lines) - victims and not victims & set(lines):
        wrong.append(f"exit code {outcome.code}")
    if outcome.code == 0 and not set(lines) - victims and not victims & set(lines):
        wrong.append("exit code 0 without a survivor")
    return wrong


def faults_of_members(members, size, survivors):
    """members: of each result, as 15x5,7x2: masks of ids, each with the number of results."""
    masks = [int(part.partition("x")[0]) for part in members.split(",") if part]
    wrong = []
    before = (1 << size) - 1
    for mask in masks:
        if mask & ~before or mask == 0:
            wrong.append(f"members {members} do not only shrink")
            break
        before = mask
    if masks and any(masks[-1] >> rank & 1 == 0 for rank in survivors):
        wrong.append(f"members {members} lack a survivor of {sorted(survivors)}")
    return wrong
