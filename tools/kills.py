"""Kill real processes at random moments, resume them, and compare the results bit by bit.

    python -m tools.kills --number 50 --seed 0

Each trial starts ``srfca run --journal``, or ``srfca compare``, in a process of its own, kills it
with SIGKILL after a random time, maybe several times, and lets it end. The result must be that of a
process that was never killed, and the folder must hold no temporary file and no lock.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from srfca import Result

SIZE = (
    "--set", "num_clients=8", "--set", "rotations=2", "--set", "steps=60", "--device", "cpu",
)  # fmt: skip
METHODS = ("sr-fca", "ifca", "fedsoft", "ditto", "cfl")
SRFCA = (sys.executable, "-m", "srfca")


def commands(trial: int, folder: Path) -> tuple[list[str], list[str]]:
    """Return the command of a trial, and the one that continues it."""
    method = METHODS[trial % len(METHODS)]
    if trial % 5 == 4:
        compare = ["compare", "rotated-digits", "--methods", f"{method},global", "--jobs", "1"]
        compare += [*SIZE, "--out", str(folder)]
        return compare, compare
    run = ["run", "rotated-digits", "--method", method, *SIZE, "--journal", "--out", str(folder)]
    return run, ["resume", str(folder)]


def digest(folder: Path) -> str:
    """Return a digest of all results below a folder, without times."""
    content = sha256()
    for path in sorted(folder.rglob("result.json")):
        result = Result.load(path.parent)
        stages = [(stage.name, stage.labels, str(stage.budget)) for stage in result.history]
        content.update(repr((result.method, result.labels.tolist(), stages)).encode())
        content.update((path.parent / "tensors.safetensors").read_bytes())
    return content.hexdigest()


def leftovers(folder: Path) -> list[str]:
    """Return the names of temporary files and locks below a folder."""
    return [path.name for path in folder.rglob(".*")]


def start(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a command in a process of its own."""
    quiet = subprocess.DEVNULL
    return subprocess.Popen([*SRFCA, *command], stdout=quiet, stderr=subprocess.PIPE)


def kill_after(command: Sequence[str], folder: Path, rng: random.Random) -> bool:
    """Start a command, kill it some time after its first write, and tell whether it still ran."""
    with start(command) as process:
        before = _state(folder)
        while process.poll() is None and _state(folder) == before:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 1.5))
        process.kill()
        return process.wait() < 0


def _state(folder: Path) -> list[tuple[str, int]]:
    paths = sorted(folder.rglob("*")) if folder.exists() else []
    found = []
    for path in paths:
        try:
            found.append((path.name, path.stat().st_mtime_ns))
        except FileNotFoundError:  # a temporary file
            continue
    return found


def trial(number: int, home: Path, rng: random.Random, expected: dict[int, str]) -> tuple[int, str]:
    """Kill a command once to three times, let it end, and return kills and what is wrong."""
    folder, kind = home / f"trial-{number}", number % len(METHODS)
    first, again = commands(number, folder)
    if kind not in expected:
        uninterrupted = home / f"expected-{kind}"
        subprocess.run(
            [*SRFCA, *commands(number, uninterrupted)[0]], check=True, capture_output=True
        )
        expected[kind] = digest(uninterrupted)
    kills, command = 0, first
    for _ in range(rng.choice((1, 1, 2, 3))):
        kills += kill_after(command, folder, rng)
        command = again if (folder / "command.json").exists() else first
    done = subprocess.run([*SRFCA, *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return kills, done.stderr.strip()
    if digest(folder) != expected[kind]:
        return kills, "another result"
    names = leftovers(folder)
    return kills, f"left behind: {names}" if names else ""


def kill_many(number: int, seed: int, home: Path) -> tuple[int, list[str]]:
    """Kill processes until this many kills are done; return the kills and what went wrong."""
    rng, expected = random.Random(seed), dict[int, str]()
    total, wrong, count = 0, list[str](), 0
    while total < number:
        kills, problem = trial(count, home, rng, expected)
        total, count = total + kills, count + 1
        if problem:
            wrong.append(f"trial {count - 1}: {problem}")
    return total, wrong


def main() -> int:
    """Kill and resume, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=50, help="kills")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        total, wrong = kill_many(options.number, options.seed, Path(home))
    for problem in wrong:
        print(problem)
    print(f"{total} kills (seed {options.seed}): {len(wrong)} wrong results or refusals")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
