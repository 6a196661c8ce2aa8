"""The rules of tools/tidy, one module per subject. A rule yields findings: (line, problem) for one file, or
(file, line, problem) for the whole tree.
"""
