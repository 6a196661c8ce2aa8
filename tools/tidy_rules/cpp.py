"""Rules of one line of C++, with comments and strings blanked."""

import pathlib
import re

from tidy_rules import source

FORBIDDEN = [
    (r"\bgoto\b", "goto: use a function or a loop"),
    (r"\.detach\s*\(", "a detached thread: keep a std::jthread"),
    (r"\batomic_thread_fence\b", "a fence: ThreadSanitizer does not support fences"),
    (r"\busing namespace\b(?!.*literals)", "using namespace, of more than literals"),
]
SLEEPS = r"\b(sleep_for|sleep_until|usleep|nanosleep)\b|(?<!\w)::sleep\s*\("


def check_cpp(name, text):
    if not source.is_cpp(name):
        return
    code = source.without_comments_and_strings(text)
    may_sleep = pathlib.PurePosixPath(name).name.startswith("backoff")
    for number, line in enumerate(code.splitlines(), 1):
        for pattern, problem in FORBIDDEN:
            if re.search(pattern, line):
                yield number, problem
        if re.search(SLEEPS, line) and not may_sleep:
            yield number, "a sleep: wait for an event, or back off in a file backoff*"
        condition = re.match(r"\s*#\s*(?:if|ifdef|ifndef|elif)\b(.*)", line)
        if condition and not all(
            word.startswith("__") or word == "defined" or word.endswith("_H")
            for word in re.findall(r"[A-Za-z_]\w*", condition[1])
        ):
            yield number, "#if chooses platforms and compilers only: a missing part is a file no_x.cc"
    if name.endswith(".h") and not re.search(r"^#pragma once$|^#ifndef \w+_H$", text, re.M):
        yield 1, "a header begins with #pragma once"
