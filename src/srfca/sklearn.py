"""Estimators for scikit-learn: a model for every group of rows, shared by groups that are alike.

The groups of scikit-learn are the clients. As in scikit-learn, inputs are numbers: encode strings
with its ``OneHotEncoder`` first, or use ``srfca.fit``, which takes tables.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data
from torch import nn

from srfca.engine import Simulation
from srfca.errors import InputError, require
from srfca.fitting.call import make_method, make_simulation
from srfca.fitting.defaults import DEFAULT_HIDDEN, DEFAULT_LOCAL
from srfca.methods import Method, Result

__all__ = ["SRFCAClassifier", "SRFCARegressor"]


class _GroupEstimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share."""

    _target_kind: Literal["classes", "values"]

    def __init__(
        self,
        method: str | Method = "sr-fca",
        *,
        model: Any = "mlp",
        hidden: tuple[int, ...] = DEFAULT_HIDDEN,
        steps: int = DEFAULT_LOCAL.steps,
        batch_size: int | None = DEFAULT_LOCAL.batch_size,
        lr: float = DEFAULT_LOCAL.lr,
        standardize: bool = True,
        validation: float = 0.1,
        device: str = "auto",
        random_state: Any = 0,
    ) -> None:
        self.method = method
        self.model = model
        self.hidden = hidden
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.standardize = standardize
        self.validation = validation
        self.device = device
        self.random_state = random_state

    def _fit(self, X: NDArray[Any], y: NDArray[Any], groups: ArrayLike | None) -> None:
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31)
        names = _group_names(groups, len(X))
        simulation = make_simulation(
            X, y, names, model=self.model, target_kind=self._target_kind,
            standardize=self.standardize, validation=self.validation, seed=int(seed),
            device=self.device, hidden=self.hidden,
        )  # fmt: skip
        local = replace(DEFAULT_LOCAL, steps=self.steps, batch_size=self.batch_size, lr=self.lr)
        alone = len(simulation.client_ids) == 1
        method = make_method("local" if alone else self.method, local)
        self.result_ = method.fit(simulation, seed=int(seed))
        self.labels_ = self.result_.labels_
        self.groups_ = np.array(simulation.client_ids)
        assert simulation.schema is not None
        self._schema = simulation.schema
        self._modules, self._module_of = _modules(simulation, self.result_)

    def _outputs(self, X: Any, groups: ArrayLike | None) -> NDArray[np.float64]:
        """Return the outputs of each row's model: ``[n, outputs]``."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        positions = self._positions(groups, len(X))
        inputs = replace(self._schema, dtype="float64").encode({"x": X})
        outputs: NDArray[np.float64] | None = None
        with torch.no_grad():
            for number in np.unique(self._module_of[positions]).tolist():
                rows = np.flatnonzero(self._module_of[positions] == number)
                part = self._modules[number](inputs[torch.from_numpy(rows)]).numpy()
                if outputs is None:
                    outputs = np.empty((len(X), *part.shape[1:]))
                outputs[rows] = part
        assert outputs is not None
        return outputs

    def _positions(self, groups: ArrayLike | None, n: int) -> NDArray[np.int64]:
        """Return the position in ``groups_`` of each row's group."""
        if groups is None:
            require(
                len(self.groups_) == 1,
                f"predicting needs the group of each row, as there are {len(self.groups_)} groups: "
                "predict(X, groups)",
            )
            return np.zeros(n, dtype=np.int64)
        names = _group_names(groups, n)
        known_positions = {name: position for position, name in enumerate(self.groups_.tolist())}
        new = sorted(set(names.tolist()) - set(known_positions))
        if new:
            raise InputError(
                f"{len(new)} groups have no model, as they were not there in fit: "
                f"{', '.join(repr(name) for name in new[:5])}{', ...' * (len(new) > 5)}. Fit with "
                "them, or place them with result_.assign (docs/newcomers.md)"
            )
        positions = np.array([known_positions[name] for name in names.tolist()])
        for position in positions[self._module_of[positions] < 0].tolist():
            name = str(self.groups_[position])
            raise InputError(f"group {name!r} is in no cluster, so it has no model")
        return positions


