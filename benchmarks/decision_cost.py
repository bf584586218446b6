"""What do SR-FCA's decisions cost, beside version 0.2.0, which decided nothing?

Both versions run on the same clients, which are written to files first:

    python benchmarks/decision_cost.py write FOLDER --seed 40 --seeds 3
    python benchmarks/decision_cost.py run FOLDER > now.jsonl
    PYTHONPATH=OLD/src python benchmarks/decision_cost.py run FOLDER > old.jsonl
    python benchmarks/decision_cost.py table old.jsonl now.jsonl

OLD is a checkout of 0.2.0 (``git archive 7725a35``). ``run`` uses only what both versions have.
Needs Fashion-MNIST and FEMNIST; federations without data are skipped.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

FEDERATIONS = {
    "rotated-digits": ("rotated-digits", ()),
    "2 rotations": ("rotated-digits", ("rotations=2",)),
    "1 rotation": ("rotated-digits", ("rotations=1",)),
    "synthetic": ("synthetic", ()),
    "1 regression": ("synthetic", ("data.clusters=1",)),
    **{
        name: (name, ())
        for name in (
            "fashion-dirichlet-1", "fashion-dirichlet-03", "fashion-permutations",
            "fashion-rotations", "fashion-outliers", "fashion-groups-outliers", "fashion-noise-20",
            "fashion-noise-60", "transposed-femnist",
        )
    },
}  # fmt: skip
"""Presets and changes of them, by the name in the table."""


def write(folder: Path, seeds: range) -> None:
    """Write the clients of all federations, and the settings of model and training."""
    from srfca.errors import InputError
    from srfca.experiments import config, runner

    folder.mkdir(parents=True, exist_ok=True)
    for name, (preset, settings) in FEDERATIONS.items():
        experiment = config.load(preset).set(settings)
        sections = {
            part: experiment.sections.get(part, {})
            for part in ("model", "local_training", "sr-fca")
        }
        for seed in seeds:
            path = folder / f"{name}-{seed}"
            try:
                data = runner.make_federation(experiment, seed, "cpu").data
            except InputError as error:
                print(f"{name} is skipped: {error}")
                break
            assert data.test is not None
            arrays: dict[str, Any] = {}
            for split, part in (("train", data.train), ("test", data.test)):
                arrays[f"{split}_x"], arrays[f"{split}_y"] = part.x.numpy(), part.y.numpy()
                arrays[f"{split}_sizes"] = part.sizes.numpy()
            np.savez(path.with_suffix(".npz"), **arrays)
            content = {"federation": name, "seed": seed, **sections}
            path.with_suffix(".json").write_text(json.dumps(content))


def run(folder: Path) -> None:
    """Run SR-FCA on all files; print a line of JSON for each."""
    from srfca import SRFCA, ClientData, LocalTraining, Simulation, models

    for path in sorted(folder.glob("*.json")):
        content: dict[str, Any] = json.loads(path.read_text())
        arrays = np.load(path.with_suffix(".npz"))
        data = ClientData.from_arrays(*(clients(arrays, split) for split in ("train", "test")))
        model = dict(content["model"])
        inputs = model["inputs"]
        network: Any
        if model["name"] == "linear":
            network = models.linear(inputs, bias=model["bias"])
        else:
            network = models.mlp(inputs, *model["hidden"], model["outputs"])
        training: dict[str, Any] = {
            k: None if v == "none" else v for k, v in content["local_training"].items()
        }
        method = SRFCA(local=LocalTraining(**training), **content["sr-fca"])
        federation = Simulation(data, network, device="cpu", seed=content["seed"])
        result = method.fit(federation, seed=content["seed"])
        scores, count = result.scores(federation, "test"), len(result.labels)
        score = scores.loss if scores.accuracy is None else 100 * scores.accuracy
        line = {
            "federation": content["federation"],
            "seed": content["seed"],
            "clusters": result.partition.num_clusters,
            "score": float(score.mean()),
            "steps": result.budget.local_steps / count,
            "trainings": result.budget.local_steps / count / method.local.steps,
            "models": result.budget.models_down / count,
        }
        print(json.dumps(line), flush=True)


def clients(arrays: Any, split: str) -> list[tuple[Any, Any]]:
    """Return each client's arrays ``(x, y)`` of a split."""
    ends = np.cumsum(arrays[f"{split}_sizes"])[:-1]
    parts = (np.split(arrays[f"{split}_{name}"], ends) for name in "xy")
    return list(zip(*parts, strict=True))


def table(old: Path, now: Path) -> None:
    """Print local steps and models of both versions, as means over the seeds."""
    versions = []
    for path in (old, now):
        lines = [json.loads(line) for line in path.read_text().splitlines() if line[:1] == "{"]
        runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for line in lines:
            runs[line["federation"]].append(line)
        versions.append(runs)
    print(
        "| federation | score: 0.2.0 | now | trainings: 0.2.0 | now | ratio "
        "| models: 0.2.0 | now | ratio |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    ratios: dict[str, list[float]] = defaultdict(list)
    for name in (name for name in FEDERATIONS if name in versions[1]):
        cells = []
        for key, form in (("score", ".1f"), ("trainings", ".1f"), ("models", ".0f")):
            before, after = (np.mean([r[key] for r in version[name]]) for version in versions)
            cells += [format(before, form), format(after, form)]
            if key != "score":
                ratios[key].append(after / before)
                cells.append(f"{ratios[key][-1]:.2f}")
        print(f"| {name} | {' | '.join(cells)} |")
    for key, values in ratios.items():
        print(f"\n{key}: mean ratio {np.mean(values):.2f}, largest {max(values):.2f}")


def main() -> None:
    """Write, run or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("write", "run", "table"))
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--seed", type=int, default=1000, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    arguments = parser.parse_args()
    if arguments.action == "write":
        write(arguments.paths[0], range(arguments.seed, arguments.seed + arguments.seeds))
    elif arguments.action == "run":
        run(arguments.paths[0])
    else:
        table(*arguments.paths)


if __name__ == "__main__":
    main()
