"""Where the time of steps goes: delays of known length land in their bars, and the bars add up (docs/scaling.md).

Compute is sleep. A delay is as long as the program has measured it. Of the steps, the half counts in which the ranks
waited least for a core, and that wait is allowed for."""

import gc
import io
import statistics
import threading
import time

import torch

import horo.torch as horo

PLACES = ("input", "forward", "backward", "after_backward", "optimizer", "checkpoint", "between")
delays = dict.fromkeys(PLACES, 0.0)  # seconds
spent = dict.fromkeys(PLACES, 0)  # nanoseconds in delays, as measured


def delay(place):
    if delays[place] > 0:
        begin = time.monotonic_ns()
        time.sleep(delays[place])
        spent[place] += time.monotonic_ns() - begin


class Slow(torch.autograd.Function):
    """The identity, whose backward may be slow."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        delay("backward")
        return gradient


class SGD(torch.optim.SGD):
    def step(self, closure=None):
        delay("optimizer")
        return super().step(closure)


class Batches(torch.utils.data.Dataset):
    def __len__(self):
        return 8_000

    def __getitem__(self, index):
        if index % 8 == 0:
            delay("input")
        return torch.ones(16)


class SlowFile(io.BytesIO):
    """Its first write is slow."""

    is_first = True

    def write(self, data):
        if self.is_first:
            self.is_first = False
            delay("checkpoint")
        return super().write(data)


def ended_steps(model, optimizer, count):
    """Trains for some steps: the record of each, and what was spent in delays in it."""
    batches = iter(torch.utils.data.DataLoader(Batches(), batch_size=8))
    found, before = [], None
    for _ in range(count + 1):
        delay("between")
        x = next(batches)
        optimizer.zero_grad()
        delay("forward")
        model(Slow.apply(x.requires_grad_())).square().mean().backward()
        if before is not None:
            found.append((horo.last_step(), {place: spent[place] - before[place] for place in PLACES}))
        before = dict(spent)
        delay("after_backward")
        optimizer.step()
        torch.save(model.state_dict(), SlowFile())
    return found


def check_sums(records):
    for one, next_one in zip(records, records[1:]):
        assert next_one["begin"] == one["begin"] + one["time"] and next_one["step"] == one["step"] + 1, (one, next_one)
    for one in records:
        assert sum(ns or 0 for ns in one["bars"].values()) == one["time"], one
        assert all(ns is None or ns >= 0 for ns in one["bars"].values()), one


def quiet(run):
    """The half of the steps of run() in which ranks waited least for a core: pairs that begin with a record, and the
    longest such wait in nanoseconds, by which other times may be wrong."""
    found = run()
    check_sums([one for one, _ in found])
    waits, after = [], 0  # of a step without this figure: that of the next one that has it, which covers it
    for one, _ in reversed(found):
        after = after if one["run_queue"] is None else one["run_queue"]
        waits.append(after)
    queued = horo.allreduce(torch.tensor(waits[::-1]), op=horo.Max).tolist()
    quietest = sorted(range(len(found)), key=lambda i: queued[i])[: len(found) // 2]
    return [found[i] for i in quietest], queued[quietest[-1]]


def medians(found):
    return {place: statistics.median(one["bars"][place] or 0 for one, _ in found) for place in found[0][0]["bars"]}


def planted(found):
    return {place: statistics.median(times[place] for _, times in found) for place in PLACES}


def check_delays_land_in_their_bars():
    model = torch.nn.Linear(16, 4)
    optimizer = horo.DistributedOptimizer(SGD(model.parameters(), lr=0.1))
    delays.update(dict.fromkeys(PLACES, 0.001))
    base, slack_before = quiet(lambda: ended_steps(model, optimizer, 24))
    for place in PLACES:
        delays[place] = 0.009
        found, slack = quiet(lambda: ended_steps(model, optimizer, 24))
        slack += slack_before
        delays[place] = 0.001
        bars, before = medians(found), medians(base)
        grown = planted(found)[place] - planted(base)[place]
        assert abs(bars[place] - before[place] - grown) <= max(0.05 * grown, 1e6) + slack, (place, bars, before, grown)
        for other in bars.keys() - {place}:
            assert bars[other] - before[other] <= 2e6 + slack, (place, other, bars, before)
    private = "torch.utils.data.dataloader has other private names: see horo/torch/marks.py"
    assert horo.last_step()["bars"]["input"] is not None, private
    assert horo.last_step()["samples"] == 8 and horo.last_step()["work"] == 8 * 16
    assert horo.last_step()["notes"] == []


def check_what_horo_adds_is_small():
    """Between and hand-over, of a step of 50 ms."""
    model = torch.nn.Linear(16, 4)
    optimizer = horo.DistributedOptimizer(SGD(model.parameters(), lr=0.1))
    delays.update(dict.fromkeys(PLACES, 0.0) | {"forward": 0.02, "backward": 0.03})
    found, slack = quiet(lambda: ended_steps(model, optimizer, 24))
    bars = medians(found)
    assert bars["between"] + bars["hand_over"] <= 0.03 * sum(bars.values()) + slack, bars
    delays.update(dict.fromkeys(PLACES, 0.0))


def check_a_late_rank_is_named():
    model = torch.nn.Linear(16, 4)
    optimizer = horo.DistributedOptimizer(SGD(model.parameters(), lr=0.1))
    delays["forward"] = 0.002 + 0.01 * (horo.rank() == 1)
    found, slack = quiet(lambda: ended_steps(model, optimizer, 24))
    delays["forward"] = 0.0
    late = torch.tensor([statistics.median(times["forward"] for _, times in found)], dtype=torch.float64)
    first, second = horo.allgather(late).tolist()
    bars = medians(found)
    if horo.rank() == 1:
        assert bars["skew"] < 1e6 + slack, bars
    else:
        assert abs(bars["skew"] - (second - first)) <= max(0.1 * (second - first), 1e6) + slack, (bars, slack)
        assert all(set(one["late"]) <= {0, 1} for one, _ in found)
        assert statistics.median(one["late"].get(1, 0) for one, _ in found) >= 0.9 * bars["skew"]


def check_collections_and_other_threads():
    """Garbage collections of the training thread count beside the bars; marks of other threads do not count."""
    model = torch.nn.Linear(16, 4)
    optimizer = horo.DistributedOptimizer(SGD(model.parameters(), lr=0.1))
    gc.collect()
    before = ended_steps(model, optimizer, 3)[-1][0]
    assert before["gc"] is not None
    cycles = [[] for _ in range(200_000)]
    for one in cycles:
        one.append(one)
    del cycles, one
    gc.collect()
    done = threading.Event()

    def load_elsewhere():
        for _ in torch.utils.data.DataLoader(Batches(), batch_size=8):
            if done.is_set():
                return

    thread = threading.Thread(target=load_elsewhere)
    thread.start()
    model(torch.ones(8, 16)).square().mean().backward()
    step = horo.last_step()
    done.set()
    thread.join()
    optimizer.step()
    assert step["gc"] > 1e6 and step["bars"]["input"] == 0 and step["samples"] is None, step


def check_batches_of_two_loaders_count_and_those_of_a_validation_do_not():
    model = torch.nn.Linear(16, 4)
    optimizer = horo.DistributedOptimizer(SGD(model.parameters(), lr=0.1))
    labelled, unlabelled = (torch.utils.data.DataLoader(Batches(), batch_size=size) for size in (8, 24))
    validation = horo.input([torch.ones(100, 16)] * 2)
    for _, (x, y) in zip(range(3), zip(labelled, unlabelled)):
        for batch in validation:
            model(batch)
        with torch.no_grad():
            for batch in validation:
                model(batch)
                break
        optimizer.zero_grad()
        (model(x).square().mean() + model(y).square().mean()).backward()
        optimizer.step()
        assert horo.last_step()["samples"] == 32, horo.last_step()


def check_several_optimizers_and_cross_barrier():
    """A round of two optimizers is one step; with cross_barrier a step ends with the last update."""
    models = [torch.nn.Linear(16, 4) for _ in range(2)]
    both = [horo.DistributedOptimizer(SGD(model.parameters(), lr=0.1)) for model in models]
    before = horo.last_step()["step"]
    for _ in range(4):
        for optimizer in both:
            optimizer.zero_grad()
        sum(model(torch.ones(8, 16)).square().mean() for model in models).backward()
        for optimizer in both:
            optimizer.step()
    assert horo.last_step()["step"] == before + 4
    for _ in range(2):  # each in turn, as in a GAN
        for model, optimizer in zip(models, both):
            optimizer.zero_grad()
            model(torch.ones(8, 16)).square().mean().backward()
            optimizer.step()
    assert horo.last_step()["step"] == before + 8
    assert len({one["stream"] for one in horo.last_steps(4)}) == 2
    model = torch.nn.Linear(16, 4)
    crossing = horo.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), cross_barrier=True)
    before = horo.last_step()["step"]
    for _ in range(5):
        crossing.zero_grad()
        model(torch.ones(8, 16)).square().mean().backward()
        crossing.step()
    crossing.synchronize()
    assert before + 4 <= horo.last_step()["step"] <= before + 6
    check_sums(horo.last_steps())


horo.init()
torch.manual_seed(1)
assert horo.last_step() is None and horo.last_steps() == []
check_collections_and_other_threads()
check_batches_of_two_loaders_count_and_those_of_a_validation_do_not()
check_several_optimizers_and_cross_barrier()
check_a_late_rank_is_named()
check_what_horo_adds_is_small()
check_delays_land_in_their_bars()
check_sums(horo.last_steps())