class SRFCAClassifier(ClassifierMixin, _GroupEstimator):  # type: ignore[misc]
    """A classifier with a model for every group, shared by groups that are alike.

    Args:
        method: A key of ``srfca list``, or a method. Its local training is the one given here.
        model: ``mlp``, ``linear`` or another name of ``srfca.models.MODELS``, a module, or a
            function that returns one.
        hidden: Widths of an MLP's hidden layers.
        steps: Steps of each training.
        batch_size: Samples of a step, None for all.
        lr: Learning rate of Adam.
        standardize: Whether inputs get mean 0 and standard deviation 1.
        validation: The fraction of each group's rows that is held out, to decide by.
        device: ``auto``, ``cpu``, ``cuda``, ...
        random_state: A seed decides every draw.

    Attributes:
        classes_: ``[C]`` the classes.
        groups_: ``[m]`` the groups, as strings.
        labels_: ``[m]`` the cluster of each group, -1 for none.
        result_: The ``Result`` of the method.
        n_features_in_: The number of inputs.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> X, shop = rng.normal(size=(600, 2)), np.arange(600) % 12
        >>> y = np.where((X[:, 0] > 0) ^ (shop % 2 == 0), "buys", "leaves")
        >>> classifier = SRFCAClassifier().fit(X, y, shop)
        >>> classifier.labels_.tolist()
        [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]
        >>> classifier.predict([[2.0, 0.0], [2.0, 0.0]], groups=[0, 1]).tolist()
        ['leaves', 'buys']
    """

    _target_kind = "classes"

    def fit(self, X: Any, y: Any, groups: ArrayLike | None = None) -> SRFCAClassifier:
        """Find a model for every group.

        Args:
            X: ``[n, features]`` inputs.
            y: ``[n]`` classes.
            groups: ``[n]`` the group of each row, strings or whole numbers. Without it, or if there
                is one group only, all rows share one model.

        Returns:
            The classifier itself.

        Raises:
            ValueError: If the data cannot be used.
        """
        X, y = validate_data(self, X, y, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        self._fit(X, y, groups)
        return self

    def predict(self, X: Any, groups: ArrayLike | None = None) -> NDArray[Any]:
        """Return the most probable class of each row: ``[n]``.

        Args:
            X: ``[n, features]`` inputs.
            groups: ``[n]`` the group of each row, which must be one of those in ``fit``.

        Returns:
            ``[n]``

        Raises:
            ValueError: If a group has no model, or it is not given.
        """
        labels = self._outputs(X, groups).argmax(1)
        predicted: NDArray[Any] = self.classes_[labels]
        return predicted

    def predict_proba(self, X: Any, groups: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the probability of each class in each row: ``[n, C]``.

        Args:
            X: ``[n, features]`` inputs.
            groups: ``[n]`` the group of each row.

        Returns:
            ``[n, C]``

        Raises:
            ValueError: If a group has no model, or it is not given.
        """
        outputs = self._outputs(X, groups)
        exponentials = np.exp(outputs - outputs.max(1, keepdims=True))
        probabilities: NDArray[np.float64] = exponentials / exponentials.sum(1, keepdims=True)
        return probabilities

    def score(self, X: Any, y: Any, groups: ArrayLike | None = None) -> float:
        """Return the accuracy.

        Args:
            X: ``[n, features]`` inputs.
            y: ``[n]`` true classes.
            groups: ``[n]`` the group of each row.

        Returns:
            From 0 to 1.

        Raises:
            ValueError: If a group has no model, or it is not given.
        """
        return float(accuracy_score(y, self.predict(X, groups)))


class SRFCARegressor(RegressorMixin, _GroupEstimator):  # type: ignore[misc]
    """A regressor with a model for every group, shared by groups that are alike.

    Args:
        method: A key of ``srfca list``, or a method. Its local training is the one given here.
        model: ``mlp``, ``linear`` or another name of ``srfca.models.MODELS``, a module, or a
            function that returns one.
        hidden: Widths of an MLP's hidden layers.
        steps: Steps of each training.
        batch_size: Samples of a step, None for all.
        lr: Learning rate of Adam.
        standardize: Whether inputs and targets get mean 0 and standard deviation 1. Predictions are
            in the units of the targets in any case.
        validation: The fraction of each group's rows that is held out, to decide by.
        device: ``auto``, ``cpu``, ``cuda``, ...
        random_state: A seed decides every draw.

    Attributes:
        groups_: ``[m]`` the groups, as strings.
        labels_: ``[m]`` the cluster of each group, -1 for none.
        result_: The ``Result`` of the method.
        n_features_in_: The number of inputs.

    Examples:
        >>> rng = np.random.default_rng(0)
        >>> X, shop = rng.normal(size=(600, 2)), np.arange(600) % 12
        >>> y = X[:, 0] * np.where(shop % 2, 1, -1)
        >>> regressor = SRFCARegressor(model="linear").fit(X, y, shop)
        >>> regressor.labels_.tolist()
        [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]
        >>> regressor.predict([[2.0, 0.0], [2.0, 0.0]], groups=[0, 1]).round().tolist()
        [-2.0, 2.0]
    """

    _target_kind = "values"

    def fit(self, X: Any, y: Any, groups: ArrayLike | None = None) -> SRFCARegressor:
        """Find a model for every group.

        Args:
            X: ``[n, features]`` inputs.
            y: ``[n]`` values.
            groups: ``[n]`` the group of each row, strings or whole numbers. Without it, or if there
                is one group only, all rows share one model.

        Returns:
            The regressor itself.

        Raises:
            ValueError: If the data cannot be used.
        """
        X, y = validate_data(self, X, y, ensure_min_samples=2, y_numeric=True)
        self._fit(X, np.asarray(y, dtype=np.float64), groups)
        return self

    def predict(self, X: Any, groups: ArrayLike | None = None) -> NDArray[np.float64]:
        """Return the predicted value of each row: ``[n]``.

        Args:
            X: ``[n, features]`` inputs.
            groups: ``[n]`` the group of each row, which must be one of those in ``fit``.

        Returns:
            ``[n]``

        Raises:
            ValueError: If a group has no model, or it is not given.
        """
        outputs = self._outputs(X, groups)
        values: NDArray[np.float64] = self._schema.decode(outputs.reshape(len(outputs)))
        return values

    def score(self, X: Any, y: Any, groups: ArrayLike | None = None) -> float:
        """Return the coefficient of determination, R squared.

        Args:
            X: ``[n, features]`` inputs.
            y: ``[n]`` true values.
            groups: ``[n]`` the group of each row.

        Returns:
            At most 1.

        Raises:
            ValueError: If a group has no model, or it is not given.
        """
        return float(r2_score(y, self.predict(X, groups)))


def _group_names(groups: ArrayLike | None, n: int) -> NDArray[np.str_]:
    """Return the name of each row's group; all rows are one group if there are none."""
    if groups is None:
        return np.full(n, "all")
    values = column_or_1d(groups)
    check_consistent_length(np.empty(n), values)
    texts = all(isinstance(value, str) for value in values.tolist())
    require(
        texts or np.asarray(values).dtype.kind in "iu",
        f"groups must be strings or whole numbers, not {np.asarray(values).dtype}",
    )
    return np.asarray(values).astype(np.str_)


def _modules(simulation: Simulation, result: Result) -> tuple[list[nn.Module], NDArray[np.int64]]:
    """Return the different models in double precision, and which one each client has, or -1."""
    require(
        result.mixture_weights is None,
        f"{result.method} gives clients mixtures of models, but these estimators need one model "
        "for each: choose another method",
    )
    rows = result.final_models
    module_of = np.full(len(rows), -1, dtype=np.int64)
    has_model = rows.isfinite().all(1)
    different, inverse = torch.unique(rows[has_model], dim=0, return_inverse=True)
    module_of[has_model.cpu().numpy()] = inverse.cpu().numpy()
    return [simulation.module(row).cpu().double() for row in different], module_of
