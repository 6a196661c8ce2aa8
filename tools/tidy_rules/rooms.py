"""Include rules: the rooms, the rooms that each may include, and the headers that are slow to compile."""

import pathlib
import re

from tidy_rules import source

DOOR = "ring"  # the headers directly in ring/, which the folders below implement or use

RING = {DOOR, "ring/algorithms", "ring/algorithms/shm", "ring/bootstrap", "ring/codec", "ring/control", "ring/group"}
RING |= {"ring/cuda", "ring/mpi", "ring/nccl", "ring/os", "ring/reduce", "ring/schedule", "ring/shm", "ring/transport"}
PRODUCT = RING | {
    "controller",
    "elastic",
    "horo",
    "horo/steps",
    "horo/tensors",
    "horo/lane",
    "horo/engine",
    "horo/state",
    "horo/checkpoint",
    "bindings/c",
}
LAUNCHER = {"tools/horo/machine", "tools/horo/run"}
COMMANDS = LAUNCHER | {"tools/horo/bench", "tools/horo/conformance", "tools/horo/doctor"}
COMMANDS |= {"tools/horo/checkpoint", "tools/horo/scale", "tools/horo/timeline"}

# Each folder with C++, and the folders that it may include besides itself and horo/base. None: all folders, and its
# sub-folders need no row.
ROOMS = {
    "horo/base": set(),
    "ring/os": set(),
    "ring/reduce": set(),
    "ring/cuda": {"ring/reduce", DOOR},
    "ring/mpi": set(),
    "ring/nccl": {"ring/cuda", "ring/reduce", DOOR},
    "ring/codec": {"ring/reduce"},
    "ring/schedule": {"ring/reduce"},
    "ring": {"ring/schedule"},
    "ring/shm": {"ring/os", DOOR},
    "ring/transport": {"ring/os", "ring/shm", "ring/mpi", DOOR},
    "ring/control": {"ring/os", "ring/transport", DOOR},
    "ring/bootstrap": {"ring/os", "ring/shm", "ring/mpi", "ring/transport", DOOR},
    "ring/algorithms": {"ring/reduce", "ring/schedule", DOOR},
    "ring/algorithms/shm": {"ring/os", "ring/reduce", "ring/schedule", "ring/shm", "ring/algorithms", DOOR},
    "ring/group": RING - {"ring/transport", "ring/control", "ring/bootstrap"},
    "controller": set(),
    "elastic": set(),
    "elastic/service": {"elastic"},
    "horo/steps": {"ring/cuda", "ring/os"},
    "horo/tensors": {"controller", "ring/codec", "ring/cuda", "ring/reduce"},
    "horo/lane": {"horo/steps", "horo/tensors", "controller", "ring/cuda", "ring/group", "ring/nccl", "ring/os", DOOR},
    "horo/engine": {
        "horo/steps",
        "horo/tensors",
        "horo/lane",
        "controller",
        "elastic",
        "ring/group",
        "ring/os",
        "ring/schedule",
        "ring/shm",
        DOOR,
    },
    "horo": {
        "horo/steps",
        "horo/tensors",
        "horo/lane",
        "horo/engine",
        "elastic",
        "ring/codec",
        "ring/cuda",
        "ring/os",
        "ring/reduce",
        DOOR,
    },
    "horo/state": {"horo", "ring/os"},
    "horo/checkpoint": {"horo", "ring/os"},
    "bindings/c": {"bindings/c/horo_c"},
    "bindings/c/horo_c": set(),
    "tools/horo/machine": PRODUCT,
    "tools/horo/run": PRODUCT | {"tools/horo/machine"},
    "tools/horo/doctor": PRODUCT | {"tools/horo/machine"},
    "tools/horo/bench": PRODUCT | LAUNCHER,
    "tools/horo/conformance": PRODUCT | LAUNCHER | {"tools/horo/bench"},
    "tools/horo/scale": PRODUCT | LAUNCHER,
    "tools/horo/timeline": PRODUCT,
    "tools/horo/checkpoint": PRODUCT,
    "tools/horo": PRODUCT | COMMANDS | {"elastic/service"},
    "tools/relay": PRODUCT | {"tools/horo/machine"},
    "bench/against": PRODUCT | LAUNCHER | {"tools/horo/bench", "bench/peers"},
    "bench/peers": PRODUCT | {"tools/horo/bench", "bench/against"},
    "examples": PRODUCT,
    "tests": None,
}
# These are used outside of the project, so they include one another by the path from their own folder.
PUBLIC_C = ("bindings/c/horo_c.h", "bindings/c/horo_c/")
CLOSED_TO_BASE = {"bindings/c", "bindings/c/horo_c"}
CHECKPOINTS = {"horo/checkpoint/catalog.h", "horo/checkpoint/load.h", "horo/checkpoint/save.h"}
# Single headers that a room may include from a room closed to it otherwise.
DOORS = {
    "bindings/c": {"horo/horo.h", "horo/state/transfer.h", *CHECKPOINTS},
    "horo/tensors": {"horo/topology.h"},
    "horo/lane": {"horo/topology.h"},
    "horo/engine": {"horo/topology.h"},
}

