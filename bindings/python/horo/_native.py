"""libhoro.so through ctypes: the structs, functions and numbers of bindings/c/horo_c.h.

A foreign call that releases the interpreter lock takes a millisecond to reacquire it while another Python thread is
busy; a call that keeps it takes microseconds. Calls through `quick` keep the lock, because they never block; calls
through `slow` release it.
"""

import ctypes
import os
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

ABI_VERSION = 1

# horo_bar
BAR_INPUT, BAR_FORWARD, BAR_BACKWARD, BAR_AFTER_BACKWARD, BAR_OPTIMIZER, BAR_CHECKPOINT, BAR_BETWEEN = range(7)
BAR_SKEW, BAR_AGREEMENT, BAR_TRANSFER, BAR_COPIES, BAR_COMMIT, BAR_HAND_OVER, BAR_MEMBERSHIP = range(7, 14)
# horo_mark
MARK_INPUT, MARK_BACKWARD, MARK_OPTIMIZER, MARK_CHECKPOINT, MARK_COLLECTION = range(5)
# flags of horo_step
STEP_ESTIMATED_WAIT, STEP_TOO_MANY_WAITS, STEP_JOBS_FORGOTTEN, STEP_DEVICE_TIME, STEP_NO_DEVICE_TIME = 1, 2, 4, 8, 16
END_OF_STEP = 2**32 - 1  # in place of the number of a mark
# flags of horo_ended_step
STEP_IN_FORWARD, STEP_WAITS_ELSEWHERE = 1, 2
# horo_status
OK, TIMEOUT = 0, 1
INVALID_ARGUMENT, MISMATCH, PEER_LOST, SHUT_DOWN, INTERNAL = -1, -2, -3, -4, -5
# dtype
UINT8, INT8, UINT16, INT16, INT32, INT64, FLOAT16, FLOAT32, FLOAT64, BOOL, BFLOAT16 = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
FLOAT8_E4M3, FLOAT8_E5M2, UINT32, UINT64, COMPLEX64, COMPLEX128 = 11, 12, 13, 14, 15, 16
# op
AVERAGE, SUM, ADASUM, MIN, MAX, PRODUCT, BIT_AND, BIT_OR, BIT_XOR, CUSTOM = range(10)
# kind
ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, BARRIER, REDUCE_SCATTER = 0, 1, 2, 4, 5, 6
REDUCE, GATHER, SCATTER, SEND_RECV = 7, 8, 9, 10
# flags of horo_op and horo_codec
OP_ASSOCIATIVE, OP_WHOLE = 1, 2
CODEC_STATEFUL = 1
SET_SHRINKS = 1
SET_BY_MEMBERS = 2
# device_type
HOST, CUDA = 0, 1
OUT_ON_DEVICE = (1 << 64) - 1
# order
ORDERS = {"canonical": 0, "fast": 1}


class Topology(ctypes.Structure):
    """horo_topology"""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("rank", c_int32),
        ("size", c_int32),
        ("local_rank", c_int32),
        ("local_size", c_int32),
        ("cross_rank", c_int32),
        ("cross_size", c_int32),
        ("epoch", c_uint32),
        ("min_size", c_int32),
        ("is_homogeneous", c_int32),
    ]


class TensorSpec(ctypes.Structure):
    """horo_tensor_spec"""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("set", c_uint32),
        ("kind", c_int32),
        ("op", c_int32),
        ("dtype", c_int32),
        ("order", c_int32),
        ("root", c_int32),
        ("peer", c_int32),
        ("stepwise", c_int32),
        ("priority", c_int32),
        ("prescale", c_double),
        ("postscale", c_double),
        ("name", c_char_p),
        ("shape", POINTER(c_int64)),
        ("splits", POINTER(c_int64)),
        ("codec", c_char_p),
        ("custom_op", c_char_p),
        ("dims", c_int32),
        ("split_count", c_int32),
        ("round_stream", c_uint64),
        ("counts_known", c_int32),
        ("device_type", c_int32),
    ]


