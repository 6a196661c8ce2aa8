"""Settings that are none, or hold what they may not."""

from table import by_command

SECTION = "Settings"
ALL = "`horo doctor --settings` lists all of them; so does docs/settings.md"


def init(run, arguments="", env=None):
    done = run([run.python, "-c", f"import horo; horo.init({arguments}); print(horo.size())"], env=env)
    return done.stderr.strip().splitlines()[-1]


@by_command(
    SECTION,
    "A variable that begins with `HORO_` and is no setting",
    where="log, one rank of each host",
    do=ALL,
    changing=((r"\[horo [\d:.]+", "[horo <time>"),),
)
def unknown_variable(run):
    return init(run, env={"HORO_BUKET_BYTES": "1000000"})


@by_command(SECTION, "The same, given to `init`", where="`init`, this rank", do=ALL)
def unknown_setting(run):
    return init(run, "settings={'HORO_BUKET_BYTES': 1000000}")


@by_command(SECTION, "A value that a setting may not have", where="`init`, this rank", do=ALL)
def bad_value(run):
    return init(run, env={"HORO_BUCKET_BYTES": "25MB"})


@by_command(SECTION, "Two keys", where="`init`, this rank", do="Set one of them")
def two_keys(run):
    return init(run, env={"HORO_KEY_FD": "0", "HORO_KEY_FILE": "/etc/hostname"})


@by_command(SECTION, "A key that others may read", where="`init`, this rank", do="`chmod 600`")
def open_key(run):
    return init(run, env={"HORO_KEY_FILE": "/etc/hostname"})


@by_command(
    SECTION,
    "Kernels that this processor has not",
    where="`init`, this rank",
    do="`auto`",
    changing=((r"(?<=expected scalar, )[\w, ]+(?= or auto)", "..."),),
)
def kernels_of_another_processor(run):
    return init(run, env={"HORO_KERNELS": "neon"})


@by_command(SECTION, "A transport that there is not", where="`init`, this rank", do="Take one of the named ones")
def unknown_transport(run):
    return init(run, env={"HORO_TRANSPORT": "carrier-pigeon"})


@by_command(SECTION, "An algorithm that there is not", where="`init`, this rank", do="Take one of the named ones")
def unknown_algorithm(run):
    return init(run, env={"HORO_ALGORITHMS": "all_reduce=best"})
