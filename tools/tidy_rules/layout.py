"""Formatters and linters of others: clang-format for C++, ruff for Python."""

import re
import subprocess
import sys

from tidy_rules import source


def check_clang_format(names, root=source.ROOT):
    """One finding for each file that clang-format would change, at the first line of the change."""
    if not names:
        return []
    command = ["clang-format-14", "--dry-run", "-Werror", "--ferror-limit=1", *names]
    output = subprocess.run(command, cwd=root, capture_output=True, text=True)
    found = re.findall(r"^(.+?):(\d+):\d+: error:", output.stderr, re.M)
    findings = [(name, int(line), f"not formatted: clang-format-14 -i {name}") for name, line in found]
    if output.returncode != 0 and not findings:
        findings = [(names[0], 1, f"clang-format-14 failed: {output.stderr.strip()}")]
    return findings


def check_ruff(names, root=source.ROOT):
    """The findings of ruff's linter, and one for each file that its formatter would change."""
    if not names:
        return []
    concise = ["--output-format=concise", "--no-cache", *names]
    ruff = [sys.executable, "-m", "ruff"]
    lint = run(root, [*ruff, "check", "--quiet", "--no-fix", "--extend-ignore=E501", *concise])
    found = re.findall(r"^(.+?):(\d+):\d+: (.*)$", lint.stdout, re.M)
    findings = [(name, int(line), f"ruff: {problem}") for name, line, problem in found]
    layout = run(root, [*ruff, "format", "--check", *concise])
    found = re.findall(r"^(.+?):(\d+):\d+: unformatted: ", layout.stdout, re.M)
    findings += [(name, int(line), f"not formatted: ruff format {name}") for name, line in found]
    failed = [output for output in (lint, layout) if output.returncode != 0]
    if failed and not findings:
        findings = [(names[0], 1, f"ruff failed: {(failed[0].stderr or failed[0].stdout).strip()}")]
    return findings


def run(root, command):
    return subprocess.run(command, cwd=root, capture_output=True, text=True)