class Submission(ctypes.Structure):
    """horo_submission"""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("absent", c_int32),
        ("key", c_int64),
        ("in", c_void_p),
        ("out", c_void_p),
        ("out_bytes", c_uint64),
        ("splits", POINTER(c_int64)),
        ("split_count", c_uint64),
        ("device_type", c_int32),
        ("device", c_int32),
        ("stream", c_void_p),
    ]


class DeviceStream(ctypes.Structure):
    """horo_stream"""

    _fields_ = [("struct_bytes", c_uint32), ("device", c_int32), ("stream", c_void_p)]


class Unit(ctypes.Structure):
    """horo_unit"""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("count", c_int32),
        ("name", c_char_p),
        ("specs", POINTER(TensorSpec)),
        ("submissions", POINTER(Submission)),
    ]


class StateBuffer(ctypes.Structure):
    """horo_state_buffer"""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("name", c_char_p),
        ("form", c_char_p),
        ("data", c_void_p),
        ("bytes", c_uint64),
        ("is_of_first", c_int32),
    ]


class Transferred(ctypes.Structure):
    """horo_transferred"""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("is_complete", c_int32),
        ("by_messages", c_int32),
        ("bytes", c_uint64),
        ("seconds", c_double),
        ("text", c_char_p),
    ]


class SetInfo(ctypes.Structure):
    """horo_set_info"""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("rank", c_int32),
        ("size", c_int32),
        ("ranks", POINTER(c_int32)),
        ("name", c_char_p),
    ]


# Callbacks of horo's threads, which acquire the interpreter lock first.
Combine = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_uint64, c_int32)
WireBytes = CFUNCTYPE(c_uint64, c_void_p, c_uint64)
Encode = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p, c_uint64)
Decode = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_uint64)


class Op(ctypes.Structure):
    """horo_op"""

    _fields_ = [("struct_bytes", c_uint32), ("flags", c_int32), ("combine", Combine), ("user", c_void_p)]


class Codec(ctypes.Structure):
    """horo_codec"""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("flags", c_int32),
        ("block", c_uint64),
        ("wire_bytes", WireBytes),
        ("encode", Encode),
        ("decode", Decode),
        ("user", c_void_p),
    ]


class Result(ctypes.Structure):
    """horo_result"""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("absent", c_int32),
        ("data", c_void_p),
        ("bytes", c_uint64),
        ("counts", POINTER(c_int64)),
        ("count_count", c_int32),
    ]


class Place(ctypes.Structure):
    """horo_place"""

    _fields_ = [("struct_bytes", c_uint32), ("plan", c_uint32), ("offset", c_uint64), ("bytes", c_uint64)]


class Step(ctypes.Structure):
    """horo_step"""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("known", c_uint32),
        ("number", c_uint64),
        ("stream", c_uint64),
        ("begin_ns", c_int64),
        ("time_ns", c_int64),
        ("bars_ns", c_int64 * 14),
        ("hidden_transfer_ns", c_int64),
        ("hidden_copies_ns", c_int64),
        ("gc_ns", c_int64),
        ("cpu_ns", c_int64),
        ("run_queue_ns", c_int64),
        ("samples", c_int64),
        ("work", c_int64),
        ("switches", c_int32),
        ("epoch", c_uint32),
        ("flags", c_uint32),
        ("late_ranks", c_int32 * 3),
        ("late_ns", c_int64 * 3),
    ]


class EndedStep(ctypes.Structure):
    """horo_ended_step"""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("flags", c_uint32),
        ("stream", c_uint64),
        ("samples", c_int64),
        ("work", c_int64),
        ("kinds", c_uint32),
        ("mark_count", c_uint32),
        ("marks", c_void_p),
    ]


class ExchangeCall(ctypes.Structure):
    """horo_exchange_call"""

    _fields_ = [
        ("struct_bytes", c_uint32),
        ("rank", c_int32),
        ("size", c_int32),
        ("start", c_int32),
        ("timeout_ms", c_int32),
        ("mine", c_void_p),
        ("mine_bytes", c_uint64),
        ("all", c_void_p),
        ("all_bytes", POINTER(c_uint64)),
        ("error", c_void_p),
        ("error_bytes", c_uint64),
        ("origin", c_int32),
    ]


