"""start_timeline and stop_timeline at any time, over collectives of sets and messages."""

import json
import os
import tempfile

import claims_bare
import numpy as np
from claims_bare import raises

import horo.numpy as hvd

folder = tempfile.mkdtemp()


def events_of(path):
    name = path if hvd.rank() == 0 else path.replace(".json", f".rank{hvd.rank()}.json")
    with open(name) as file:
        return json.load(file)


def what_runs_in_between_is_in_the_file():
    path = os.path.join(folder, "ünicode.json")
    hvd.allreduce(np.ones(3), name="before")
    part = hvd.add_process_set([0, 1])
    hvd.start_timeline(path, mark_cycles=True)
    hvd.allreduce(np.ones(3), name='during "quotes" \n')
    if part.included():
        hvd.allreduce(np.ones(3), name="of the set", process_set=part)
    if hvd.rank() == 0:
        hvd.send(np.ones(4), 1, name="mail")
    if hvd.rank() == 1:
        hvd.recv(np.empty(4), 0, name="mail")
    hvd.barrier()
    hvd.stop_timeline()
    hvd.allreduce(np.ones(3), name="after")
    hvd.stop_timeline()
    events = events_of(path)
    names = {event["name"] for event in events if event["ph"] == "b"}
    assert 'during "quotes" \n' in names and not names & {"before", "after"}
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    inside = {"messages", "collectives of process set 1"}
    assert "collectives of the world" in tracks and inside & tracks == (inside if part.included() else set()), tracks
    hvd.remove_process_set(part)


def one_is_written_at_a_time():
    hvd.start_timeline(os.path.join(folder, "a.json"))
    with raises(ValueError, "one is being written already"):
        hvd.start_timeline(os.path.join(folder, "b.json"))
    hvd.stop_timeline()
    with raises(ValueError, "cannot write", "no such file"):
        hvd.start_timeline(os.path.join(folder, "none", "c.json"))
    hvd.allreduce(np.ones(3))


def the_end_of_the_session_completes_it():
    path = os.path.join(folder, "last.json")
    hvd.start_timeline(path)
    hvd.allreduce(np.ones(3), name="last")
    number = hvd.rank()
    hvd.shutdown()
    name = path if number == 0 else path.replace(".json", f".rank{number}.json")
    with open(name) as file:
        assert any(event["name"] == "last" for event in json.load(file))
    hvd.init()


claims_bare.check(
    what_runs_in_between_is_in_the_file,
    one_is_written_at_a_time,
    the_end_of_the_session_completes_it,
)
