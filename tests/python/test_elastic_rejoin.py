"""What the threads of a process see while it joins a job again."""

import os
import threading

import pytest

import horo
from horo import _default


@pytest.mark.parametrize("fails", [False, True])
def test_rank_and_size_stay_until_the_new_session_is_there(monkeypatch, fails):
    horo.init()
    evicted, seen = _default.session(), []
    horo.register_op("mine", lambda accumulator, value, dtype: None)
    evicted.topology.rank, evicted.topology.size = 2, 4
    make = _default.Session

    def session(settings, exchange, terms):
        thread = threading.Thread(target=lambda: seen.append((horo.rank(), horo.size(), horo.local_rank())))
        thread.start()
        thread.join()
        assert not horo.is_initialized()
        if fails:
            raise horo.PeerLost("the job has ended")
        return make(settings, exchange)

    monkeypatch.setattr(_default, "Session", session)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    try:
        _default.rejoin({}, "a=1")
        assert not fails and horo.size() == 1
        with pytest.raises(ValueError, match="mine"):  # the new session has it
            horo.register_op("mine", lambda accumulator, value, dtype: None)
    except horo.PeerLost:
        with pytest.raises(ValueError, match="not been initialized"):
            horo.rank()
    assert seen == [(2, 4, 0)]
    horo.shutdown()
