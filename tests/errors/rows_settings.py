"""Unknown settings, and settings with invalid values."""

from table import by_command

SECTION = "Settings"
ALL = "`horo doctor --settings` and docs/settings.md list all of them"


def init(run, arguments="", env=None):
    done = run([run.python, "-c", f"import horo; horo.init({arguments}); print(horo.size())"], env=env)
    return done.stderr.strip().splitlines()[-1]


@by_command(
    SECTION,
    "A variable `HORO_*` that is not a setting",
    where="log, one rank of each host",
    do=ALL,
    changing=((r"\[horo [\d:.]+", "[horo <time>"),),
)
def unknown_variable(run):
    return init(run, env={"HORO_BUKET_BYTES": "1000000"})


@by_command(SECTION, "An unknown setting, passed to `init`", where="`init`, this rank", do=ALL)
def unknown_setting(run):
    return init(run, "settings={'HORO_BUKET_BYTES': 1000000}")


@by_command(SECTION, "An invalid value of a setting", where="`init`, this rank", do=ALL)
def bad_value(run):
    return init(run, env={"HORO_BUCKET_BYTES": "25MB"})


@by_command(SECTION, "Two keys", where="`init`, this rank", do="Set one of them")
def two_keys(run):
    return init(run, env={"HORO_KEY_FD": "0", "HORO_KEY_FILE": "/etc/hostname"})


@by_command(SECTION, "A key that other users can read", where="`init`, this rank", do="`chmod 600`")
def open_key(run):
    return init(run, env={"HORO_KEY_FILE": "/etc/hostname"})


@by_command(
    SECTION,
    "Kernels that this processor does not support",
    where="`init`, this rank",
    do="`auto`",
    changing=((r"(?<=expected scalar, )[\w, ]+(?= or auto)", "..."),),
)
def kernels_of_another_processor(run):
    return init(run, env={"HORO_KERNELS": "neon"})


@by_command(SECTION, "An unknown transport", where="`init`, this rank", do="Use one of the listed names")
def unknown_transport(run):
    return init(run, env={"HORO_TRANSPORT": "carrier-pigeon"})


@by_command(SECTION, "An unknown algorithm", where="`init`, this rank", do="Use one of the listed names")
def unknown_algorithm(run):
    return init(run, env={"HORO_ALGORITHMS": "all_reduce=best"})
