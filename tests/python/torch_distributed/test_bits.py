"""The same bits, whatever the transport, timing and bucket size."""

import ast


def digests(launch, size, bucket_mb, transport):
    outputs = launch("bits", size, arguments=[bucket_mb], env={"HORO_TRANSPORT": transport})
    return ast.literal_eval(outputs[0].strip().splitlines()[-1])


def test_ddp_has_the_bits_of_the_optimizer(launch):
    found = digests(launch, 2, 0.005, "auto")
    assert found["ddp"] == found["optimizer"] == found["hook"]
    assert found == digests(launch, 2, 25, "tcp")


def test_the_hook_has_the_bits_of_the_optimizer_on_three_ranks(launch):
    found = digests(launch, 3, 0.005, "tcp")
    assert found["hook"] == found["optimizer"]
    assert found == digests(launch, 3, 0.005, "auto")
