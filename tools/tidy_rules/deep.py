"""clang-tidy with clang's own warnings, its thread-safety analysis included, on all sources or on those of a change."""

import concurrent.futures
import json
import os
import re
import subprocess

from tidy_rules import source

MAX_CHANGED = 12  # sources of one change, so that continuous integration has a bound: about 10 s each
FINDING = re.compile(r"^(\S+?):(\d+):\d+: (?:fatal )?(?:error|warning): (.*)$", re.M)


def run(command, root):
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


def check_clang_tidy(texts, is_wanted, base=None, root=source.ROOT):
    """Findings in the wanted sources; with a base ("" chooses one) in those that differ from that commit."""
    build = root / "build/clang"
    # A build folder with nothing built but generated headers: the presets build unity files, which have no compile
    # commands of single files.
    options = ["-DCMAKE_CXX_COMPILER=clang++-14", "-DCMAKE_UNITY_BUILD=OFF"]
    configure = ["cmake", "-S", ".", "-B", str(build), "-G", "Ninja", *options]
    generate = ["cmake", "--build", str(build), "--target", "generated_headers"]
    findings = findings_of(configure, root) or findings_of(generate, root)
    if findings:
        return findings
    commands = json.loads((build / "compile_commands.json").read_text())
    names = sorted({os.path.relpath(entry["file"], root) for entry in commands})
    names = [name for name in names if name in texts and is_wanted(name)]
    if base is not None:
        names = changed_sources(names, texts, base, root)
    lint = ["clang-tidy-14", "--quiet", "-p", str(build)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = list(pool.map(lambda name: findings_of([*lint, str(root / name)], root), names))
    return [finding for one in found for finding in one]


def findings_of(command, root):
    """The errors and warnings in a program's output, or the end of the output of a program that failed without any."""
    output = run(command, root)
    if output.returncode == 0:
        return []
    text = output.stdout + output.stderr
    found = sorted(set(FINDING.findall(text)))
    return [(os.path.relpath(name, root), int(line), problem) for name, line, problem in found] or [
        (command[0], 1, f"{' '.join(command)} failed: {text[-2000:]}")
    ]


def changed_sources(names, texts, base, root):
    """The names that a change touches: sources that differ from the base, and sources that include such a header."""
    base = base or default_base(root)
    if base is None:
        print("tidy: no earlier commit to compare with: clang-tidy checks no file")
        return []
    changed = changed_files(base, root)
    chosen = choose_sources(names, texts, changed)
    print(f"tidy: clang-tidy checks {len(chosen)} sources that differ from {base[:12]} or include such a header")
    return chosen


def default_base(root):
    """Where the branch left origin/main; on origin/main itself the parent of HEAD; None where git has neither."""
    head = run(["git", "rev-parse", "HEAD"], root).stdout.strip()
    left = run(["git", "merge-base", "HEAD", "origin/main"], root).stdout.strip()
    if left and left != head:
        return left
    return run(["git", "rev-parse", "--verify", "--quiet", "HEAD~1"], root).stdout.strip() or None


def changed_files(base, root):
    """The files that differ between a commit and the working tree, files that git does not track yet included."""
    differing = run(["git", "diff", "--name-only", "--no-renames", base, "--"], root)
    if differing.returncode != 0:
        raise SystemExit(f"tidy: git diff {base} failed: {differing.stderr.strip()}")
    untracked = run(["git", "ls-files", "--others", "--exclude-standard"], root)
    return {*differing.stdout.splitlines(), *untracked.stdout.splitlines()}


def choose_sources(names, texts, changed):
    """At most MAX_CHANGED of the names: changed sources first, then sources that include a changed header."""
    sources = [name for name in names if name in changed]
    headers = {name for name in changed if name.endswith(".h")}
    including = [name for name in names if name not in changed and headers & included_headers(texts[name])]
    chosen = spread(sources, MAX_CHANGED)
    chosen += spread(including, MAX_CHANGED - len(chosen))
    left_out = len(sources) + len(including) - len(chosen)
    if left_out:
        print(f"tidy: {left_out} more sources are left out; tools/tidy --deep checks all")
    return chosen


def included_headers(text):
    return set(re.findall(r'^\s*#\s*include\s*"([^"]+)"', text, re.M))


def spread(names, most):
    """At most that many names, at equal distances in the list: a large change has files of each of its folders."""
    if len(names) <= most:
        return names
    return [names[i * len(names) // most] for i in range(most)]
