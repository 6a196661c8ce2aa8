"""horo run --min-np --nnodes: parts of the job that hang, and ranks that have left when their job ends."""

import os
import signal
import time

import test_run_elastic_hosts as hosts
from test_run_elastic_hosts import LEAVE, expect_three_left

job = hosts.job


def test_a_hung_agent_costs_no_rank(job):
    job = job("wait_for('die')\nif rank == 3: die()\n" + LEAVE, options=["--evict-after", "6"])
    job.start_both()
    agents = [job.service("agent", host) for host in (0, 1)]
    for agent in agents:
        os.kill(agent, signal.SIGSTOP)
    for host, agent in enumerate(agents):
        job.line(host, "the agent of this host ended (signal 9 (SIGKILL)): it is started again")
        job.line(host, "contact with the rendezvous")
    job.let("die")
    expect_three_left(job, 0, 1)


def test_a_hung_rendezvous_is_started_again(job):
    job = job("wait_for('die')\nif rank == 3: die()\n" + LEAVE, options=["--evict-after", "3"])
    job.start_both()
    os.kill(job.service("rendezvous"), signal.SIGSTOP)
    job.line(0, "the rendezvous of this host is stopped: it is killed")
    job.line(1, "the rendezvous runs again, in term 2")
    job.let("die")
    expect_three_left(job, 0, 1)


def test_a_rank_that_has_left_writes_its_results_while_others_of_its_host_wait_for_a_decision(job):
    program = """
if rank == 0:
    member.receive(FREEZE)
    member.frozen({})
    member.leave()
    print('left', flush=True)
    wait_for('write')
    print('written', flush=True)
    sys.exit(0)
if rank == 3: die()
member.receive(FREEZE)
if rank == 1: member.leave(), sys.exit(0)
member.frozen({})
print(member.text(EVICTED))
"""
    job = job(program, least=4, options=["--park-timeout", "0.5"])
    job.start(0), job.start(1)
    assert job.hosts[0].stdout.readline() == "[0] left\n"
    assert job.ended(1)[0] != 0
    time.sleep(1.5)
    job.let("write")
    code, lines, errors = job.ended(0)
    assert lines == ["[0] written"] and code != 0, errors
