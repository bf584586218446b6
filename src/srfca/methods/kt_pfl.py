"""KT-pFL: clients teach each other by what their models say about shared inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from srfca.clustering.partition import Partition
from srfca.federation.algorithms.shared_data import Distillation
from srfca.federation.classes import num_classes
from srfca.federation.local_training import LocalTraining
from srfca.federation.replies import Clients, Replies
from srfca.federation.requests import Outputs, Train
from srfca.methods._common.base import Answer, Family, Method
from srfca.methods._common.pool import shared_pool
from srfca.methods._common.rounds import num_participants, one_cluster, participants
from srfca.methods._common.run import Run
from srfca.methods._common.search_space import Range, SearchSpace
from srfca.methods.afl import project_to_simplex
from srfca.methods.registry import register
from srfca.parameters import constrained

Weights = Literal["projection", "softmax"]


@register
@dataclass(frozen=True, kw_only=True)
class KTpFL(Method):
    """Client i minimizes ``F_i(w)`` and the distance of ``s_i`` to ``sum_j c_ij s_j``.

    s_i are the predictions of its model on shared inputs, and c is learned. Models stay with the
    clients.

    Args:
        shared: Inputs that each client gives away, without their labels.
        distillation_steps: Steps on the shared inputs in each round; None is as many as on the
            client's own samples, ``local.local_steps``.
        distillation_lr: Their learning rate; None is that of ``local``.
        coefficient_lr: Learning rate of c; with 0 all clients are taught by the mean.
        coefficients: What keeps the c_ij weights of sum 1: ``projection``, or ``softmax``, that of
            five times c after each step, as in the authors' code.
        temperature: The temperature of predictions and distillation, for classes; above 1 they
            are softer.
        rho: How strongly the c_ij are pulled to 1/m.
        participation: The fraction of the clients that take part in a round.

    Examples:
        >>> from srfca import LocalTraining, Simulation, data, models
        >>> regressions = data.synthetic(num_clients=8, samples=20, dimension=5)
        >>> federation, local = Simulation(regressions, models.linear(5)), LocalTraining(steps=30)
        >>> KTpFL(local=local).fit(federation).models.shape
        torch.Size([8, 6])
    """

    key: ClassVar[str] = "kt-pfl"
    name: ClassVar[str] = "KT-pFL"
    paper: ClassVar[str] = (
        "Zhang, Guo, Ma, Wang, Xu, Wu: Parameterized Knowledge Transfer for Personalized Federated "
        "Learning. NeurIPS 2021."
    )
    family: ClassVar[Family] = "personalization"
    clustered: ClassVar[bool] = False
    server_settings: ClassVar[tuple[str, ...]] = ()
    searched: ClassVar[Mapping[str, SearchSpace]] = {
        "coefficient_lr": Range(0.01, 1.0, log=True),
        "rho": Range(0.01, 1.0, log=True),
    }

    shared: int = constrained(5, at_least=1)
    distillation_steps: int | None = constrained(None, at_least=1)
    distillation_lr: float | None = constrained(None, more_than=0)
    coefficient_lr: float = constrained(0.1, at_least=0)
    coefficients: Weights = "projection"
    temperature: float = constrained(1.0, more_than=0)
    rho: float = constrained(0.1, at_least=0)
    participation: float = constrained(1.0, more_than=0, at_most=1)

    @property
    def trainings(self) -> float:
        """One on the clients' samples, and the steps on shared inputs."""
        distilled = self._distillation.steps / self.local.steps
        return self.participation * (1 + distilled)

    @property
    def _distillation(self) -> LocalTraining:
        """How clients train on shared inputs."""
        steps = self.distillation_steps or self.local.local_steps
        lr = self.local.lr if self.distillation_lr is None else self.distillation_lr
        return replace(self.local, steps=steps * self.local.rounds, local_steps=steps, lr=lr)

    def solve(self, run: Run) -> Answer:
        """In each round: train, predict, learn c, and train towards what c says."""
        inputs = shared_pool(run, self.shared, targets=False)
        everyone, alone = one_cluster(run), Partition(run.everyone)
        models = run.initial_model().repeat(run.num_clients, 1)
        are_classes = num_classes(run) is not None
        state = Teachers(run.num_clients, self.coefficients)
        temperature = self.temperature if are_classes else 1.0
        count = sum(num_participants(everyone, self.participation))
        steps = self.local.steps + self._distillation.steps
        with run.stage("KT_PFL", count * steps):
            for number in range(self.local.rounds):
                key = run.key("kt-pfl", number)
                clients = participants(run.federation, everyone, self.participation, key)
                index = torch.as_tensor(clients, device=models.device)
                request = Train(clients, models[index], self.local, key, private=True)
                clients = _update(models, run.train(request))
                index = torch.as_tensor(clients, device=models.device)
                outputs = run.ask(Outputs(clients, models[index], inputs))
                values = outputs.values.cpu().double()
                softened = (values / temperature).softmax(2) if are_classes else values
                state.hear(outputs.clients, softened)
                state.learn(outputs.clients, self.coefficient_lr, self.rho)
                teaching = Distillation(
                    inputs=inputs.expand(len(outputs.clients), *inputs.shape),
                    targets=state.targets(outputs.clients).to(models),
                    temperature=temperature,
                )
                self._distill(run, models, outputs.clients, teaching, number)
                run.end_round("KT_PFL", number, self.local.rounds, models)
        notes = {"coefficients": state.coefficients.tolist(), "shared": len(inputs)}
        run.record("KT_PFL", alone, models, notes=notes)
        return Answer(alone.labels, models)

    def _distill(
        self, run: Run, models: Tensor, clients: Clients, teaching: Distillation, number: int
    ) -> None:
        """Train some clients towards the predictions that they are taught."""
        index = torch.as_tensor(clients, device=models.device)
        key = run.key("kt-pfl distillation", number)
        request = Train(clients, models[index], self._distillation, key, teaching, private=True)
        _update(models, run.train(request, "distillation"))


