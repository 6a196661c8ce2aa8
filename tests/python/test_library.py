"""The dependencies of libhoro.so and horo, and the exported symbols of libhoro.so."""

import re
import shutil
import subprocess
import sysconfig

from horo import _native

ALLOWED = {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libcrypto.so.3"}


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed_by(path):
    return set(re.findall(r"NEEDED.*\[(.+)\]", output_of("readelf", "-d", path)))


def test_the_library_needs_the_runtime_and_libcrypto_only():
    needed = needed_by(_native.library_path())
    assert "libc.so.6" in needed
    assert needed <= ALLOWED


def test_the_program_needs_the_runtime_and_openssl_only():
    needed = needed_by(shutil.which("horo", path=sysconfig.get_path("scripts")))
    assert "libc.so.6" in needed
    assert needed <= ALLOWED | {"libssl.so.3", "ld-linux-x86-64.so.2"}


def test_the_library_exports_the_c_abi_only():
    symbols = output_of("nm", "-D", "--defined-only", _native.library_path()).split("\n")
    names = {line.split()[-1] for line in symbols if line}
    assert "horo_init" in names
    assert all(name.startswith("horo_") for name in names)


def test_the_library_can_be_loaded_after_a_framework():
    """Static thread-local storage may be exhausted after many libraries were loaded, so the library uses none."""
    relocations = output_of("readelf", "-rW", _native.library_path()).splitlines()
    assert not [line for line in relocations if "TPOFF" in line and "@" in line]
