"""The audit of replicas. A program checks many claims, because importing torch takes seconds."""


def test_a_hundred_plants_are_found_and_named_and_no_optimizer_makes_an_alarm(run_program):
    run_program("audit", 3)


def test_looks_obey_settings_joins_sets_and_the_shutdown(run_program):
    run_program("audit_more", 3)
