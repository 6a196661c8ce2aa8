"""The audit of replicas on a device: hashes are those of the definition, equal ranks are silent, one bit of one rank is
found within a few steps, and no step waits for the device."""

import itertools
import os

import numpy as np
import place
import torch
from place import DEVICE

import horo
import horo.torch as hvd
from horo.torch import audit_devices

STEPS, MOST_LATER = 12, 8
TYPES = [torch.uint8, torch.bool, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


def mixed(words):
    """The hash of words, as audit_devices.py defines it."""
    with np.errstate(over="ignore"):
        words = words + np.arange(1, len(words) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        for factor in (0xDABA0B6EB09322E3, 0xDABA0B6EB09322E3, 1):
            words = (words ^ words >> np.uint64(32)) * np.uint64(factor)
        return words.sum(dtype=np.uint64)


def hash_of(tensor):
    """The same of a tensor of the host."""
    raw = tensor.view(torch.uint8).numpy().tobytes()
    words = np.frombuffer(raw + bytes(-len(raw) % 8), dtype=np.uint64)
    parts = range(0, len(words), audit_devices._PART)
    return int(mixed(np.array([mixed(words[begin : begin + audit_devices._PART]) for begin in parts], dtype=np.uint64)))


def hashes_are_those_of_the_definition():
    """Of random bits, NaN among them; of one part and of two."""
    tensors = []
    for dtype, count in [*itertools.product(TYPES, (1, 3, 10_003)), (torch.float64, audit_devices._PART + 5)]:
        raw = torch.randint(0, 2 if dtype is torch.bool else 256, (count * dtype.itemsize,), dtype=torch.uint8)
        tensors.append(raw.view(dtype))
    begun = audit_devices.Hasher(DEVICE).begin([each.to(DEVICE, copy=True) for each in tensors])
    begun.wait()
    found = [each % (1 << 64) for each in begun.values().tolist()]
    return found == [hash_of(each) for each in tensors] and len(set(found)) > len(TYPES)


class Steps:
    """A model that trains, and what its optimizer's steps have waited for."""

    def __init__(self):
        torch.manual_seed(11)
        self.model = torch.nn.Sequential(torch.nn.Linear(30, 50), torch.nn.GELU(), torch.nn.Linear(50, 5)).to(DEVICE)
        optimizer = torch.optim.SGD(self.model.parameters(), 1e-3, momentum=0.9)
        self.optimizer = hvd.DistributedOptimizer(optimizer, self.model.named_parameters())
        self.waits, self.done = 0, 0

    def run(self):
        self.done += 1
        generator = torch.Generator().manual_seed(10 * self.done + hvd.rank())
        self.optimizer.zero_grad()
        self.model(torch.randn(8, 30, generator=generator).to(DEVICE)).square().mean().backward()
        self.optimizer.synchronize()
        with self.optimizer.skip_synchronize():
            self.waits += place.waits_of(self.optimizer.step)


def change_a_bit(parameter):
    """On rank 1 alone."""
    if hvd.rank() == 1:
        with torch.no_grad():
            parameter.view(torch.int32)[0, 0] ^= 1


def finding(steps):
    """The text of what the audit finds, and after how many steps."""
    for step in range(1, MOST_LATER + 1):
        try:
            steps.run()
        except horo.ReplicasDiffer as error:
            return str(error), step
    return "", MOST_LATER


os.environ |= {"HORO_AUDIT": "raise", "HORO_AUDIT_EVERY": "1", "HORO_AUDIT_PERMILLE": "0"}
place.start()
alike = hashes_are_those_of_the_definition()
training = Steps()
for _ in range(STEPS):
    training.run()
waits = training.waits  # once a difference is known, ranks wait for each other
change_a_bit(training.model[2].weight)
text, later = finding(training)
hvd.broadcast_parameters(training.model.state_dict(), 0)
hvd.broadcast_optimizer_state(training.optimizer, 0)
hvd.audit()
place.tell(hashes_alike=alike, waits=waits, found="2.weight" in text and "rank 1" in text, steps_later=later, text=text)
hvd.shutdown()
