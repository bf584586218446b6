"""A result with a right checksum is still refused where its parts do not fit together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from srfca import InputError, Result
from srfca.federation import Budget, ClientScores
from srfca.methods._common.stage import Stage

STAGE = Stage("ONE_SHOT", (0, 1, 0), 0.5, loss=1.0)
RESULT = Result(
    method="SR-FCA",
    parameters={},
    seed=0,
    client_ids=("a", "b", "c"),
    labels=np.array([0, 1, 0]),
    models=torch.zeros(2, 5),
    history=(STAGE,),
)


def stage(**changes: Any) -> dict[str, Any]:
    return {"history": (replace(STAGE, **changes),)}


def scores(count: int) -> ClientScores:
    return ClientScores(torch.zeros(count), None, torch.ones(count, dtype=torch.int64))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.array([0, 2, 0])}, "labels names cluster 2, but there are 2 models"),
        ({"labels": np.array([0, -2, 0])}, "labels must be at least -1, not -2"),
        ({"labels": np.array([0, 1])}, "labels must be 3 integers"),
        ({"labels": np.array([0.0, 1.0, 0.5])}, "labels must be 3 integers"),
        ({"labels": np.array(["0", "1", "0"])}, "labels must be 3 integers"),
        ({"labels": np.array([True, False, True])}, "labels must be 3 integers"),
        ({"client_ids": ("a", "b", "a")}, "client_ids has the same client twice"),
        ({"client_ids": ("a", "b", 3)}, "client_ids must be one or more strings"),
        ({"client_ids": (), "labels": np.array([])}, "client_ids must be one or more strings"),
        ({"seed": "0"}, "seed must be int, not '0'"),
        ({"seed": True}, "seed must be int, not True"),
        ({"clustered": 1}, "clustered must be bool, not 1"),
        ({"models": torch.zeros(2, 5, 1)}, "models must be rows of numbers"),
        ({"models": torch.zeros(2, 5, dtype=torch.int64)}, "models must be rows of numbers"),
        ({"individual_models": torch.zeros(3, 4)}, r"individual_models must have the shape"),
        ({"mixture_weights": torch.zeros(3, 3)}, r"mixture_weights must have the shape \(3, 2\)"),
        ({"fine_tuned_steps": torch.zeros(2)}, r"fine_tuned_steps must have the shape \(3,\)"),
        (stage(labels=(0, 1, 0, 1)), "labels of stage ONE_SHOT must be of at most 3 clients"),
        (stage(labels=(0, 1, "x")), "labels of stage ONE_SHOT must be 3 integers"),
        (stage(loss="low"), "score of stage ONE_SHOT must be int or float or NoneType"),
        (stage(budget=Budget(local_steps=0.5)), "budget of stage ONE_SHOT"),  # type: ignore[arg-type]
        (stage(distances=np.zeros((2, 2))), "distances of stage ONE_SHOT must have the shape"),
        (stage(scores=scores(2)), "scores of stage ONE_SHOT must have the shape"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    assert Result.load(RESULT.save(tmp_path / "right")).labels.tolist() == [0, 1, 0]
    folder = replace(RESULT, **changes).save(tmp_path / "wrong")
    with pytest.raises(InputError, match=rf"result\.json is damaged: {message}.*: run it again"):
        Result.load(folder)


def test_edited_labels_are_refused(tmp_path: Path) -> None:
    path = RESULT.save(tmp_path) / "result.json"
    edited = path.read_text().replace('"labels": [\n  0,\n  1,', '"labels": [\n  1,\n  1,', 1)
    assert edited != path.read_text()
    path.write_text(edited)
    with pytest.raises(InputError, match="its checksum does not match, or it was edited"):
        Result.load(tmp_path)
