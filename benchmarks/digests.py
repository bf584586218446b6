"""Digests of what every method computes, to show that a change of form changes no result.

    python benchmarks/digests.py --out before.json
    python benchmarks/digests.py --against before.json

Each run goes through the command line, so the script works with any version of srfca: use
``--python`` to name the interpreter of another checkout. Labels, models and budgets of all methods
on rotated-digits and of SR-FCA on synthetic and rotated-mnist are digested, with numba and without.
Floating-point results differ between kinds of machines, so compare digests of one machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

EXPERIMENTS = {"rotated-digits": "all", "synthetic": "sr-fca", "rotated-mnist": "sr-fca"}
"""The methods of each experiment; ``all`` are those that the version at hand has."""
SEEDS = (0, 1, 2)
BUDGET = (
    "local_steps", "models_down", "models_up", "bytes_down", "bytes_up", "evaluations",
)  # fmt: skip
BLOCK_NUMBA = "import sys; sys.modules['numba'] = None"
START = """
import runpy, sys
sys.argv[0] = "srfca"
runpy.run_module("srfca", run_name="__main__")
"""


def main() -> int:
    """Run all experiments, and write or compare their digests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter that has srfca")
    parser.add_argument("--out", type=Path, help="write the digests to this file")
    parser.add_argument("--against", type=Path, help="compare with the digests of this file")
    parser.add_argument("--data-dir", help="folder with MNIST; without it rotated-mnist is skipped")
    parser.add_argument("--only", help="comma-separated experiments")
    options = parser.parse_args()
    chosen = options.only.split(",") if options.only else list(EXPERIMENTS)
    if options.data_dir is None and not options.only:
        chosen.remove("rotated-mnist")
        print("rotated-mnist is skipped: pass --data-dir", file=sys.stderr)
    digests: dict[str, Any] = {}
    for experiment in chosen:
        for numba in (True, False):
            digests |= run(options.python, experiment, numba, options.data_dir)
    if options.out:
        options.out.write_text(json.dumps(digests, indent=1) + "\n")
    if options.against is None:
        return 0
    before = json.loads(options.against.read_text())
    return compare({name: before[name] for name in before if name.split()[0] in chosen}, digests)


def run(python: str, experiment: str, numba: bool, data_dir: str | None) -> dict[str, Any]:
    """Return the digests of one experiment's runs, by experiment, method, seed and backend."""
    code = START if numba else BLOCK_NUMBA + START
    backend = "numba" if numba else "torch"
    digests = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [
            python, "-c", code, "compare", experiment, "--methods",
            EXPERIMENTS[experiment], "--seeds", str(len(SEEDS)), "--k", "4",
            "--jobs", "1", "--device", "cpu", "--json", "--out", folder,
        ]  # fmt: skip
        if EXPERIMENTS[experiment] == "sr-fca":
            position = command.index("--k")
            del command[position : position + 2]
        if data_dir is not None:
            command += ["--data-dir", data_dir]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for path in sorted(Path(folder).glob("*/run.json")):
            metrics = json.loads(path.read_text())
            name = f"{experiment} {metrics['method']} seed {metrics['seed']} {backend}"
            digests[name] = {
                "labels": digest(json.dumps(metrics["labels"]).encode()),
                "models": digest(models_of(path.parent)),
                "budget": {figure: metrics[figure] for figure in BUDGET},
            }
            print(name, digests[name]["labels"], digests[name]["models"], file=sys.stderr)
    return digests


def models_of(folder: Path) -> bytes:
    """Return the models of a result as bytes; version 0.1 calls individual models "own"."""
    packed = (folder / "tensors.safetensors").read_bytes()
    length = int.from_bytes(packed[:8], "little")
    header = json.loads(packed[8 : 8 + length])
    parts = []
    for name, label in (("models", "models"), ("own", "own"), ("individual_models", "own")):
        if name in header:
            start, end = header[name]["data_offsets"]
            parts.append(f"{label} {header[name]['dtype']} {header[name]['shape']}".encode())
            parts.append(packed[8 + length + start : 8 + length + end])
    return b"".join(parts)


def digest(content: bytes) -> str:
    """Return a short digest of bytes."""
    return sha256(content).hexdigest()[:16]


def compare(before: dict[str, Any], now: dict[str, Any]) -> int:
    """Print what differs; return 1 if anything does, or a run of before is missing now."""
    differing = [name for name in before if before[name] != now.get(name)]
    for name in differing:
        print(f"{name}: {before[name]} before, {now.get(name)} now")
    print(f"{len(before) - len(differing)} of {len(before)} runs are the same")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
