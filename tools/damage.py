"""Random damage to the folder of a run: every one gives the same result, or a clear refusal.

    python -m tools.damage --number 500 --seed 0

A small run with a journal is made once, and another one as a donor of files. Each damage goes to a
copy of the first: in half of the copies the result is missing, as after a kill. Then the folder is
loaded and resumed in this process. The command ends with exit code 1 if anything else comes of it.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

from srfca import InputError, Result
from srfca.analysis import Analysis
from srfca.cli.app import main as command_line

Outcome = Literal["same result", "clear refusal", "wrong"]
RUN = (
    "run", "rotated-digits", "--set", "num_clients=6", "--set", "rotations=2", "--set", "steps=6",
    "--device", "cpu", "--journal",
)  # fmt: skip
RESULTS = ("result.json", "tensors.safetensors", "run.json", "analysis.json", "clusters.csv")
READ = ("result.json", "tensors.safetensors", "run.json", "analysis.json", "command.json")


def srfca(*arguments: str) -> tuple[int, str]:
    """Run a command in this process, and return its exit code and what it wrote to stderr."""
    errors, code = io.StringIO(), 0
    with (
        redirect_stdout(io.StringIO()), redirect_stderr(errors), warnings.catch_warnings(),
        patch.object(sys, "argv", ["srfca", *arguments]),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        try:
            command_line()
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return code, errors.getvalue()


def digest(folder: Path) -> str:
    """Return a digest of the labels, all tensors and the history of a result, without times.

    Raises:
        InputError: If a file is damaged.
    """
    result, analysis = Result.load(folder), Analysis.load(folder)
    content = [
        result.method, result.seed, dict(result.parameters), result.client_ids,
        result.labels.tolist(), analysis.labels.tolist(), analysis.sentence(),
        [(stage.name, stage.labels, stage.loss, str(stage.budget)) for stage in result.history],
    ]  # fmt: skip
    tensors = (folder / "tensors.safetensors").read_bytes()
    return sha256(json.dumps(content).encode() + tensors).hexdigest()


def flip_bit(path: Path, rng: random.Random) -> None:
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def overwrite(path: Path, rng: random.Random) -> None:
    """Overwrite some bytes in a row with random ones."""
    content = bytearray(path.read_bytes())
    start = rng.randrange(len(content) + 1)
    length = min(rng.randrange(1, 64), len(content) - start)
    content[start : start + length] = rng.randbytes(length)
    path.write_bytes(content)


def truncate(path: Path, rng: random.Random) -> None:
    """Cut a file off."""
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content) + 1)])


def extend(path: Path, rng: random.Random) -> None:
    """Add bytes at the end."""
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.randrange(1, 32)))


def delete(path: Path, rng: random.Random) -> None:
    """Delete a file."""
    path.unlink()


def swap(path: Path, rng: random.Random) -> None:
    """Exchange a file with another one of the folder."""
    other = rng.choice(files_of(path.parents[1] if path.parent.name == "journal" else path.parent))
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def edit_json(path: Path, rng: random.Random) -> None:
    """Change one value of a JSON file, or remove it; flip a bit of another file."""
    if path.suffix != ".json":
        flip_bit(path, rng)
        return
    content = json.loads(path.read_bytes())
    place: Any = content
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = rng.choice(keys)
        if not (isinstance(place[key], dict | list) and place[key] and rng.random() < 0.8):
            break
        place = place[key]
    values: list[Any] = [None, 0, 1, -1, 7, 1.5, 1e308, "", "text", [], {}, True, [0] * 6, 10**30]
    if rng.random() < 0.3:
        del place[key]
    else:
        place[key] = rng.choice(values)
    path.write_text(json.dumps(content))


Damage = Callable[[Path, random.Random], None]
"""Damages a file."""
DAMAGES: tuple[Damage, ...] = (
    flip_bit,
    flip_bit,
    overwrite,
    truncate,
    extend,
    delete,
    swap,
    edit_json,
    edit_json,
)


def files_of(folder: Path) -> list[Path]:
    """Return the files of a run that are ever read."""
    journal = sorted((folder / "journal").iterdir())
    return journal + [folder / name for name in READ if (folder / name).exists()]


def damage(folder: Path, donor: Path, rng: random.Random) -> str:
    """Damage a folder, and return in words what was done."""
    groups = [[path for path in files_of(folder) if path.parent == folder]]
    groups.append([path for path in files_of(folder) if path.parent != folder])
    path = rng.choice(rng.choice(groups))
    name = path.relative_to(folder)
    if (donor / name).exists() and rng.random() < 0.1:
        shutil.copyfile(donor / name, path)
        return f"{name} of another run"
    kind = rng.choice(DAMAGES)
    kind(path, rng)
    return f"{kind.__name__} {name}"


def outcome_of(folder: Path, expected: str) -> tuple[Outcome, str]:
    """Load and resume the run in a folder, and tell what comes of it, with the reason."""
    try:
        if all((folder / name).exists() for name in RESULTS):
            try:
                if digest(folder) != expected:
                    return "wrong", "another result was loaded"
            except InputError:
                pass
        code, errors = srfca("resume", str(folder))
        if code == 0:
            is_same = digest(folder) == expected
            return ("same result", "") if is_same else ("wrong", "another result after resume")
    except Exception as error:
        return "wrong", repr(error)
    one_line = errors.startswith("srfca: ") and len(errors.splitlines()) == 1
    return "clear refusal" if one_line and code == 2 else "wrong", errors


def make_runs(folder: Path) -> tuple[Path, Path, str]:
    """Make a run and a donor, and return both folders with the digest of the run."""
    base, donor = folder / "base", folder / "donor"
    for path, seed in ((base, "0"), (donor, "1")):
        code, errors = srfca(*RUN, "--seed", seed, "--out", str(path))
        assert code == 0, errors
    return base, donor, digest(base)


def damage_many(number: int, seed: int, verbose: bool = False) -> Counter[Outcome]:
    """Damage a run many times, and count what comes of it."""
    rng, counts = random.Random(seed), Counter[Outcome]()
    with tempfile.TemporaryDirectory() as home:
        base, donor, expected = make_runs(Path(home))
        for trial in range(number):
            copy = Path(home, "copy")
            shutil.copytree(base, copy)
            if rng.random() < 0.5:
                for name in RESULTS:
                    (copy / name).unlink()
            done = damage(copy, donor, rng)
            outcome, reason = outcome_of(copy, expected)
            counts[outcome] += 1
            if verbose or outcome == "wrong":
                print(f"{trial}: {done}: {outcome} {reason.strip()}", flush=True)
            shutil.rmtree(copy)
    return counts


def main() -> int:
    """Damage a run, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="a line for each damage")
    options = parser.parse_args()
    counts = damage_many(options.number, options.seed, options.verbose)
    parts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    print(f"{options.number} damages (seed {options.seed}): {parts}")
    return int(counts["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
