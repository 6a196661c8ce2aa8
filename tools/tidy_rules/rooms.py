"""Include rules: the rooms, the rooms that each may include, and the headers that are slow to compile."""

import re

from tidy_rules import source

# Each room, and the rooms that it may include besides itself. A file belongs to the longest room that its path begins
# with; tests, tools, bench and examples stand above all rooms and may include each of them.
ROOMS = {
    "horo/base": set(),
    "ring": {"horo/base"},
    "controller": {"horo/base"},
    "elastic": {"horo/base"},
    "elastic/service": {"horo/base", "elastic"},
    "horo": {"horo/base", "ring", "controller", "elastic"},
    "bindings": set(),
    "tools": None,
    "tests": None,
    "bench": None,
    "examples": None,
}
DOORS = {"bindings": {"horo/horo.h"}}  # single headers that a room may include from a room closed to it otherwise

# Headers that are slow to compile or bring a library along: where they may be included, and by how many files there.
HEAVY_HEADERS = [
    (r"(spdlog|fmt)/", r"horo/base/log\.cc", 1),
    (r"openssl/", r"horo/base/auth\.cc|elastic/service/.*", 1),
    (r"CLI/", r"tools/(horo|relay)/main\.cc", 2),
    (r"ev(\+\+)?\.h", r"tools/horo/.*", 400),
    (r"mpi\.h", r"ring/mpi_plugin\.cc|bench/peers/mpi\.cc", 2),
    (r"nlohmann/", r"((tools/horo|tests|bench)/.*|ring/schedule_json\.cc)", 400),
    (r"(grpc|grpcpp|google/protobuf)/", r"elastic/service/.*", 400),
]


def room_of(path):
    rooms = [room for room in ROOMS if path.startswith(room + "/")]
    return max(rooms, key=len, default=None)


def check_includes(name, text):
    if not source.is_cpp(name):
        return
    room = room_of(name)
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not found:
            continue
        quoted, header = found[1] == '"', found[2]
        target = room_of(header)
        if quoted and target is None:
            yield number, f'"{header}": a header of the project is included by its path from the root'
        elif quoted and room and not may_include(room, target, header):
            yield number, f'{room}/ may not include "{header}"'
        for pattern, places, _ in HEAVY_HEADERS:
            if not quoted and re.match(pattern, header) and not re.fullmatch(places, name):
                yield number, f"<{header}> may be included by {places} alone"


def may_include(room, target, header):
    allowed = ROOMS[room]
    return allowed is None or target == room or target in allowed or header in DOORS.get(room, ())


def check_heavy_counts(texts):
    """A heavy header is compiled as few times as its table says."""
    for pattern, places, most in HEAVY_HEADERS:
        include = re.compile(rf"^\s*#\s*include\s*<{pattern}", re.M)
        files = [name for name, text in texts.items() if re.fullmatch(places, name) and include.search(text)]
        if len(files) > most:
            yield files[-1], 1, f"{len(files)} files include {pattern}: at most {most} ({', '.join(files)})"
