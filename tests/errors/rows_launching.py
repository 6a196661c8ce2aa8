"""horo run: invalid command lines and ranks that fail."""

import signal

from table import by_command

SECTION = "Launching"
REFUSED = "`horo run`, exit code 2, nothing is started"
AFTER = "`horo run`, at the end; its exit code is that rank's, or 128 and the signal"
TIMES = ((r"after \d+(\.\d+)? s", "after <time>"),)


def refused(run, arguments, code=2):
    done = run([run.horo, "run", *arguments])
    assert done.returncode == code, done
    return done.stderr


@by_command(SECTION, "No ranks", where=REFUSED, do="`-n 1` or more")
def no_ranks(run):
    return refused(run, ["-n", "0", "true"])


@by_command(SECTION, "No program", where=REFUSED, do="Name one: `horo run -n 4 python train.py`")
def no_program(run):
    return refused(run, ["-n", "2"])


@by_command(SECTION, "A program that does not exist", where="`horo run`, exit code 127", do="Check the path")
def missing_program(run):
    return refused(run, ["-n", "2", "./no-such-program"], code=127)


@by_command(
    SECTION,
    "A program that is not executable",
    where="`horo run`, exit code 126",
    do="`chmod +x`, or name its interpreter",
)
def not_executable(run):
    return refused(run, ["-n", "2", "/etc/passwd"], code=126)


@by_command(SECTION, "A folder that does not exist", where=REFUSED, do="Check `--cwd`")
def missing_folder(run):
    return refused(run, ["-n", "2", "--cwd", "/no/such/folder", "true"])


@by_command(SECTION, "An address of all interfaces", where=REFUSED, do="The address of one: `ip addr`")
def any_address(run):
    return refused(run, ["-n", "1", "--addr", "0.0.0.0:29400", "true"])


@by_command(SECTION, "Several hosts and no key", where=REFUSED, do="Make a key once and copy it to every host")
def hosts_without_a_key(run):
    return refused(run, ["-n", "1", "--nnodes", "2", "--node-rank", "0", "--addr", "127.0.0.1:4000", "true"])


@by_command(SECTION, "A name of a host that ssh could misread", where=REFUSED, do="The host's name or address")
def host_that_is_no_name(run):
    return refused(run, ["-H", "localhost:2,-node:2", "true"])


@by_command(SECTION, "A wrong subcommand", where="exit code 2", do="As it says; `horo --help` lists all")
def wrong_subcommand(run):
    done = run([run.horo, "bemch", "all_reduce"])
    assert done.returncode == 2, done
    return done.stderr


@by_command(SECTION, "A wrong option", where=REFUSED, do="As it says; `horo run --help` lists all")
def wrong_option(run):
    return refused(run, ["--num-porc", "2", "true"])


@by_command(SECTION, "Torchrun's restarts", where=REFUSED, do="`--min-np`, and checkpoints for the loss of a host")
def restarts(run):
    return refused(run, ["--nproc-per-node", "2", "--max-restarts", "3", "true"])


@by_command(
    SECTION,
    "A resize of a job that has ended",
    where="`horo resize`, exit code 1",
    do="`horo status` shows the running jobs",
)
def resize_of_no_job(run):
    done = run([run.horo, "resize", "4", "4194303"])
    assert done.returncode == 1, done
    return done.stderr


@by_command(SECTION, "A wrong setting", where=REFUSED, do="docs/settings.md lists the values of each")
def wrong_setting(run):
    return refused(run, ["-n", "2", "-x", "HORO_TRANSPORT=smh", "true"])


@by_command(SECTION, "Standard input for ranks on several hosts", where=REFUSED, do="A file that all hosts have")
def input_for_hosts(run):
    words = f"{run.horo} run -H localhost:1,10.255.255.1:1 --addr 10.255.255.1:4000 python -"
    done = run(["sh", "-c", f"echo 'print(1)' | (sleep 0.2; {words})"])
    assert done.returncode == 2, done
    return done.stderr


@by_command(SECTION, "An import of a part of Horovod that horo does not have", where="the import", do="As it says")
def part_of_horovod(run):
    done = run([run.python, "-c", "import horovod.tensorflow"])
    assert done.returncode == 1, done
    return done.stderr.splitlines()[-1]


@by_command(
    SECTION,
    "A function of `horo.runner.run()` that raises on a rank",
    where="the caller; the text goes on with the rank's traceback",
    do="Fix that line",
)
def function_that_raises(run):
    program = "import horo.runner; horo.runner.run(int, ['seven'], num_proc=1)"
    done = run([run.python, "-c", program])
    assert done.returncode == 1, done
    return next(line for line in done.stderr.splitlines() if line.startswith("RuntimeError: "))


def failed(run, program, code, env=None):
    """The last block of horo run's output, for two ranks of which rank 1 runs the program."""
    waits = "import horo.torch as hvd, torch, os, signal, sys; hvd.init(); hvd.barrier()\n"
    others = "hvd.allreduce(torch.ones(2), name='next')\n"
    command = [run.horo, "run", "-n", "2", run.python, "-c", f"{waits}if hvd.rank() == 1: {program}\n{others}"]
    done = run(command, env=env)
    assert done.returncode == code, done
    lines = done.stderr.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("horo run: "))
    return "\n".join(lines[first:])


@by_command(
    SECTION,
    "A rank is killed",
    where=AFTER,
    do="Find the sender of the signal; `dmesg` reports kills by the out-of-memory killer",
    changing=TIMES,
)
def killed_rank(run):
    return failed(run, "os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL)


@by_command(
    SECTION, "A rank fails with an exception", where=AFTER, do="Correct the program at that line", changing=TIMES
)
def rank_with_an_exception(run):
    return failed(run, "raise KeyError('learning_rate')", 1)


@by_command(
    SECTION, "A rank ends without `init()`", where=AFTER, do="Every rank calls `init()`; look at how that rank ended"
)
def rank_without_init(run):
    program = "import os, horo.numpy as h; os.environ['HORO_RANK'] == '1' or h.init()"
    done = run([run.horo, "run", "-n", "2", run.python, "-c", program])
    assert done.returncode == 1, done
    lines = done.stderr.splitlines()
    return "\n".join(lines[next(i for i, line in enumerate(lines) if line.startswith("horo run: ")) :])
