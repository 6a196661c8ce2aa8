"""A sandbox as containers have it: starts a program to which the kernel refuses some system calls (seccomp).

python refusing.py memfd_create,sched_setaffinity PROGRAM [ARGUMENTS]
"""

import ctypes
import errno
import os
import platform
import struct
import sys

NUMBERS = {
    "x86_64": {
        "memfd_create": 319,
        "sched_setaffinity": 203,
        "sched_getaffinity": 204,
        "pidfd_open": 434,
        "set_robust_list": 273,
    },
    "aarch64": {
        "memfd_create": 279,
        "sched_setaffinity": 122,
        "sched_getaffinity": 123,
        "pidfd_open": 434,
        "set_robust_list": 99,
    },
}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
LOAD_NUMBER, IS_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def refuse(names):
    code = struct.pack("=HBBI", LOAD_NUMBER, 0, 0, 0)
    numbers = [NUMBERS[platform.machine()][name] for name in names]
    for left, number in enumerate(numbers[::-1]):
        code_of = struct.pack("=HBBI", IS_EQUAL, left + 1, 0, number)
        numbers[len(numbers) - 1 - left] = code_of
    code += b"".join(numbers) + struct.pack("=HBBI", RETURN, 0, 0, ALLOW) + struct.pack("=HBBI", RETURN, 0, 0, REFUSE)
    libc = ctypes.CDLL(None, use_errno=True)
    program = Program(len(code) // 8, code)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(program)):
        sys.exit(f"seccomp: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    refuse(sys.argv[1].split(","))
    os.execvp(sys.argv[2], sys.argv[2:])
