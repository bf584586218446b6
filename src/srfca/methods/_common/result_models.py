"""The models of a result in a person's hands: modules, state dicts, predictions, files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from srfca.data.schema import Schema
from srfca.errors import InputError, require
from srfca.federation.requests import Personal
from srfca.methods._common.export import export_models
from srfca.methods._common.predictor import predictor_of
from srfca.models.architecture import Architecture, Module
from srfca.models.export import ExportFormat
from srfca.models.prediction import outputs_of
from srfca.models.signature import Signature


class ResultModels:
    """What a person does with the models of a result; ``Result`` documents the fields."""

    method: str
    client_ids: tuple[str, ...]
    labels: NDArray[np.int64]
    models: Tensor
    individual_models: Tensor | None
    mixture_weights: Tensor | None
    fine_tuned_models: Tensor | None
    fine_tuned_steps: Tensor | None
    personal: Personal | None
    architecture: Architecture | None
    schema: Schema | None

    def module(self, client: str | int | None = None, *, cluster: int | None = None) -> Module:
        """Return a client's or a cluster's model as an ordinary PyTorch module.

        It is a new module on the CPU, in evaluation mode: ready to predict, or to train on. A
        client's model is its final one: fine-tuned, individual, with its head, a mixture that
        averages as its scores do, or that of its cluster.

        Args:
            client: A client's name, or its position in ``client_ids``.
            cluster: Instead of a client, the number of a cluster.

        Raises:
            InputError: If there is no such client or cluster, it has no model, or the module
                cannot be made again.

        >>> from srfca import FedAvg, LocalTraining, Simulation, data, models
        >>> digits = data.rotated_digits(num_clients=4)
        >>> fed = Simulation(digits, models.mlp(64, 10))
        >>> result = FedAvg(local=LocalTraining(steps=20, lr=0.5)).fit(fed)
        >>> result.module("3")
        Sequential(
          (0): Flatten(start_dim=1, end_dim=-1)
          (1): Linear(in_features=64, out_features=10, bias=True)
        )
        >>> result.predict(digits.test.x[:3].numpy(), client="3").shape
        (3,)
        """
        architecture = self._known_architecture()
        predictor = predictor_of(self, client, cluster)
        if predictor.weights is None:
            return architecture.build(predictor.rows[0])
        return architecture.build_mixture(predictor.rows, predictor.weights)

    def state_dict(
        self, cluster: int | None = None, *, client: str | int | None = None
    ) -> dict[str, Tensor]:
        """Return a cluster's or a client's model as a ``state_dict``.

        It does not need what makes the module, unless the client has a mixture.

        Args:
            cluster: The number of a cluster.
            client: Instead of a cluster, a client's name or its position.

        Raises:
            InputError: If there is no such client or cluster, or it has no model.
        """
        architecture = self._known_architecture()
        predictor = predictor_of(self, client, cluster)
        if predictor.weights is None:
            return architecture.state_dict(predictor.rows[0])
        return self.module(client).state_dict()

    @overload
    def predict(
        self, x: Tensor, client: str | int | None = None, *, cluster: int | None = None
    ) -> Tensor: ...
    @overload
    def predict(
        self, x: Any, client: str | int | None = None, *, cluster: int | None = None
    ) -> NDArray[Any]: ...
    def predict(
        self, x: Any, client: str | int | None = None, *, cluster: int | None = None
    ) -> Tensor | NDArray[Any]:
        """Predict classes, or values if the targets are not classes.

        Args:
            x: ``[n, ...]`` inputs, as an array or a tensor; or a table with the feature columns of
                the clients' tables, if the clients had tables (``schema``).
            client: A client's name, or its position in ``client_ids``.
            cluster: Instead of a client, the number of a cluster.

        Returns:
            ``[n, ...]`` classes, as labels 0, 1, ..., or values; a tensor if ``x`` is a tensor. For
            a table, the names of the classes, or values in the units of the target column.

        Raises:
            InputError: As ``module`` does; or if the model does not take ``x``.
        """
        outputs, signature = self._outputs(x, client, cluster)
        predictions = signature.predictions(outputs)
        if isinstance(x, Tensor):
            return predictions
        if self.schema is None or isinstance(x, np.ndarray):
            return np.asarray(predictions)
        return self.schema.decode(predictions)

    @overload
    def predict_proba(
        self, x: Tensor, client: str | int | None = None, *, cluster: int | None = None
    ) -> Tensor: ...
    @overload
    def predict_proba(
        self, x: Any, client: str | int | None = None, *, cluster: int | None = None
    ) -> NDArray[Any]: ...
    def predict_proba(
        self, x: Any, client: str | int | None = None, *, cluster: int | None = None
    ) -> Tensor | NDArray[Any]:
        """Predict the probability of each class: ``[n, classes, ...]``.

        Args:
            x: Inputs, as for ``predict``.
            client: A client's name, or its position in ``client_ids``.
            cluster: Instead of a client, the number of a cluster.

        Raises:
            InputError: As ``predict`` does; or if the model was not trained with cross entropy.
        """
        outputs, signature = self._outputs(x, client, cluster)
        probabilities = signature.probabilities(outputs)
        return probabilities if isinstance(x, Tensor) else np.asarray(probabilities)

    def export(
        self,
        folder: str | Path,
        format: ExportFormat = "safetensors",
        *,
        clusters: Iterable[int] | None = None,
        clients: Iterable[str | int] = (),
    ) -> list[Path]:
        """Write models as files for other programs, and ``models.json``, which lists them.

        Args:
            folder: The folder.
            format: ``safetensors``; ``torch``, a ``state_dict`` that ``torch.load`` reads with
                ``weights_only=True``; or ``onnx``, which needs ``srfca[onnx]``.
            clusters: Which clusters' models; None is all of them, or none if clients are named.
            clients: Which clients' final models, by name or position.

        Returns:
            The files, ``models.json`` last.

        Raises:
            InputError: As ``module`` does; or if the format is unknown, or cannot hold a model.
        """
        named = list(clients)
        if clusters is None:
            clusters = [] if named else range(len(self.models))
        return export_models(self, Path(folder), format, list(clusters), named)

    def _outputs(
        self, x: Any, client: str | int | None, cluster: int | None
    ) -> tuple[Tensor, Signature]:
        if not isinstance(x, Tensor | np.ndarray):
            x = self._encode(x)
        module, architecture = self.module(client, cluster=cluster), self._known_architecture()
        require(
            architecture.signature is not None,
            "the result does not say what the outputs of its models mean: use the outputs of "
            "result.module(client)",
        )
        assert architecture.signature is not None
        return outputs_of(module, x, architecture.signature), architecture.signature

    def _encode(self, table: Any) -> Tensor:
        if self.schema is None:
            raise InputError(
                f"x must be an array or a tensor, not of type {type(table).__name__}: the clients "
                "of this result had no tables, so that there is no schema to read one with"
            )
        return self.schema.encode(table)

    def _known_architecture(self) -> Architecture:
        if self.architecture is None:
            raise InputError(
                "the result was saved without its architecture, by an earlier version or of a "
                "federation that does not know it: pass what makes the module, "
                "Result.load(folder, model=factory)"
            )
        return self.architecture
