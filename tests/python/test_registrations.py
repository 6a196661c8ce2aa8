"""Operations and codecs of the user: the library may call each one that it was given, as long as the session lives."""

import gc
import weakref

import pytest

import horo
from horo import _default
from horo._registrations import Registrations


@pytest.fixture
def alone():
    horo.init()
    yield _default.session()
    horo.shutdown()


class Codec:
    block = 1

    def wire_bytes(self, count):
        return 4 * count


def test_a_second_one_of_the_same_name_does_not_free_the_first(alone):
    for register, make in (
        (horo.register_op, lambda: lambda accumulator, value, dtype: None),
        (horo.register_codec, Codec),
    ):
        first = make()
        is_alive = weakref.ref(first)
        register("mine", first)
        del first
        with pytest.raises(ValueError, match="mine"):
            register("mine", make())
        gc.collect()
        assert is_alive() is not None


def test_the_next_session_of_a_process_gets_those_that_were_taken():
    class Session(Registrations):
        def __init__(self):
            super().__init__()
            self.calls = []

        def _register(self, kind, name, made, register):
            self.calls.append((kind, name, made))

    horo.init()
    before = _default.session()
    for name in ("one", "two", "one"):
        try:
            horo.register_op(name, lambda accumulator, value, dtype: None)
        except ValueError:
            refused = name
    horo.register_codec("three", Codec())
    horo.shutdown()
    after = Session()
    after.take_callbacks(before)
    assert [call[:2] for call in after.calls] == [("op", "one"), ("op", "two"), ("codec", "three")]
    assert after.calls[0][2] is before._callbacks[0] and refused == "one"
