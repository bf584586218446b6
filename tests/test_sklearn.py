"""Estimators for scikit-learn."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from srfca import InputError
from srfca.methods import IFCA
from srfca.sklearn import SRFCAClassifier, SRFCARegressor

N = 480
RNG = np.random.default_rng(0)
X = RNG.normal(50, 10, size=(N, 3))
SHOP = np.arange(N) % 8
VALUES = (X[:, 0] - 50) * np.where(SHOP % 2, 1, -1)
CLASSES = np.where(VALUES > 0, "yes", "no")

EXCLUDED: dict[str, str] = {}
"""Checks of scikit-learn that do not apply, with the reason: all of them do."""


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [SRFCAClassifier(device="cpu"), SRFCARegressor(device="cpu")],
    expected_failed_checks=lambda estimator: EXCLUDED,
)
def test_scikit_learn_accepts_the_estimators(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


def test_a_model_for_every_group() -> None:
    classifier = SRFCAClassifier().fit(X, CLASSES, SHOP)
    assert classifier.classes_.tolist() == ["no", "yes"]
    assert classifier.groups_.tolist() == [str(shop) for shop in range(8)]
    assert classifier.labels_.tolist() == [0, 1] * 4
    assert classifier.score(X, CLASSES, SHOP) > 0.9
    assert classifier.score(X, CLASSES, (SHOP + 1) % 8) < 0.1, "with the models of the others"
    probabilities = classifier.predict_proba(X[:5], SHOP[:5])
    np.testing.assert_allclose(probabilities.sum(1), 1)
    predicted = classifier.classes_[probabilities.argmax(1)]
    assert predicted.tolist() == classifier.predict(X[:5], SHOP[:5]).tolist()


def test_values_are_predicted_in_their_units() -> None:
    regressor = SRFCARegressor().fit(X, 1000 + VALUES, SHOP.astype(str))
    assert regressor.labels_.tolist() == [0, 1] * 4
    assert regressor.score(X, 1000 + VALUES, SHOP) > 0.9
    assert abs(regressor.predict(X, SHOP).mean() - 1000) < 2
    plain = SRFCARegressor(standardize=False, model="linear", lr=0.01).fit(
        X / 50, VALUES / 10, SHOP
    )
    assert plain.predict(X / 50, SHOP).shape == (N,)


def test_a_copy_from_a_pickle_predicts_the_same() -> None:
    classifier = SRFCAClassifier(steps=10).fit(pd.DataFrame(X, columns=[*"abc"]), CLASSES, SHOP)
    copy = pickle.loads(pickle.dumps(classifier))
    frame = pd.DataFrame(X, columns=[*"abc"])
    np.testing.assert_array_equal(
        copy.predict_proba(frame, SHOP), classifier.predict_proba(frame, SHOP)
    )


def test_groups_at_prediction() -> None:
    classifier = SRFCAClassifier(steps=5).fit(X, CLASSES, SHOP)
    with pytest.raises(InputError, match=r"needs the group of each row, as there are 8 groups"):
        classifier.predict(X)
    with pytest.raises(InputError, match=r"2 groups have no model.*: '8', '9'. Fit with them, or"):
        classifier.predict(X[:3], [1, 9, 8])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        classifier.predict(X, SHOP[:3])
    with pytest.raises(InputError, match="groups must be strings or whole numbers, not float64"):
        classifier.fit(X, CLASSES, SHOP + 0.5)
    alone = SRFCARegressor(steps=5).fit(X, VALUES)
    assert alone.labels_.tolist() == [0]
    assert alone.predict(X).shape == (N,)
    one = SRFCARegressor(steps=5).fit(X, VALUES, np.zeros(N, dtype=int))
    assert one.predict(X).tolist() == one.predict(X, np.zeros(N, dtype=int)).tolist()


def test_other_methods_and_seeds() -> None:
    ifca = SRFCAClassifier(IFCA(k=2), steps=20).fit(X, CLASSES, SHOP)
    assert ifca.result_.method == "IFCA"
    assert ifca.result_.parameters["local"]["steps"] == 20
    local = SRFCAClassifier("local", steps=5, hidden=(4,)).fit(X, CLASSES, SHOP)
    assert local.result_.models.shape[1] == 3 * 4 + 4 + 4 * 2 + 2
    with pytest.raises(InputError, match=r"mixtures of models.*choose another method"):
        SRFCAClassifier("fedem", steps=2).fit(X, CLASSES, SHOP)
    first, second = (
        SRFCAClassifier(steps=5, random_state=np.random.RandomState(seed)).fit(X, CLASSES, SHOP)
        for seed in (0, 1)
    )
    assert first.result_.seed != second.result_.seed


def test_a_group_without_a_model_is_named() -> None:
    classifier = clone(SRFCAClassifier(steps=5)).fit(X, CLASSES, SHOP)
    classifier._module_of[3] = -1
    with pytest.raises(InputError, match="group '3' is in no cluster"):
        classifier.predict(X[:5], SHOP[:5])


@pytest.fixture
def routing() -> Iterator[None]:
    """scikit-learn passes groups on to estimators that ask for them."""
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_cross_validation_passes_groups_on() -> None:
    classifier = SRFCAClassifier(steps=100).set_fit_request(groups=True)
    classifier = classifier.set_score_request(groups=True)
    scores = cross_val_score(classifier, X, CLASSES, params={"groups": SHOP}, cv=2)
    assert scores.min() > 0.8
    search = GridSearchCV(classifier, {"lr": [1e-6, 0.01]}, cv=2)
    assert search.fit(X, CLASSES, groups=SHOP).best_params_ == {"lr": 0.01}
