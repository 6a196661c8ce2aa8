"""run(): calls a function on several ranks, which this process starts on its host, and returns their results."""

import pickle
import warnings

from horo import _hosts
from horo._run_job import RankJob

_OLD = {"np": "num_proc", "min_np": "min_num_proc", "max_np": "max_num_proc"}
_WITHOUT_EFFECT = (
    "slots reset_limit cooldown_range ssh_port ssh_identity_file disable_cache use_gloo use_mpi mpi_args "
    "network_interfaces network_interface"
).split()


def run(
    func,
    args=(),
    kwargs=None,
    num_proc=1,
    min_num_proc=None,
    max_num_proc=None,
    slots=None,
    reset_limit=None,
    cooldown_range=None,
    hosts=None,
    hostfile=None,
    host_discovery_script=None,
    start_timeout=None,
    ssh_port=None,
    ssh_identity_file=None,
    disable_cache=None,
    output_filename=None,
    verbose=None,
    use_gloo=None,
    use_mpi=None,
    mpi_args=None,
    network_interfaces=None,
    executable=None,
    np=None,
    min_np=None,
    max_np=None,
    network_interface=None,
):
    """Calls func(*args, **kwargs) on num_proc ranks of this host; returns the results in a list, by rank.

    func calls init() itself. It travels by cloudpickle, so that it may be a function of a notebook; a function of a
    module is imported there. An exception of a rank is raised here as RuntimeError with its text and traceback, and
    with the exception as its cause. Blocks until all ranks have ended. Their output is passed on to sys.stdout and
    sys.stderr. With min_num_proc the job is elastic, and the list has the results of the ranks that were left.
    executable: the Python of the ranks. The signature is Horovod's; arguments without a meaning here cause a warning.
    """
    given = dict(locals())
    for old, new in _OLD.items():
        if given[old] is not None:
            warnings.warn(f"{old} is deprecated, use {new} instead", DeprecationWarning, stacklevel=2)
            given[new] = given[old] if given[new] in (None, 1) else given[new]
    if use_gloo and use_mpi:
        raise ValueError("horo.runner.run: use_gloo and use_mpi; expected at most one of them")
    unused = [name for name in _WITHOUT_EFFECT if given[name] is not None]
    if unused:
        warnings.warn(f"horo.runner.run: {', '.join(unused)}: no effect (docs/from_horovod.md)", stacklevel=2)
    size = given["num_proc"]
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"horo.runner.run: num_proc={size!r}; expected a number of ranks")
    _check_hosts(given, size)
    job = RankJob(size, _options(given), executable, _pickled((func, tuple(args), dict(kwargs or {}))))
    code = job.wait()
    _raise_failure(job, code, size if given["min_num_proc"] is None else None)
    return [pickle.loads(job.replies[rank]["result"]) for rank in sorted(job.replies) if "result" in job.replies[rank]]


def _check_hosts(given, size):
    if given["host_discovery_script"] is not None:
        raise ValueError("horo.runner.run: host_discovery_script is not there in this version; expected none")
    if given["hosts"] is not None and given["hostfile"] is not None:
        raise ValueError("horo.runner.run: hosts and hostfile; expected at most one of them")
    if given["hosts"] is not None:
        room = _hosts.slots_here(_hosts.parse_hosts(given["hosts"], "hosts"), "hosts")
    elif given["hostfile"] is not None:
        room = _hosts.slots_here(_hosts.read_hostfile(given["hostfile"], "hostfile"), "hostfile")
    else:
        return
    if size > room:
        raise ValueError(f"horo.runner.run: num_proc={size}: expected at most {room}, the slots of the hosts")


def _options(given):
    """The options of horo run."""
    names = {
        "min_num_proc": "--min-np",
        "max_num_proc": "--max-np",
        "start_timeout": "--start-timeout",
        "output_filename": "--output-dir",
    }
    options = [word for name, flag in names.items() if given[name] is not None for word in (flag, str(given[name]))]
    return [*options, "--verbose"] if given["verbose"] else options


def _pickled(call):
    try:
        import cloudpickle
    except ImportError as error:
        raise ImportError("horo.runner.run needs cloudpickle: pip install cloudpickle") from error
    return cloudpickle.dumps(call)


def _raise_failure(job, code, expected):
    """Raises RuntimeError if the job failed. expected: how many results there must be; None: at least one."""
    reports = [(rank, reply) for rank, reply in job.replies.items() if "error" in reply]
    results = len(job.replies) - len(reports)
    if results == expected or (expected is None and results > 0 and code == 0):
        return
    for rank, report in sorted(reports, key=lambda each: each[1]["is_loss"]):
        cause = report["exception"] and pickle.loads(report["exception"])
        raise RuntimeError(f"horo.runner.run: rank {rank} raised {report['error']}\n\n{report['traceback']}") from cause
    missing = [rank for rank in range(expected or 0) if rank not in job.replies]
    text = f"ranks without a result: {', '.join(map(str, missing))}" if missing else "no rank has a result"
    raise RuntimeError(f"horo.runner.run: {text}; the job has ended with exit code {code}\n{job.story()}")
