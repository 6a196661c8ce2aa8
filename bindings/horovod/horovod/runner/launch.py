"""The command horovodrun: Horovod's command line, translated into one of horo run, which replaces this process."""

import os
import re
import sys

import horo
from horo import _hosts
from horo._executable import horo_executable
from horovod.common.util import extension_available
from horovod.runner import config_file, flags

USAGE = 2  # exit code of a wrong command line

# Flags of horo run, and variables that horo reads, by the names of values.
OPTIONS = {
    "min_num_proc": "--min-np",
    "max_num_proc": "--max-np",
    "elastic_timeout": "--park-timeout",
    "start_timeout": "--start-timeout",
    "output_filename": "--output-dir",
}
VARIABLES = {
    "fusion_threshold_mb": "HOROVOD_FUSION_THRESHOLD",
    "timeline_filename": "HOROVOD_TIMELINE",
    "timeline_mark_cycles": "HOROVOD_TIMELINE_MARK_CYCLES",
    "no_stall_check": "HOROVOD_STALL_CHECK_DISABLE",
    "stall_check_warning_time_seconds": "HOROVOD_STALL_CHECK_TIME_SECONDS",
    "stall_check_shutdown_time_seconds": "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
    "gloo_timeout_seconds": "HOROVOD_GLOO_TIMEOUT_SECONDS",
    "log_level": "HOROVOD_LOG_LEVEL",
    "reset_limit": "HOROVOD_ELASTIC_RESET_LIMIT",
}
# Variables that describe a process, a user's session or a host, and beginnings of such names; horo run itself passes on
# its own.
STAYS = set(
    "CUDA_VISIBLE_DEVICES DISPLAY HOME HOSTNAME LOGNAME MAIL OLDPWD PWD SHELL SHLVL TERM TMPDIR USER RANK LOCAL_RANK "
    "WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK MPI_LOCALRANKID MPI_LOCALNRANKS _".split()
)
STAY = tuple("HORO_ HOROVOD_ BASH_FUNC_ DBUS_ SSH_ SLURM_ OMPI_ PMI_ TORCHELASTIC_ XDG_".split())
NUMBERS = {name: kind for _, name, kind in flags.ALL if kind in (int, float)}
ELASTIC = ["max_num_proc", "elastic_timeout"]  # without a meaning unless there is a least number of ranks