class Teachers:
    """Predictions of the clients on shared inputs, and whose each client learns from.

    Args:
        num_clients: m
        weights: What keeps the weights of a client's teachers at a sum of 1.

    Attributes:
        coefficients: ``[m, m]`` c: the weight of each client among the teachers of another.
        heard: ``[m]`` which clients have sent predictions.
    """

    def __init__(self, num_clients: int, weights: Weights = "projection") -> None:
        self._to_weights = project_to_simplex if weights == "projection" else _softmax_of_five
        self.coefficients = torch.full((num_clients, num_clients), 1 / num_clients).double()
        self.heard = torch.zeros(num_clients, dtype=torch.bool)
        self._predictions: Tensor | None = None  # [m, s * d]
        self._shape: tuple[int, int] = (0, 0)

    def hear(self, clients: Clients, predictions: Tensor) -> None:
        """Take the predictions ``[c, s, d]`` of some clients."""
        self._shape = predictions.shape[1], predictions.shape[2]
        if self._predictions is None:
            width = predictions.shape[1] * predictions.shape[2]
            self._predictions = predictions.new_zeros(len(self.heard), width)
        index = torch.as_tensor(clients)
        self._predictions[index] = predictions.flatten(1)
        self.heard[index] = True

    def learn(self, clients: Clients, lr: float, rho: float) -> None:
        """Take a step of c_i, for some clients i, and make it weights of sum 1.

        It goes down ``mean over inputs of |s_i - sum_j c_ij s_j|^2 + rho |c_i - 1/k|^2``, over the
        k clients j that have sent predictions.
        """
        if self._predictions is None or not len(clients):
            return
        heard = self.heard.nonzero().flatten()
        of_all = self._predictions[heard]
        products = of_all @ of_all.T / self._shape[0]  # [k, k]
        places = torch.searchsorted(heard, torch.as_tensor(clients))
        rows = self.coefficients[torch.as_tensor(clients)][:, heard]
        rows = rows / rows.sum(1, keepdim=True)
        gradients = 2 * (rows @ products - products[places]) + 2 * rho * (rows - 1 / len(heard))
        for client, row in zip(clients.tolist(), rows - lr * gradients, strict=True):
            self.coefficients[client] = 0.0
            self.coefficients[client, heard] = self._to_weights(row)

    def targets(self, clients: Clients) -> Tensor:
        """Return what some clients are taught: ``[c, s, d]``."""
        assert self._predictions is not None
        taught = self.coefficients[torch.as_tensor(clients)] @ self._predictions
        return taught.view(len(clients), *self._shape)


def _softmax_of_five(values: Tensor) -> Tensor:
    return (5 * values).softmax(0)


def _update(models: Tensor, replies: Replies[Tensor]) -> Clients:
    """Put the replies into the models ``[m, P]``, and return the clients that replied."""
    models[torch.as_tensor(replies.clients, device=models.device)] = replies.values.to(models)
    return replies.clients
