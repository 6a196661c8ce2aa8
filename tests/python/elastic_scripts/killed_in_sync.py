"""Runs a script of this folder on a rank, unchanged: `python killed_in_sync.py SCRIPT DEATHS`. A rank kills itself in
the sync() of its State, or in its reset callbacks, at a collective.

DEATHS: words MEMBER:PLACE:GROWTHS:NUMBER:WHEN, of the rank that horo run calls MEMBER. PLACE: sync, with the agreement
behind it, or reset. GROWTHS: how often the job has grown before. NUMBER: of the collective in this call of PLACE, from
1. WHEN: before or after it is submitted. Prints for each call of PLACE how many collectives it had."""

import functools
import os
import pathlib
import runpy
import signal
import sys

import torch

from horo import _default, _growth
from horo._repeats import Repeat
from horo._session import Session
from horo.torch.elastic import loop
from horo.torch.elastic.base import State

ME = os.environ["HORO_RANK"]
script, *words = sys.argv[1:]
deaths = [word.split(":", 1)[1] for word in words if word.split(":")[0] == ME]
place, number = None, 0


def die_if(when):
    if f"{place}:{number}:{when}" in deaths:
        print(f"dies {place}:{number}:{when}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def counted(submit):
    @functools.wraps(submit)
    def submit_and_count(*args, **options):
        global number
        number += 1
        die_if("before")
        work = submit(*args, **options)
        die_if("after")
        return work

    return submit_and_count


def placed(name, function):
    @functools.wraps(function)
    def call(state):
        global place, number
        place, number = f"{name}:{_growth.growths_of(_default.session())}", 0
        try:
            return function(state)
        finally:
            print(f"did {place} of {number}", flush=True)
            place = None

    return call


torch.set_num_threads(1)
Session.submit, Repeat.start = counted(Session.submit), counted(Repeat.start)
loop._sync, State.on_reset = placed("sync", loop._sync), placed("reset", State.on_reset)
sys.argv[:] = [script]
runpy.run_path(str(pathlib.Path(__file__).with_name(f"{script}.py")), run_name="__main__")
