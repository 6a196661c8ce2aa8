"""The accounting of steps over the backend "horo"."""


def test_a_late_rank_is_the_skew_of_the_other_with_ddp_and_fsdp2(launch):
    launch("group_steps", 2)
