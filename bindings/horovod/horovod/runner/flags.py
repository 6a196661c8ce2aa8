"""The command line of horovodrun: every flag of Horovod's, and what becomes of it."""

import argparse

# Each row: the spellings, the name of the value, and its type. bool: the flag takes no value. A spelling that begins
# with "no " is the flag that sets the value to False.
VALUES = [
    (["-np", "--num-proc"], "num_proc", int),
    (["--start-timeout"], "start_timeout", int),
    (["--output-filename"], "output_filename", str),
    (["--verbose"], "verbose", bool),
    (["--config-file"], "config_file", str),
    (["-H", "--hosts"], "hosts", str),
    (["-hostfile", "--hostfile"], "hostfile", str),
    (["--host-discovery-script"], "host_discovery_script", str),
    (["--min-np", "--min-num-proc"], "min_num_proc", int),
    (["--max-np", "--max-num-proc"], "max_num_proc", int),
    (["--elastic-timeout"], "elastic_timeout", int),
    (["--reset-limit"], "reset_limit", int),
    (["--fusion-threshold-mb"], "fusion_threshold_mb", int),
    (["--timeline-filename"], "timeline_filename", str),
    (["--timeline-mark-cycles", "no --no-timeline-mark-cycles"], "timeline_mark_cycles", bool),
    (["--no-stall-check", "no --stall-check"], "no_stall_check", bool),
    (["--stall-check-warning-time-seconds"], "stall_check_warning_time_seconds", int),
    (["--stall-check-shutdown-time-seconds"], "stall_check_shutdown_time_seconds", int),
    (["--gloo-timeout-seconds"], "gloo_timeout_seconds", int),
    (["--log-level"], "log_level", str),
]

# With an effect where other hosts are named.
FOR_OTHER_HOSTS = [
    (["-p", "--ssh-port"], "ssh_port", int),
    (["-i", "--ssh-identity-file"], "ssh_identity_file", str),
]

# Accepted, without a meaning here: one line tells so. Negative forms of them ask for what is the case anyway.
WITHOUT_EFFECT = [
    (["--disable-cache"], "disable_cache", bool),
    (["--network-interfaces", "--network-interface"], "nics", str),
    (["--cycle-time-ms"], "cycle_time_ms", float),
    (["--cache-capacity"], "cache_capacity", int),
    (["--hierarchical-allreduce", "no --no-hierarchical-allreduce"], "hierarchical_allreduce", bool),
    (["--hierarchical-allgather", "no --no-hierarchical-allgather"], "hierarchical_allgather", bool),
    (["--torus-allreduce", "no --no-torus-allreduce"], "torus_allreduce", bool),
    (["--autotune", "no --no-autotune"], "autotune", bool),
    (["--autotune-log-file"], "autotune_log_file", str),
    (["--autotune-warmup-samples"], "autotune_warmup_samples", int),
    (["--autotune-steps-per-sample"], "autotune_steps_per_sample", int),
    (["--autotune-bayes-opt-max-samples"], "autotune_bayes_opt_max_samples", int),
    (["--autotune-gaussian-process-noise"], "autotune_gaussian_process_noise", float),
    (["--slots-per-host"], "slots", int),
    (["--blacklist-cooldown-range"], "cooldown_range", (int, int)),
    (["--mpi-threads-disable", "no --no-mpi-threads-disable"], "mpi_threads_disable", bool),
    (["--mpi-args"], "mpi_args", str),
    (["--tcp"], "tcp_flag", bool),
    (["--binding-args"], "binding_args", str),
    (["--num-nccl-streams"], "num_nccl_streams", int),
    (["--thread-affinity"], "thread_affinity", int),
    (["--log-with-timestamp", "--no-log-hide-timestamp"], "log_with_timestamp", bool),
    (["no --log-without-timestamp", "no --log-hide-timestamp"], "log_with_timestamp", bool),
    (["-prefix-timestamp", "--prefix-output-with-timestamp"], "prefix_output_with_timestamp", bool),
    (["--gloo"], "use_gloo", bool),
    (["--mpi"], "use_mpi", bool),
    (["--jsrun"], "use_jsrun", bool),
]

