"""tools/soak survive --restarts: the rendezvous of two hosts is killed and started again, again and again, while four
ranks train. Terms only rise, the epoch never falls, ranks go on meanwhile, and the hosts are registered again soon. In
each job a rank dies in one of the last restarts.
"""

import os
import random
import re
import shutil
import signal
import statistics
import time

import hosts

from . import on_hosts, survive_partitions

OF_JOB = 40
LAST = 3  # restarts of a job, in one of which a rank dies
DOWN_S = (0, 0.5)
PAUSE_MS = 10
LIMIT_S = 1.0  # for serving again; the median, and each beside a loaded machine:
LOADED_LIMIT_S = 5.0
ENDLESS = 10**9


def add_arguments(parser):
    parser.add_argument("--restarts", type=int, metavar="COUNT", help="only restarts of the rendezvous of two hosts")


class Restarts:
    """The restarts of one job."""

    def __init__(self, place, number, count, options):
        self.chance = random.Random(f"{options.seed}/restarts/{number}")
        self.place, self.count, self.seconds, self.wrong = place, count, [], []
        self.fatal = count - self.chance.randint(1, LAST) if count > LAST else None
        self.results = survive_partitions.Results(place)
        environment = {"TEST_RESULTS": str(self.results.folder), "TEST_PAUSE_MS": str(PAUSE_MS)}
        rank = [options.rank, self.chance.choice(survive_partitions.PROGRAMS), ENDLESS, number]
        settings = ["--min-np", "1", "--evict-after", "3", "-v"]
        self.job = on_hosts.HostsJob(place, rank, settings, environment, place.third)

    def run(self):
        try:
            if not survive_partitions.wait_for_rounds(self.job, self.results):
                return [*self.wrong, "the job does not begin"]
            for number in range(self.count):
                self._restart(number == self.fatal)
            self.wrong += self._faults()
        finally:
            for run in self.job.runs.values():
                run.process.send_signal(signal.SIGTERM)
            codes = self.job.codes(survive_partitions.START_S)
        self.wrong += [f"host {host} does not end" for host, code in codes.items() if code is None]
        return self.wrong + on_hosts.left(self.place)

    def _restart(self, is_fatal):
        before, known = len(self.job.lines), self._rounds()
        self.place.third.kill()
        if is_fatal:
            pid = int(re.search(r"rank 3: process (\d+)", self.job.text)[1])
            os.kill(pid, signal.SIGKILL)
        time.sleep(self.chance.uniform(*DOWN_S))
        self.place.third.start()
        begin = time.monotonic()
        times = [self.job.wait_for(r"the rendezvous runs again, in term", 20, host, before) for host in "AB"]
        if None in times:
            state = on_hosts.state_of(self.place)
            self.wrong.append(f"{times.count(None)} hosts are not registered again within 20 s\n{state}")
            return
        self.seconds.append(max(times) - begin)
        if is_fatal and not all(self.job.wait_for(r"epoch 1 runs on all 3", 20, host, before) for host in "AB"):
            self.wrong.append("a death while the rendezvous was away is not resolved")
        end = time.monotonic() + 5
        while self._rounds() <= known and time.monotonic() < end:
            time.sleep(0.01)
        if self._rounds() <= known:
            self.wrong.append("the ranks do not go on")

    def _rounds(self):
        return min(map(len, list(self.results.by_rank().values())[:3]))

    def _faults(self):
        for host in "AB":
            text = self.job.of_host(host)
            terms = [int(term) for term in re.findall(r"in term (\d+)", text)]
            if len(terms) != self.count or any(one >= other for one, other in zip(terms, terms[1:])):
                yield f"host {host} is told of the terms {terms}"
            epochs = [int(epoch) for epoch in re.findall(r"epoch (\d+) runs on", text)]
            if epochs != ([] if self.fatal is None else [1]):
                yield f"host {host} is told of the epochs {epochs}"
        yield from survive_partitions.faults_of_results(self.results.by_rank(), ())


def run_all(options):
    if hosts.missing():
        raise SystemExit(f"tools/soak survive --restarts: {hosts.missing()}")
    wrong, seconds = [], []
    with on_hosts.places(options.horo) as place:
        for number, first in enumerate(range(0, options.restarts, OF_JOB)):
            third = on_hosts.ThirdRendezvous(place)
            try:
                one = Restarts(place, number, min(OF_JOB, options.restarts - first), options)
                wrong += [f"job {number}: {text}\n{one.job.text}" for text in one.run()]
                seconds += one.seconds
            finally:
                third.kill()
                shutil.rmtree(third.folder)  # of a job that has not ended in good order
    median, longest = (statistics.median(seconds), max(seconds)) if seconds else (0, 0)
    if median > LIMIT_S or longest > LOADED_LIMIT_S:
        wrong.append(f"serving again takes {median:.2f} s, at most {longest:.2f} s")
    over = sum(one > LIMIT_S for one in seconds)
    return {"restarts": len(seconds), "median_s": median, "longest_s": longest, "over_1_s": over, "wrong": wrong}


def show(summary):
    print(
        f"{summary['restarts']} restarts; both hosts are registered again after {summary['median_s']:.3f} s (median), "
        f"{summary['longest_s']:.3f} s (longest); {summary['over_1_s']} after more than 1 s"
    )