EXCHANGE_BYTES = 4096
Exchange = CFUNCTYPE(c_int32, c_void_p, POINTER(ExchangeCall))

_SESSION = c_void_p
_WORKS = POINTER(c_int64)
# name: (result, arguments). Handles are declared as numbers, so that a submit converts only integers.
QUICK = {
    "horo_abi_version": (c_int32, []),
    "horo_version": (c_char_p, []),
    "horo_lost_variables": (c_char_p, []),
    "horo_error_text": (c_char_p, [_SESSION]),
    "horo_error_status": (c_int32, [_SESSION]),
    "horo_error_origin": (c_int32, [_SESSION]),
    "horo_get_topology": (c_int32, [_SESSION, POINTER(Topology)]),
    "horo_get_members": (c_int32, [_SESSION, POINTER(c_uint32), c_size_t]),
    "horo_notice": (c_int32, [_SESSION, POINTER(c_double)]),
    "horo_declare": (c_int64, [_SESSION, POINTER(TensorSpec)]),
    "horo_undeclare": (c_int32, [_SESSION, _WORKS, c_size_t]),
    "horo_submit": (c_int64, [_SESSION, c_int64, c_void_p, c_void_p]),
    "horo_submit_absent": (c_int64, [_SESSION, c_int64, c_void_p]),
    "horo_submit_many": (c_int32, [_SESSION, POINTER(Submission), c_size_t, _WORKS]),
    "horo_submit_many_in_place": (c_int32, [_SESSION, _WORKS, POINTER(c_void_p), c_size_t, _WORKS]),
    "horo_submit_spec": (c_int64, [_SESSION, POINTER(TensorSpec), POINTER(Submission)]),
    "horo_submit_unit": (c_int32, [_SESSION, POINTER(Unit), _WORKS]),
    "horo_poll": (c_int32, [_SESSION, c_int64]),
    "horo_wait": (c_int32, [_SESSION, _WORKS, c_size_t, c_int32]),  # with a timeout of 0 only, as the next
    "horo_wait_stream": (c_int32, [_SESSION, _WORKS, c_size_t, POINTER(DeviceStream), c_int32]),
    "horo_get_result": (c_int32, [_SESSION, c_int64, POINTER(Result)]),
    "horo_copy_result": (c_int32, [_SESSION, c_int64, c_void_p, POINTER(DeviceStream)]),
    "horo_release": (c_int32, [_SESSION, c_int64]),
    "horo_release_many": (c_int32, [_SESSION, _WORKS, c_size_t]),
    "horo_add_set": (c_int64, [_SESSION, POINTER(c_int32), c_size_t, c_char_p]),
    "horo_add_set_with": (c_int64, [_SESSION, POINTER(c_int32), c_size_t, c_char_p, c_uint32]),
    "horo_remove_set": (c_int64, [_SESSION, c_uint32]),
    "horo_get_set": (c_int32, [_SESSION, c_uint32, POINTER(SetInfo)]),
    "horo_join": (c_int64, [_SESSION, c_uint32]),
    "horo_rebuild": (c_int64, [_SESSION]),
    "horo_has_yet_to_join": (c_int32, [_SESSION]),
    "horo_can_grow": (c_int32, [_SESSION, c_char_p]),
    "horo_get_joiners": (c_int32, [_SESSION, POINTER(c_uint32), c_size_t]),
    "horo_grow": (c_int64, [_SESSION]),
    "horo_synced": (c_int32, [_SESSION, c_char_p]),
    "horo_register_op": (c_int32, [_SESSION, c_char_p, POINTER(Op)]),
    "horo_register_codec": (c_int32, [_SESSION, c_char_p, POINTER(Codec)]),
    "horo_step_end": (c_int32, [_SESSION, c_uint32]),
    "horo_end_round": (c_int32, [_SESSION, c_uint32]),
    "horo_end_step": (c_int32, [_SESSION, POINTER(EndedStep)]),
    "horo_add_marks": (c_int32, [_SESSION, c_void_p, c_uint32]),
    "horo_record_mark": (c_int32, [_SESSION, c_uint32, POINTER(DeviceStream)]),
    "horo_last_step": (c_int32, [_SESSION, POINTER(Step)]),
    "horo_get_steps": (c_int32, [_SESSION, POINTER(Step), c_size_t]),
    "horo_begin_round": (c_int32, [_SESSION, c_uint32, c_uint64, c_uint64, c_uint64]),
    "horo_fail_round": (c_int32, [_SESSION, c_uint32, c_uint64, c_char_p]),
    "horo_plans_version": (c_int64, [_SESSION]),
    "horo_get_places": (c_int32, [_SESSION, _WORKS, c_size_t, POINTER(Place)]),
    "horo_counters": (c_char_p, [_SESSION]),
    "horo_setting": (c_char_p, [_SESSION, c_char_p]),
    "horo_answer": (c_int32, [_SESSION, c_int64, c_char_p]),
    "horo_start_site": (c_int32, [c_char_p]),
}
SLOW = {
    "horo_init": (c_void_p, [POINTER(c_char_p), c_size_t]),
    "horo_rejoin": (c_char_p, [c_void_p]),
    "horo_init_join": (c_void_p, [POINTER(c_char_p), c_size_t, c_char_p]),
    "horo_transfer": (c_int32, [_SESSION, POINTER(StateBuffer), c_size_t, c_int32, POINTER(Transferred)]),
    "horo_init_exchange": (c_void_p, [POINTER(c_char_p), c_size_t, Exchange, c_void_p]),
    "horo_shutdown": (c_int32, [_SESSION]),
    "horo_shutdown_at_exit": (c_int32, [_SESSION]),
    "horo_free": (None, [_SESSION]),
    "horo_fail": (c_int32, [_SESSION, c_char_p, c_char_p]),
    "horo_abort": (c_int32, [_SESSION, c_char_p]),
    "horo_wait": (c_int32, [_SESSION, _WORKS, c_size_t, c_int32]),
    "horo_wait_stream": (c_int32, [_SESSION, _WORKS, c_size_t, POINTER(DeviceStream), c_int32]),
    "horo_finish_devices": (c_int32, [_SESSION, c_int32]),
    "horo_next_question": (c_int64, [_SESSION, c_int32]),
    "horo_ready_times": (c_char_p, [_SESSION]),
    "horo_start_timeline": (c_int32, [_SESSION, c_char_p]),
    "horo_stop_timeline": (c_int32, [_SESSION]),
    "horo_allocate": (c_void_p, [_SESSION, c_uint32, c_uint64, POINTER(c_void_p)]),
    "horo_free_memory": (None, [c_void_p]),
    "horo_hash_many": (c_int32, [POINTER(c_void_p), POINTER(c_uint64), c_size_t, c_void_p]),
}


def library_path():
    """HORO_LIBRARY, or the library that was installed in this folder."""
    chosen = os.environ.get("HORO_LIBRARY")
    if chosen:
        if not os.path.exists(chosen):
            raise ImportError(f"HORO_LIBRARY={chosen}: no such file; expected the path of libhoro.so")
        return chosen
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libhoro.so")
    if not os.path.exists(beside):
        raise ImportError(
            f"{beside} is missing: horo was not installed from a build. Run 'pip install .' in horo's repository, "
            "or set HORO_LIBRARY to the path of libhoro.so"
        )
    return beside


def bind(library, functions):
    for name, (result, arguments) in functions.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _load(path):
    try:
        slow, quick = ctypes.CDLL(path), ctypes.PyDLL(path)
    except OSError as error:
        raise ImportError(f"{path} cannot be loaded: {error}") from error
    quick.horo_abi_version.restype = c_int32
    found = quick.horo_abi_version()
    if found != ABI_VERSION:
        raise ImportError(f"{path} has version {found} of horo's C ABI; this package expects {ABI_VERSION}")
    return bind(slow, SLOW), bind(quick, QUICK)


slow, quick = _load(library_path())


def version():
    """The library's version."""
    return quick.horo_version().decode()