# Headers that are slow to compile or bring a library along: where they may be included, and by how many files there. A
# header with several rows may be included by the places of each.
HEAVY_HEADERS = [
    (r"(spdlog|fmt)/", r"horo/base/log\.cc", 1),
    (r"openssl/", r"horo/base/auth\.cc", 1),
    (r"openssl/", r"elastic/service/.*", 1),
    (r"openssl/", r"tests/elastic/service/.*", 1),
    (r"CLI/", r"(tools/(horo|relay)|bench/against)/main\.cc", 3),
    (r"CLI/", r"tools/horo/(bench_options|checkpoint_options|cli_words|scale_options)\.(cc|h)", 6),
    (r"ev(\+\+)?\.h", r"(tools/horo|bench/against)/.*", 400),
    (r"mpi\.h", r"ring/mpi/mpi_plugin\.cc|bench/peers/mpi\.cc", 2),
    (r"nlohmann/", r"((tools/horo|tests|bench)/.*|ring/schedule/schedule_json\.cc)", 400),
    (r"nlohmann/", r"horo/checkpoint/(index_json|safetensors)\.cc", 2),
    (r"(grpc|grpcpp|google/protobuf)/", r"elastic/service/.*", 400),
    (r"grpc/grpc.h", r"tests/elastic/service/.*", 1),
]


def room_of(path):
    """The row of the file's folder in ROOMS, or of a folder above that is open to all; None if there is no row."""
    folders = [str(folder) for folder in pathlib.PurePosixPath(path).parents]
    if folders[0] in ROOMS:
        return folders[0]
    return next((folder for folder in folders if folder in ROOMS and ROOMS[folder] is None), None)


def check_includes(name, text):
    if not source.is_cpp(name):
        return
    room = room_of(name)
    if room is None:
        yield 1, f"{pathlib.PurePosixPath(name).parent}/ has no row in the include table, tools/tidy_rules/rooms.py"
        return
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not found:
            continue
        quoted, header = found[1] == '"', found[2]
        if name.startswith(PUBLIC_C) and quoted and "/" not in header.removeprefix("horo_c/"):
            continue
        if quoted and room_of(header) is None:
            yield number, f'"{header}": a header of the project is included by its path from the root'
        elif quoted and not may_include(room, header):
            yield number, f'{room}/ may not include "{header}"'
        places = [] if quoted else [row[1] for row in HEAVY_HEADERS if re.match(row[0], header)]
        if places and not any(re.fullmatch(place, name) for place in places):
            yield number, f"<{header}> may be included by {'|'.join(places)} alone"


def may_include(room, header):
    allowed, target = ROOMS[room], room_of(header)
    if target == "horo/base":
        return room not in CLOSED_TO_BASE
    return allowed is None or target == room or target in allowed or header in DOORS.get(room, ())


def check_heavy_counts(texts):
    """A heavy header is compiled as few times as its table says."""
    for pattern, places, most in HEAVY_HEADERS:
        include = re.compile(rf"^\s*#\s*include\s*<{pattern}", re.M)
        files = [name for name, text in texts.items() if re.fullmatch(places, name) and include.search(text)]
        if len(files) > most:
            yield files[-1], 1, f"{len(files)} files include {pattern}: at most {most} ({', '.join(files)})"
