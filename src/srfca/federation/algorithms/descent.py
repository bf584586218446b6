"""Steps of an optimizer along gradients, with terms that fast engines add element by element."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from srfca.errors import require
from srfca.federation.algorithms._base import LocalAlgorithm, LocalClient, register_algorithm
from srfca.federation.coordinates import Coordinates
from srfca.federation.mixture import Mixture


@dataclass(frozen=True)
class Phase:
    """Steps of a round in which only some coordinates train.

    Args:
        coordinates: What trains: whole parameters of the model, such as layers.
        steps: How many steps, or None for the rest of the round.

    Examples:
        >>> from srfca import models
        >>> from srfca.federation import Coordinates
        >>> layers = {"body": slice(0, 6), "head": slice(6, 9)}
        >>> body, head = (Coordinates.of_layers(layers, [name]) for name in layers)
        >>> Descent(phases=(Phase(head, steps=3), Phase(body))).spans(5)[0][1]
        range(0, 3)
    """

    coordinates: Coordinates
    steps: int | None = None


@dataclass(frozen=True, eq=False)
class Posterior:
    """Sample weights: the posterior of one model of a mixture, given the sample.

    A sample's weight in a batch of b samples is its posterior divided by b. The same client may
    train several models of its mixture in one request; it takes the same batches for each.

    Args:
        mixture: The models, and the weights of each entry of the request.
        component: The model that each entry trains, ``[c]``.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.federation import Train
        >>> from srfca.random import Key
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> components = torch.randn(2, 4)
        >>> mixture = Mixture(components, torch.full((8, 2), 0.5))
        >>> component = torch.tensor([0, 1] * 4)
        >>> posterior = Posterior(mixture, component)
        >>> clients, key = [0, 0, 1, 1, 2, 2, 3, 3], Key(0, "demo")
        >>> local, algorithm = LocalTraining(steps=5), Descent(posterior=posterior)
        >>> fed.ask(Train(clients, components[component], local, key, algorithm)).values.shape
        torch.Size([8, 4])
    """

    mixture: Mixture
    component: Tensor

    def select(self, index: NDArray[np.int64]) -> Posterior:
        """Return the same for some entries of the request.

        Args:
            index: ``[n]`` positions of entries.
        """
        at = torch.as_tensor(index, device=self.component.device)
        return Posterior(self.mixture.select(index), self.component[at])


@register_algorithm
@dataclass(frozen=True, eq=False, kw_only=True)
class Descent(LocalAlgorithm):
    """Minibatch steps of the optimizer of ``LocalTraining``: what every client does by default.

    Args:
        anchors: ``[c, P]`` what the proximal term ``mu/2 |w - anchor|^2`` pulls to; None is each
            client's start (FedProx; Ditto, FedSoft and MOCHA send others).
        corrections: ``[c, P]`` added to every gradient (SCAFFOLD, FedDyn).
        phases: Which coordinates train in which steps (FedRep); empty is all in all steps. The
            optimizer restarts in each phase.
        posterior: Weights of the samples (FedEM, FedRC); None weighs all alike.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> from srfca.federation import Train
        >>> from srfca.random import Key
        >>> fed = Simulation(data.synthetic(num_clients=4, dimension=3), models.linear(3))
        >>> starts = fed.initial_model(0).repeat(4, 1)
        >>> local, key = LocalTraining(steps=5, mu=0.1), Key(0, "demo")
        >>> algorithm = Descent(anchors=torch.ones(4, 4), corrections=torch.zeros(4, 4))
        >>> fed.ask(Train(range(4), starts, local, key, algorithm)).values.shape
        torch.Size([4, 4])
    """

    key: ClassVar[str] = "descent"

    anchors: Tensor | None = None
    corrections: Tensor | None = None
    phases: tuple[Phase, ...] = ()
    posterior: Posterior | None = None

    def train(self, client: LocalClient, start: Tensor, **rows: Tensor) -> Tensor:
        """Raise an error: the engines implement this algorithm."""
        raise NotImplementedError("every engine implements Descent itself")

    def spans(self, steps: int) -> list[tuple[Coordinates | None, range]]:
        """Return what trains in which of the steps of a round; None is everything.

        Args:
            steps: Steps of the round.

        Returns:
            Coordinates and their steps, in turn.

        Raises:
            InputError: If the phases have more or fewer steps.
        """
        if not self.phases:
            return [(None, range(steps))]
        spans: list[tuple[Coordinates | None, range]] = []
        done = 0
        for phase in self.phases:
            stop = steps if phase.steps is None else min(steps, done + phase.steps)
            spans.append((phase.coordinates, range(done, stop)))
            done = stop
        require(done == steps, f"the phases have {done} steps, but the round has {steps}")
        return [(coordinates, span) for coordinates, span in spans if span]

    def settings(self) -> dict[str, Any]:
        """Return the phases; tensors and the posterior are sent apart."""
        phases = [[phase.coordinates.ranges, phase.steps] for phase in self.phases]
        return {"phases": phases} if phases else {}

    @classmethod
    def restore(cls, settings: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        """Return the algorithm with these ``settings`` and ``tensors``."""
        phases = tuple(
            Phase(Coordinates(tuple((start, stop) for start, stop in ranges)), steps)
            for ranges, steps in settings.get("phases", [])
        )
        return cls(
            anchors=tensors.get("anchors"), corrections=tensors.get("corrections"), phases=phases
        )

    def select(self, index: NDArray[np.int64]) -> Self:
        """Return the same for some entries of the request."""
        chosen = super().select(index)
        if self.posterior is None:
            return chosen
        return replace(chosen, posterior=self.posterior.select(index))
