from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from srfca import ClientData, data
from srfca.data.datasets.field_images import GroupShift, PartitionRule
from srfca.errors import InputError
from srfca.parameters import choices
from tests.data.datasets.test_flux import folder as folder  # a fixture

PARTITIONS: dict[PartitionRule, dict[str, Any]] = {
    "iid": {},
    "dirichlet": {"alpha": 0.5, "min_samples": 2},
    "inner-dirichlet": {"alpha": 0.3},
    "relative-dirichlet": {"alpha": 3.0},
    "extended-dirichlet": {"alpha": 5.0, "classes_per_client": 4, "min_samples": 2},
    "pathological": {"classes_per_client": 3},
    "shard": {"classes_per_client": 2},
    "linear": {},
    "square": {},
    "exponential": {},
}


def deal(folder: Path, **settings: Any) -> ClientData:
    arguments = {"dataset": "mnist", "num_clients": 12, "samples": 40, "folder": folder}
    return data.field_images(**{**arguments, **settings})


def labels_of(dealt: ClientData, client: int) -> set[int]:
    return set(dealt.train.of(client)[1].tolist())


def test_every_partition_is_tried() -> None:
    assert set(PARTITIONS) == set(choices(PartitionRule))


@pytest.mark.parametrize("partition", PARTITIONS)
def test_partitions_deal_the_mean_number_of_samples(folder: Path, partition: PartitionRule) -> None:
    settings = PARTITIONS[partition]
    dealt = deal(folder, partition=partition, shift="rotation", groups=2, **settings)
    assert dealt.truth is not None
    assert dealt.test is not None
    assert dealt.truth.sizes.tolist() == [6, 6]
    total = int(dealt.train.sizes.sum())
    assert total <= 480
    assert total >= 300 if partition in ("shard", "pathological") else total == 480
    assert int(dealt.test.sizes.min()) >= 1
    assert (
        deal(folder, partition=partition, shift="rotation", groups=2, **settings).fingerprint()
        == dealt.fingerprint()
    )


@pytest.mark.parametrize("shift", [name for name in choices(GroupShift) if name != "none"])
def test_groups_differ_by_the_shift(folder: Path, shift: GroupShift) -> None:
    dealt = deal(folder, shift=shift, groups=2, standardize="no")
    assert dealt.truth is not None
    assert dealt.truth.sizes.tolist() == [6, 6]
    alike = deal(folder, standardize="no", shift="rotation", groups=2)
    if shift in ("permutation", "relabeling"):
        assert torch.equal(dealt.train.of(0)[1], alike.train.of(0)[1])
        assert not torch.equal(dealt.train.of(1)[1], alike.train.of(1)[1])
    elif shift == "classes":
        assert not labels_of(dealt, 0) & labels_of(dealt, 1)
    else:
        assert torch.equal(dealt.train.of(1)[1], alike.train.of(1)[1])
        assert torch.equal(dealt.train.of(0)[0], alike.train.of(0)[0])
        assert shift == "rotation" or not torch.equal(dealt.train.of(1)[0], alike.train.of(1)[0])


def test_groups_of_unequal_sizes_and_outliers(folder: Path) -> None:
    dealt = deal(folder, shift="permutation", groups=2, shares=(4, 1), outliers=2)
    assert dealt.truth is not None
    assert dealt.truth.sizes.tolist() == [8, 2, 1, 1]
    plain = deal(folder, shift="none", outliers=2)
    assert plain.truth is not None
    assert plain.truth.sizes.tolist() == [10, 1, 1]


def test_label_noise_of_some_clients_is_in_training_labels(folder: Path) -> None:
    settings = {"label_noise_rate": 0.6, "label_noise_clients": 0.5}
    clean, noisy = deal(folder), deal(folder, **settings)
    assert clean.test is not None
    assert noisy.test is not None
    assert noisy.truth == clean.truth
    rates = [
        float((noisy.train.of(client)[1] != clean.train.of(client)[1]).float().mean())
        for client in range(12)
    ]
    assert sorted(rate > 0.3 for rate in rates) == [False] * 6 + [True] * 6
    assert torch.equal(noisy.test.y, clean.test.y)
    everywhere = deal(folder, **settings, label_noise_splits="all")
    assert everywhere.test is not None
    assert not torch.equal(everywhere.test.y, clean.test.y)


def test_corruptions_of_some_clients(folder: Path) -> None:
    clean = deal(folder, standardize="no")
    for corruption, severity in (("blur", 3), ("random", None)):
        changed = deal(
            folder, standardize="no", corruption=corruption, severity=severity,
            corrupted_clients=0.25,
        )  # fmt: skip
        different = [
            not torch.equal(changed.train.of(client)[0], clean.train.of(client)[0])
            for client in range(12)
        ]
        assert sum(different) == 3
        assert changed.truth == clean.truth


def test_test_images_follow_the_label_skew(folder: Path) -> None:
    dealt = deal(folder, partition="pathological", classes_per_client=2, num_clients=6)
    assert dealt.test is not None
    for client in range(6):
        assert len(labels_of(dealt, client)) == 2
        assert set(dealt.test.of(client)[1].tolist()) == labels_of(dealt, client)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"partition": "dirichlet"}, "partition='dirichlet' needs alpha"),
        ({"partition": "pathological"}, "needs classes_per_client"),
        ({"partition": "dirichlets"}, "did you mean 'dirichlet'"),
        ({"shift": "rotations"}, "did you mean 'rotation'"),
        ({"shift": "none", "groups": 2}, "at most 1 with shift='none', not 2"),
        ({"shift": "relabeling", "groups": 4}, "at most 3 with shift='relabeling', not 4"),
        ({"shift": "classes", "groups": 11, "num_clients": 20}, "at most 10"),
        ({"shift": "inversion"}, "shift='inversion' needs groups of at least 2"),
        ({"groups": 0}, "groups must be at least 1, not 0"),
        ({"outliers": -1}, "outliers must not be negative"),
        ({"shares": (1, 0)}, "shares must be positive"),
        ({"corruption": "blurr"}, "did you mean 'blur'"),
        ({"corruption": "blur", "severity": 6}, "from 1 to 5, not 6"),
        ({"label_noise_rate": 0.5, "label_noise_clients": 2.0}, r"in \[0, 1\], not 2"),
        ({"dataset": "mnits"}, "did you mean 'mnist'"),
    ],
)
def test_invalid_arguments_are_refused(
    folder: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        deal(folder, **settings)


def test_settings_are_plain_values_of_presets() -> None:
    from srfca.experiments import config

    experiment = config.load("fashion-dirichlet-1").set(
        ["alpha=0.3", "partition=extended-dirichlet", "classes_per_client=3", "severity=none"]
    )
    arguments = experiment.arguments("data")
    assert arguments["alpha"] == 0.3
    assert arguments["partition"] == "extended-dirichlet"
    assert arguments["severity"] is None
    assert experiment.set(["shares=70,20,10"]).arguments("data")["shares"] == (70, 20, 10)
    with pytest.raises(InputError, match="did you mean 'dirichlet'"):
        experiment.set(["partition=dirichet"])
    assert np.isclose(config.load("fashion-dirichlet-03").arguments("data")["alpha"], 0.3)
