"""Horovod's names, and scripts, commands and variables that were written for Horovod."""


def test_every_name_of_horovod_has_its_parameters_and_meaning(run_program):
    run_program("horovod_names", 2)
