"""tools/demo --elastic: trains examples/digits_elastic.py on four ranks. Rank 0 and another one are killed, others join
in their places, and `horo resize` adds a fifth one. The processes of the survivors are the same to the end.

With --rank this is the program of a rank: it runs examples/digits_elastic.py unchanged, waits a moment after each
round so that there is time for joins, ends itself with SIGKILL in a given round if it is to die, and at the end prints
the accuracy of its model.
"""

import argparse
import os
import pathlib
import random
import re
import runpy
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
DIGITS = str(ROOT / "examples" / "digits_elastic.py")
RANKS, LEAST, MOST = 4, 2, 5
ROUNDS = (20, 60)  # in which ranks are killed, of about 340
PAUSE_S = 0.04  # after each round
LEAST_ACCURACY = 97  # percent


def rank_program(death):
    """death: ROUND:SECONDS, the round in which this rank is killed and the time after its begin; empty: none."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    rounds = 0

    def count(*_):
        nonlocal rounds
        rounds += 1
        time.sleep(PAUSE_S)
        if death and rounds == int(death.partition(":")[0]):
            kill = threading.Timer(float(death.partition(":")[2]), os.kill, (os.getpid(), signal.SIGKILL))
            kill.daemon = True
            kill.start()

    register_optimizer_step_post_hook(count)
    print(f"pid={os.getpid()} at the start", flush=True)
    end = runpy.run_path(DIGITS, run_name="__main__")
    with torch.no_grad():
        right = (end["model"](end["test_images"]).argmax(1) == end["test_labels"]).float().mean().item()
    print(f"pid={os.getpid()} at the end, accuracy {100 * right:.2f} %", flush=True)


def deaths(seed):
    """{rank: ROUND:SECONDS} of rank 0 and another one."""
    chance = random.Random(seed)
    victims = [0, chance.randrange(1, RANKS)]
    return {rank: f"{chance.randrange(*ROUNDS)}:{chance.uniform(0, 0.02):.4f}" for rank in victims}


def run(seed, horo):
    """Runs the job and prints the lines that tell its story; returns its exit code and all lines."""
    plan = deaths(seed)
    for rank, death in sorted(plan.items()):
        print(f"demo: rank {rank} is killed in round {death.partition(':')[0]}", flush=True)
    variables = [f"DEMO_DEATH_{rank}={death}" for rank, death in plan.items()]
    command = [horo, "run", "-v", "-n", RANKS, "--min-np", LEAST, "--max-np", MOST, sys.executable, __file__, "--rank"]
    environment = os.environ | dict(variable.split("=", 1) for variable in variables)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    lines, number, is_resized = [], "", False
    with subprocess.Popen([*map(str, command)], env=environment, **pipes) as job:
        for line in job.stdout:
            lines.append(line.rstrip("\n"))
            if job_number := re.match(r"horo run: job (\d+)", line):
                number = job_number[1]
            if re.search(" has joined: ", line) and not is_resized:
                is_resized = True
                subprocess.run([horo, "resize", str(MOST), number], check=True)
            if re.match(r"horo run: (?!.*process)|\[\d+\] (pid=|sha256|test accuracy|Traceback|\w*Error)", line):
                print(line, end="", flush=True)
    return job.returncode, lines, sorted(set(range(RANKS)) - set(plan))


def faults(code, lines, survivors):
    text = "\n".join(lines)
    wrong = [f"exit code {code}"] * (code != 0)
    joined = sorted(map(int, re.findall(r"^horo run: rank (\d+) has joined", text, re.M)))
    if len(joined) != MOST - len(survivors):
        wrong.append(f"{len(joined)} ranks have joined, expected {MOST - len(survivors)}")
    hashes = dict(re.findall(r"^\[(\d)\] sha256 of the parameters (\w+)", text, re.M))
    if sorted(map(int, hashes)) != survivors + joined or len(set(hashes.values())) != 1:
        wrong.append(f"expected one sha256 on ranks {survivors + joined}, got {hashes}")
    for rank in survivors:
        pids = re.findall(rf"^\[{rank}\] pid=(\d+)", text, re.M)
        if len(pids) != 2 or len(set(pids)) != 1:
            wrong.append(f"rank {rank} has the processes {pids} at the start and at the end")
    accuracies = [float(value) for value in re.findall(r"accuracy ([\d.]+) %$", text, re.M)]
    if len(accuracies) != MOST or min(accuracies) < LEAST_ACCURACY:
        wrong.append(f"accuracies {accuracies}; expected at least {LEAST_ACCURACY} %")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="of the rounds of the deaths (default: another one each time)")
    parser.add_argument("--horo", default=str(ROOT / ".venv/bin/horo"), help="the horo executable")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        return rank_program(os.environ.get(f"DEMO_DEATH_{os.environ['HORO_RANK']}", ""))
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    code, lines, survivors = run(seed, options.horo)
    wrong = faults(code, lines, survivors)
    print(
        "\n".join(f"demo: WRONG: {text}" for text in wrong)
        or "demo: the others went on in their processes, three joined, and all have equal parameters"
    )
    if wrong:
        print(f"demo: again with .venv/bin/python tools/elastic_demo.py --seed {seed}", *lines[-40:], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
