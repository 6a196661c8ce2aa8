"""Random training programs on several ranks, against a single process in float64.

random_programs.py --seeds 500              the programs of the seeds 0 to 499, on 3 ranks
random_programs.py --first 17 --seeds 1     one program; a failed one is printed
"""

import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "habits"), str(HERE.parent.parent / "tools")]

import ranks  # noqa: E402


def of_this_rank(first, count):
    """Runs the programs on this rank; returns how many failed."""
    import faulthandler
    import functools
    import json

    import drawn
    import run_habits

    run_habits.prepare()
    failed = 0
    for seed in range(first, first + count):
        faulthandler.dump_traceback_later(run_habits.WATCHDOG_S, exit=True)
        program = drawn.draw(seed)
        print(f"seed {seed} ...", flush=True)
        wrong = run_habits.run(functools.partial(drawn.execute, program=program))
        if wrong:
            failed += 1
            print(f"program {json.dumps({'wrong': wrong, 'program': program})}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=25, help="number of programs (25)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--ranks", type=int, default=3, help="number of ranks (3)")
    parser.add_argument("--deadline", type=int, default=3600, help="seconds for all of them (3600)")
    parser.add_argument("--of-this-rank", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.of_this_rank:
        sys.exit(min(of_this_rank(given.first, given.seeds), 1))
    command = [sys.executable, __file__, "--of-this-rank", "--first", str(given.first), "--seeds", str(given.seeds)]
    ended = ranks.run_ranks(command, given.ranks, given.deadline)
    if any(rank.code != 0 for rank in ended):
        sys.exit(f"{ranks.RanksFailed(ended)}")
    print(f"{given.seeds} programs from seed {given.first} on {given.ranks} ranks: all as expected")


if __name__ == "__main__":
    main()
