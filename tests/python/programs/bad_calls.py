"""Calls of the C ABI with invalid handles, pointers and numbers: each returns an error text, none crashes."""

import ctypes

import arrays

import horo
from horo import _default, _native
from horo._native import quick, slow

BAD_WORKS = (0, -1, 1, 1 << 40, -(1 << 63), (1 << 63) - 1)


def refused(status, *parts):
    text = quick.horo_error_text(None).decode()
    assert status in (_native.INVALID_ARGUMENT, None, b""), status
    assert all(part in text for part in parts), text


def spec_with(**fields):
    shape = (ctypes.c_int64 * 1)(3)
    good = {"struct_bytes": ctypes.sizeof(_native.TensorSpec), "kind": 0, "op": 1, "dtype": 7}
    good |= {"prescale": 1.0, "postscale": 1.0, "name": b"x", "shape": shape, "dims": 1}
    return _native.TensorSpec(**good | fields)


def without_a_session():
    for call in (
        lambda: quick.horo_submit(None, 0, None, None),
        lambda: quick.horo_declare(None, spec_with()),
        lambda: quick.horo_poll(None, 1),
        lambda: slow.horo_wait(None, None, 0, 0),
        lambda: quick.horo_release(None, 1),
        lambda: quick.horo_release_many(None, None, 0),
        lambda: quick.horo_step_end(None, 0),
        lambda: quick.horo_begin_round(None, 0, 1, 0, 0),
        lambda: quick.horo_fail_round(None, 0, 1, b"why"),
        lambda: quick.horo_counters(None),
        lambda: slow.horo_shutdown(None),
        lambda: slow.horo_abort(None, b"why"),
        lambda: quick.horo_get_topology(None, _native.Topology(ctypes.sizeof(_native.Topology))),
    ):
        refused(call(), "session is a null pointer")
    slow.horo_free(None)
    refused(slow.horo_init(None, 3), "settings is a null pointer")
    refused(slow.horo_init((ctypes.c_char_p * 1)(None), 1), "HORO_NAME=value")


def with_bad_numbers(session):
    for work in BAD_WORKS:
        refused(quick.horo_poll(session, work), "no work")
        refused(quick.horo_release(session, work), "no work")
        refused(quick.horo_release_many(session, (ctypes.c_int64 * 1)(work), 1), "no work")
        refused(slow.horo_wait(session, (ctypes.c_int64 * 1)(work), 1, 0), "no work")
        refused(quick.horo_submit(session, work if work != 1 else 77, None, None), "not declared")
    refused(slow.horo_wait(session, None, 1, 0), "null pointer")
    refused(quick.horo_release_many(session, None, 1), "null pointer")
    refused(quick.horo_submit_many(session, None, 1, None), "null pointer")
    refused(quick.horo_submit_many_in_place(session, None, None, 1, None), "null pointer")
    one, nowhere = (ctypes.c_int64 * 1)(77), (ctypes.c_void_p * 1)(None)
    refused(quick.horo_submit_many_in_place(session, one, nowhere, 1, one), "not declared")
    refused(quick.horo_step_end(session, 77), "77")
    refused(quick.horo_begin_round(session, 77, 1, 0, 0), "77")
    refused(quick.horo_begin_round(session, 0, 0, 0, 0), "round stream 0")
    refused(quick.horo_fail_round(session, 77, 1, None), "77")
    refused(quick.horo_fail_round(session, 0, 0, None), "round stream 0")


def with_bad_specs(session):
    bad = [{name: 99} for name in ("kind", "op", "dtype", "order", "set", "device_type")]
    bad += [{"dims": -1}, {"dims": 1 << 20, "shape": None}, {"struct_bytes": 4}, {"name": b"x" * 5000}]
    bad += [{"shape": (ctypes.c_int64 * 1)(-1)}, {"shape": (ctypes.c_int64 * 1)(1 << 62)}, {"prescale": float("nan")}]
    bad += [{"round_stream": 5}, {"round_stream": 5, "stepwise": 1, "name": None}]
    for fields in bad:
        refused(quick.horo_declare(session, spec_with(**fields)))
    refused(quick.horo_declare(session, None), "null pointer")
    refused(quick.horo_get_result(session, 1, None), "null pointer")
    refused(quick.horo_get_topology(session, _native.Topology(3)), "struct_bytes")
    key = quick.horo_declare(session, spec_with())
    refused(quick.horo_submit(session, key, None, None), "x")


without_a_session()
horo.init()
with_bad_numbers(_default.session().pointer)
with_bad_specs(_default.session().pointer)
assert arrays.reduce("after") == 1.0
horo.shutdown()
