"""horo checkpoint: list, inspect, verify and convert, on checkpoints that it makes of files of safetensors."""

import json
import os
import pty

import numpy
import pytest
from launching import HORO, horo
from safetensors.numpy import load_file, save_file

TENSORS = {
    "model.weight": numpy.arange(12, dtype=numpy.float32).reshape(4, 3),
    "model.steps": numpy.array(7, dtype=numpy.int64),
    "model.empty": numpy.zeros((0, 2), dtype=numpy.float64),
    "mask": numpy.array([True, False, True]),
}


@pytest.fixture
def checkpoints(tmp_path):
    """A folder with the checkpoints of steps 5 and 12."""
    save_file(TENSORS, tmp_path / "all.safetensors")
    for step in (5, 12):
        made = horo(
            "checkpoint", "convert", tmp_path / "all.safetensors", tmp_path / f"ckpt/step-{step}", "--step", step
        )
        assert made.returncode == 0, made.stderr
        assert "4 tensors" in made.stdout
    return tmp_path / "ckpt"


def damage(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_file_of_safetensors_comes_back_as_it_was(checkpoints, tmp_path):
    made = horo("checkpoint", "convert", checkpoints / "step-12", tmp_path / "back.safetensors")
    assert made.returncode == 0, made.stderr
    back = load_file(tmp_path / "back.safetensors")
    assert back.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert back[name].dtype == value.dtype
        assert numpy.array_equal(back[name], value)


def test_nothing_is_replaced(checkpoints, tmp_path):
    made = horo("checkpoint", "convert", checkpoints / "step-12", tmp_path / "all.safetensors")
    assert made.returncode == 1
    assert f"{tmp_path}/all.safetensors exists: it is not replaced" in made.stderr


def test_the_list_has_the_newest_first_and_says_what_is_wrong(checkpoints):
    (checkpoints / "step-5" / "index.json").write_text("{}")
    shown = horo("checkpoint", "list", checkpoints)
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert lines[0].split() == ["STEP", "SIZE", "PATH", "STATE"]
    assert lines[1].startswith("12 ") and lines[1].endswith(f"{checkpoints}/step-12  whole")
    assert "step-5/index.json: it is no index of a checkpoint of horo" in lines[2]
    found = json.loads(horo("checkpoint", "list", "--json", checkpoints).stdout)
    assert [one["step"] for one in found] == [12, 5]
    assert found[0]["error"] is None and found[1]["error"]
    assert "no checkpoints in" in horo("checkpoint", "list", checkpoints / "none").stdout


def test_a_checkpoint_is_shown_with_its_tensors(checkpoints):
    shown = horo("checkpoint", "inspect", checkpoints / "step-12")
    assert shown.returncode == 0
    assert "step     12" in shown.stdout
    assert "float32[4, 3]  replicated  48 bytes" in shown.stdout
    index = json.loads(horo("checkpoint", "inspect", "--json", checkpoints / "step-12").stdout)
    assert {tensor["name"] for tensor in index["tensors"]} == TENSORS.keys()
    absent = horo("checkpoint", "inspect", checkpoints / "step-13")
    assert absent.returncode == 1
    assert "step-13: No such file or directory" in absent.stderr


def test_verify_finds_a_flipped_bit_and_goes_on(checkpoints):
    damage(checkpoints / "step-5/part-00000-of-00001.safetensors")
    done = horo("checkpoint", "verify", checkpoints / "step-5", checkpoints / "step-12")
    assert done.returncode == 1
    assert "part-00000-of-00001.safetensors: block 0 is damaged: its checksum is wrong" in done.stderr
    assert done.stdout.startswith(f"{checkpoints}/step-12: whole, step 12, ")
    assert horo("checkpoint", "verify", checkpoints / "step-12").returncode == 0


def test_verify_shows_its_progress_on_a_terminal(checkpoints):
    front, back = pty.openpty()
    pid = os.posix_spawn(
        HORO,
        [HORO, "checkpoint", "verify", str(checkpoints / "step-12")],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, back, 2)],
    )
    os.close(back)
    assert os.waitpid(pid, 0)[1] == 0
    assert b"100 %" in os.read(front, 4096)
    os.close(front)


def test_wrong_usage_is_told(checkpoints, tmp_path):
    assert horo("checkpoint").returncode == 2
    assert horo("checkpoint", "verify").returncode == 2
    (tmp_path / "bad.safetensors").write_bytes(b"\xff" * 20)
    bad = horo("checkpoint", "convert", tmp_path / "bad.safetensors", tmp_path / "x")
    assert bad.returncode == 1
    assert "its header is said to have 18446744073709551615 bytes" in bad.stderr
    step = horo("checkpoint", "convert", tmp_path / "all.safetensors", tmp_path / "x", "--step", "one")
    assert step.returncode == 2
    assert "--step one: expected a whole number" in step.stderr


def test_a_file_of_safetensors_becomes_a_checkpoint_alone(checkpoints, tmp_path):
    for end in ("pt", "pth", "dcp", "safetensors"):
        made = horo("checkpoint", "convert", tmp_path / "all.safetensors", tmp_path / f"x.{end}")
        assert made.returncode == 2, made.stderr
        assert f"x.{end}: a file of safetensors becomes a checkpoint" in made.stderr


def test_damage_leaves_no_half_of_a_file(checkpoints, tmp_path):
    damage(checkpoints / "step-5/part-00000-of-00001.safetensors")
    before = set(tmp_path.iterdir())
    made = horo("checkpoint", "convert", checkpoints / "step-5", tmp_path / "back.safetensors")
    assert made.returncode == 1 and "block 0 is damaged" in made.stderr
    assert set(tmp_path.iterdir()) == before


def test_other_formats_are_handed_to_python(checkpoints, tmp_path):
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\nprintf "%s " "$@"\n')
    python.chmod(0o755)
    path = f"{python.parent}:{os.environ['PATH']}"
    done = horo("checkpoint", "convert", checkpoints / "step-12", tmp_path / "x.pt", "--trust", env={"PATH": path})
    assert done.stdout == f"-m horo.checkpoint convert {checkpoints}/step-12 {tmp_path}/x.pt --trust "


def test_a_job_without_a_new_checkpoint_is_not_started_again():
    ended = horo("run", "-n", 2, "--restart-from-checkpoint", 3, "--", "sh", "-c", "exit 5")
    assert ended.returncode == 5
    assert "no new start: since the last one no checkpoint was published (--restart-from-checkpoint 3)" in ended.stderr


def test_several_hosts_are_not_started_again():
    hosts = ["--nnodes", 2, "--node-rank", 0, "--addr", "127.0.0.1:1", "--key-file", "/dev/null"]
    refused = horo("run", "-n", 1, *hosts, "--restart-from-checkpoint", 1, "--", "true")
    assert refused.returncode == 2
    assert "--restart-from-checkpoint 1: a job on several hosts is not started again" in refused.stderr
    assert horo("run", "-n", 1, "--restart-from-checkpoint", -1, "--", "true").returncode == 2
