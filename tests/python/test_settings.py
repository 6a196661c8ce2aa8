"""Wrong settings of a Python program: the error names the setting that was meant, or the allowed values."""

import subprocess
import sys

import pytest
import ranks

DEADLINE_S = 180


def alone(program, **variables):
    command = [sys.executable, "-c", f"import horo\n{program}"]
    environment = ranks.environment(0, 1, "127.0.0.1:1") | variables
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S)


@pytest.mark.parametrize(
    "setting, told",
    [
        ('{"HORO_BUKET_BYTES": 1}', "HORO_BUKET_BYTES is not a setting of horo; did you mean HORO_BUCKET_BYTES?"),
        ('{"HORO_DEADLINE_MS": 0}', 'HORO_DEADLINE_MS="0": expected a whole number from 1 to 604800000'),
        ('{"HORO_LOG_LEVEL": "off"}', "HORO_LOG_LEVEL can be set in the environment alone"),
    ],
)
def test_a_wrong_setting_given_to_init_is_a_value_error(setting, told):
    done = alone(f"horo.init(settings={setting})")
    assert done.returncode == 1 and f"ValueError: {told}" in done.stderr


def test_init_succeeds_after_a_wrong_setting():
    program = """
for settings in ({"HORO_NO_SUCH_THING": 1}, {"HORO_MAX_DIMS": 4}):
    try:
        horo.init(settings=settings)
    except ValueError as error:
        print(error)
print(horo.size())
"""
    done = alone(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "1" and "'horo doctor --settings' lists all" in done.stdout


def test_one_rank_warns_once_of_an_unknown_variable():
    program = "import horo; horo.init(); horo.shutdown(); horo.init()"
    ended = ranks.check_ranks([sys.executable, "-c", program], 3, DEADLINE_S, {"HORO_STAL_LIMIT_MS": "5"})
    told = [rank.output.count("did you mean HORO_STALL_LIMIT_MS?") for rank in ended]
    assert told == [1, 0, 0]
