from __future__ import annotations

import json
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from srfca import InputError, Result
from srfca.analysis import Analysis, Reference
from srfca.analysis.files import ANALYSIS_FILE, to_json
from tests.analysis import made_up


def require_equal(first: Any, second: Any) -> None:
    """Require that two parts of an analysis are equal; memberships are rounded."""
    if isinstance(first, np.ndarray):
        np.testing.assert_allclose(first, second, atol=1e-5)
        assert first.dtype == second.dtype
    elif isinstance(first, torch.Tensor):
        torch.testing.assert_close(first, second, equal_nan=True)
    elif hasattr(first, "__dataclass_fields__"):
        for field in fields(first):
            require_equal(getattr(first, field.name), getattr(second, field.name))
    else:
        assert first == second


def test_an_analysis_is_read_as_it_was_written(analysis: Analysis, tmp_path: Path) -> None:
    path = analysis.save(tmp_path)
    assert path == tmp_path / ANALYSIS_FILE
    loaded = Analysis.load(tmp_path)
    require_equal(analysis, loaded)
    assert loaded.sentence() == analysis.sentence()
    assert loaded.table() == analysis.table()
    assert loaded.differences is not None
    assert analysis.differences is not None
    assert asdict(loaded.differences) == asdict(analysis.differences)


def test_what_is_unknown_is_null(tmp_path: Path) -> None:
    answer = made_up.scores([0.9, float("nan"), 0.8])
    part = made_up.analysis([0, 0, 1]).with_reference(Reference("test", answer, None, answer))
    content = json.loads(part.save(tmp_path).read_text())
    assert content["reference"]["answer"]["accuracy"] == [0.9, None, 0.8]
    assert content["reference"]["together"] is None
    assert content["confidence"] is None
    assert (content["verdict"], content["format"]) == ("together", 2)
    require_equal(part, Analysis.load(tmp_path))


def test_the_file_needs_no_constants_of_python(analysis: Analysis) -> None:
    text = json.dumps(to_json(analysis), allow_nan=False)
    assert "NaN" not in text
    content = json.loads(text)
    assert content["sentence"] == analysis.sentence()
    assert content["client_ids"] == list(analysis.client_ids)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged: it holds no object"),
        ('{"format": 7}', "format 7 is not the 2 that this version reads"),
        ('{"format": 2}', "is damaged: its checksum does not match"),
    ],
)
def test_damage_is_noticed(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / ANALYSIS_FILE).write_text(text)
    with pytest.raises(InputError, match=message):
        Analysis.load(tmp_path)


def test_a_folder_without_analysis(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no analysis"):
        Analysis.load(tmp_path)


def test_an_analysis_of_another_result_is_refused(tmp_path: Path) -> None:
    part = made_up.analysis([0, 0, 1])
    result = Result("A", {}, 0, part.client_ids, part.labels, torch.zeros(2, 3))
    result.save(tmp_path)
    part.save(tmp_path)
    assert Analysis.load(tmp_path).labels.tolist() == [0, 0, 1]
    replace(result, models=torch.ones(2, 3)).save(tmp_path)
    with pytest.raises(InputError, match=r"analysis\.json is of another result than"):
        Analysis.load(tmp_path)


def test_edits_are_noticed(tmp_path: Path) -> None:
    path = made_up.analysis([0, 0, 1]).save(tmp_path)
    path.write_text(path.read_text().replace('"together"', '"clusters"'))
    with pytest.raises(InputError, match="its checksum does not match, or it was edited"):
        Analysis.load(tmp_path)
