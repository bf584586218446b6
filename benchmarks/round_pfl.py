"""One federated round of pfl-research: FedAvg, 100 users x 5 steps of SGD.

In one process, or in several by ``python -m torch.distributed.run --nproc-per-node 2``.
"""

from __future__ import annotations

import logging
import os
from time import perf_counter

import torch
from harness import Orders
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import MinimizeReuseUserSampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from setting import ROUND_LR, Setting, best_threads, mlp, round_samples, row, setting
from torch import Tensor, nn
from torch.nn import functional


class Net(nn.Module):
    """The MLP with a loss, as pfl has it."""

    def __init__(self, sizes: Setting) -> None:
        super().__init__()
        self.layers = mlp(sizes.hidden)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean loss of a batch."""
        return functional.cross_entropy(self.layers(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, float]:
        """Nothing is evaluated."""
        return {}


class Turns(TrainingProcessCallback):
    """After every round, answer and wait to be told to go on."""

    def __init__(self, name: str, w0: Tensor) -> None:
        self.name, self.w0 = name, w0
        self.first = int(os.environ.get("RANK", 0)) == 0
        self.several = "TORCHELASTIC_RUN_ID" in os.environ
        if self.first:
            self.orders = Orders()

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        """Wait for the first order."""
        if self.first:
            self.orders.ready([self.name])
        self.over = self.wait()
        return Metrics()

    def after_central_iteration(
        self, metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Answer, wait."""
        if self.first:
            taken = perf_counter() - self.start
            moved = float((row(model.pytorch_model) - self.w0).norm())
            self.orders.answer(taken, moved)
        return self.wait(), Metrics()

    def wait(self) -> bool:
        """Whether the race is over; all processes learn it at once."""
        go = torch.ones(1)
        if self.first and self.orders.next() is None:
            go.zero_()
        if self.several:
            torch.distributed.broadcast(go, src=0)
        self.start = perf_counter()
        return not bool(go)


def main(sizes: Setting) -> None:
    """Serve rounds of one training."""
    logging.disable(logging.CRITICAL)
    several = int(os.environ.get("WORLD_SIZE", 1))
    net = Net(sizes)
    model = PyTorchModel(
        net,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
    )
    x, y = round_samples(sizes)
    if several == 1:
        batch = (x[0, 0], y[0, 0])
        torch.set_num_threads(best_threads(lambda: net.loss(*batch).backward()))
        net.zero_grad(set_to_none=True)
    users = {
        str(user): PyTorchTensorDataset((own_x.flatten(0, 1), own_y.flatten(0, 1)))
        for user, (own_x, own_y) in enumerate(zip(x, y, strict=True))
    }
    dataset = FederatedDataset(users.__getitem__, MinimizeReuseUserSampler(list(users)))
    how = "one process" if several == 1 else f"{several} processes"
    FederatedAveraging().run(
        backend=SimulatedBackend(training_data=dataset, val_data=dataset),
        model=model,
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=10**6, evaluation_frequency=10**7,
            train_cohort_size=sizes.clients, val_cohort_size=0,
        ),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=ROUND_LR, local_batch_size=sizes.batch,
        ),
        callbacks=[Turns(f"pfl-research, {how}", row(net))],
        send_metrics_to_platform=False,
    )  # fmt: skip
    if several > 1:  # the threads of torch.distributed abort an ordinary end
        torch.distributed.barrier()
        os._exit(0)


if __name__ == "__main__":
    main(setting())
