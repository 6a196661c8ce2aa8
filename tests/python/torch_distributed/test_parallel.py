"""FSDP, DTensor, checkpoints and the rest of what torch builds on a process group."""


def test_what_is_built_on_a_group_trains_as_one_process(launch):
    launch("parallel", 2)


def test_a_checkpoint_of_three_ranks_is_loaded_on_two(launch, tmp_path):
    launch("checkpoints", 3, arguments=["save", tmp_path])
    launch("checkpoints", 2, arguments=["load", tmp_path])


def test_pipelines_codecs_and_late_callbacks_have_the_values_of_one_process(launch, tmp_path):
    launch("breadth", 2, env={"HORO_DEADLOCK_MS": "1500"}, arguments=[tmp_path / "second group"])