def parse_args(arguments=None):
    """The values of the command line and of --config-file. Raises ValueError for values that are not allowed."""
    args = flags.make_parser().parse_args(arguments)
    unknown = []
    if args.config_file is not None:
        values, unknown = config_file.values_of(config_file.load(args.config_file), args.config_file)
        for name, value in values.items():
            if getattr(args, name) is None:
                setattr(args, name, value)
    args.unknown = unknown
    for name, kind in NUMBERS.items():
        value = getattr(args, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise ValueError(f"{flags.spelling_of(name)} {value}: expected a number of at least 0")
        if kind is int and value % 1 != 0:  # of a file
            raise ValueError(f"{flags.spelling_of(name)} {value}: expected a whole number")
        setattr(args, name, kind(value))
    if args.log_level is not None and str(args.log_level).upper() not in flags.LOG_LEVELS:
        raise ValueError(f"--log-level {args.log_level}: expected one of {', '.join(flags.LOG_LEVELS)}")
    return args


def ignored(args):
    """What the command line and the file ask for without an effect, as flags and keys."""
    rows = flags.WITHOUT_EFFECT
    if _hosts.are_here(_hosts_of(args)):
        rows = [*flags.FOR_OTHER_HOSTS, *rows]
    names = dict.fromkeys([name for _, name, _ in rows] + (ELASTIC if args.min_num_proc is None else []))
    given = [(name, getattr(args, name)) for name in names if getattr(args, name) is not None]
    return [flags.spelling_of(name, value) for name, value in given] + args.unknown


def _hosts_of(args):
    """[(host, slots)]; empty if the command line names no hosts."""
    if args.hosts is not None:
        return _hosts.parse_hosts(args.hosts, "--hosts")
    return _hosts.read_hostfile(args.hostfile, "--hostfile") if args.hostfile is not None else []


def place_of(args):
    """The options of horo run that say how many ranks run on which hosts. Raises ValueError."""
    if args.host_discovery_script is not None:
        raise ValueError(
            f"--host-discovery-script {args.host_discovery_script}: hosts that join a job are not there in this "
            "version; expected -np RANKS, with --min-np for a job that goes on when ranks are lost"
        )
    if args.hosts is not None and args.hostfile is not None:
        raise ValueError("--hosts and --hostfile: expected at most one of them")
    hosts = _hosts_of(args)
    room = sum(slots for _, slots in hosts) if hosts else None
    ranks = args.num_proc if args.num_proc is not None else room
    if ranks is None:
        raise ValueError("expected -np RANKS, as in: horovodrun -np 4 python train.py")
    if room is not None and ranks > room:
        raise ValueError(f"-np {ranks}: more ranks than the hosts have slots ({room})")
    if _hosts.are_here(hosts):
        return ["-n", str(ranks)]
    options = ["-n", str(ranks), "--hosts", ",".join(f"{name}:{slots}" for name, slots in hosts)]
    if args.ssh_port is not None:
        options += ["--ssh-port", str(args.ssh_port)]
    if args.ssh_identity_file is not None:
        options += ["--ssh-identity-file", args.ssh_identity_file]
    return options + [word for name in sorted(filter(_travels, os.environ)) for word in ("--env", name)]


def _travels(name):
    """Whether other hosts get the variable by --env, as in Horovod all do that describe no process or host."""
    return re.fullmatch(r"[A-Za-z_]\w*", name) and not name.startswith(STAY) and name not in STAYS


def command_of(args):
    """The command line of horo run. Raises ValueError."""
    options = []
    elastic = args.min_num_proc is not None
    for name, option in OPTIONS.items():
        value = getattr(args, name)
        if value is not None and (elastic or name not in ELASTIC):
            options += [option, str(value)]
    if args.verbose:
        options.append("--verbose")
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise ValueError("expected a program, as in: horovodrun -np 4 python train.py")
    return ["run", *place_of(args), *options, "--", *command]


def variables_of(args):
    """The HOROVOD_ variables that the flags stand for."""
    variables = {}
    for name, variable in VARIABLES.items():
        value = getattr(args, name)
        if value is None:
            continue
        if name == "fusion_threshold_mb":
            value *= 1 << 20
        variables[variable] = str(int(value) if isinstance(value, bool) else value)
    return variables


def check_build_text():
    """What --check-build prints, in the form of Horovod's."""
    torch = "X" if extension_available("torch") else " "
    return "\n".join(
        [
            f"Horovod v{_version()}, by horo {horo.__version__}:",
            "",
            "Available Frameworks:",
            "    [ ] TensorFlow",
            f"    [{torch}] PyTorch",
            "    [ ] MXNet",
            "",
            "Available Controllers:",
            *("    [ ] MPI", "    [ ] Gloo", "    [X] horo"),
            "",
            "Available Tensor Operations:",
            *(
                "    [X] NCCL, if installed",
                "    [ ] DDL",
                "    [ ] CCL",
                "    [ ] MPI",
                "    [ ] Gloo",
                "    [X] horo",
            ),
        ]
    )


def _version():
    import horovod

    return horovod.__version__


def run_commandline():
    """Replaces this process by horo run, or prints what was asked for and exits."""
    try:
        args = parse_args()
        if args.version or args.check_build:
            print(_version() if args.version else check_build_text())
            return
        command = command_of(args)
        program = horo_executable()
    except (ValueError, OSError) as error:
        print(f"horovodrun: {error}", file=sys.stderr)
        sys.exit(USAGE)
    if unused := ignored(args):
        print(f"horovodrun: {', '.join(unused)}: no effect (docs/from_horovod.md)", file=sys.stderr)
    os.environ.update(variables_of(args))
    sys.stdout.flush()
    os.execv(program, [program, *command])


if __name__ == "__main__":
    run_commandline()