# What -h says; of the flags in WITHOUT_EFFECT it says that they have none.
HELP = {
    "num_proc": "number of ranks; without it as many as the hosts have slots",
    "start_timeout": "seconds in which all ranks have to start",
    "output_filename": "folder for the output of each rank: rank.N.out and rank.N.err",
    "verbose": "print how the ranks are started",
    "config_file": "YAML file with values of flags; those of the command line take precedence",
    "hosts": "hosts and their slots, as in node1:4,node2:4; started by ssh",
    "hostfile": "file with a line for each host, as in: node1 slots=4",
    "host_discovery_script": "refused: no host joins a job in this version",
    "min_num_proc": "least number of ranks; the job is elastic, and goes on when ranks are lost",
    "max_num_proc": "greatest number of ranks of an elastic job; no ranks join in this version",
    "elastic_timeout": "seconds for which an elastic job with too few ranks is kept",
    "reset_limit": "how many changes of ranks elastic.run goes on after",
    "fusion_threshold_mb": "greatest size of a bucket, in MiB (HORO_BUCKET_BYTES)",
    "timeline_filename": "write a timeline of each rank; horo timeline merge joins them",
    "timeline_mark_cycles": "no effect: horo has no cycles",
    "no_stall_check": "no warnings about tensors that a rank has not submitted",
    "stall_check_warning_time_seconds": "seconds until such a warning",
    "stall_check_shutdown_time_seconds": "seconds after which such a tensor fails; 0: never",
    "gloo_timeout_seconds": "limit for one collective (HORO_DEADLINE_MS)",
    "log_level": "least severity of what horo logs",
    "ssh_port": "port of ssh on the other hosts",
    "ssh_identity_file": "private key for ssh",
}
NO_EFFECT = "accepted, no effect"
ALL = [*VALUES, *FOR_OTHER_HOSTS, *WITHOUT_EFFECT]
QUERIES = ["-v", "--version", "-cb", "--check-build"]
LOG_LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"]


def spellings():
    """Every spelling of every flag, without -h and --help."""
    rows = [spelling.removeprefix("no ") for words, _, _ in ALL for spelling in words]
    return [*QUERIES, *rows]


def spelling_of(name, value=None):
    """The flag that sets the value of this name, for messages."""
    for words, found, _ in ALL:
        negative = [word.startswith("no ") for word in words]
        if found == name and (value is not False or any(negative)):
            chosen = words[-1] if value is False else next(w for w in reversed(words) if not w.startswith("no "))
            return chosen.removeprefix("no ")
    return name


def make_parser():
    """All values are None where the command line does not set them."""
    parser = argparse.ArgumentParser(
        prog="horovodrun",
        usage="horovodrun -np RANKS [FLAGS] PROGRAM [ARGUMENTS]",
        description="Starts a program on several ranks, by horo run. Horovod's flags are accepted.",
    )
    parser.add_argument("-v", "--version", action="store_true", help="print the version and exit")
    parser.add_argument("-cb", "--check-build", action="store_true", help="print what is there, and exit")
    used = parser.add_argument_group("flags with an effect")
    unused = parser.add_argument_group("flags without an effect here")
    for group, rows in ((used, [*VALUES, *FOR_OTHER_HOSTS]), (unused, WITHOUT_EFFECT)):
        for words, name, kind in rows:
            _add(group, words, name, kind)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    return parser


def _add(group, words, name, kind):
    positive = [word for word in words if not word.startswith("no ")]
    negative = [word.removeprefix("no ") for word in words if word.startswith("no ")]
    text = HELP.get(name, NO_EFFECT)
    if negative:
        of = f"the contrary of {positive[0]}" if positive else text
        group.add_argument(*negative, dest=name, action="store_const", const=False, help=of)
    if not positive:
        return
    if kind is bool:
        group.add_argument(*positive, dest=name, action="store_const", const=True, help=text)
    elif isinstance(kind, tuple):
        group.add_argument(*positive, dest=name, type=kind[0], nargs=len(kind), metavar=name.upper(), help=text)
    else:
        choices = LOG_LEVELS if name == "log_level" else None
        if choices is not None:
            text += f": {', '.join(choices)}"
        group.add_argument(*positive, dest=name, type=kind, choices=choices, metavar=name.upper(), help=text)
