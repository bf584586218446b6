"""One federated round of pfl-research: FedAvg, 5 steps of SGD for each user.

It runs in one process, or in several with ``python -m torch.distributed.run --nproc-per-node 2``.
"""

from __future__ import annotations

import logging
import os
from time import perf_counter

import torch
from harness import Channel
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
from setting import (
    ROUND_LR,
    Setting,
    best_threads,
    parse_setting,
    round_network,
    round_samples,
    to_row,
)
from torch import Tensor, nn
from torch.nn import functional


class Net(nn.Module):
    """The network with a loss, as pfl expects it."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.layers = round_network(setting)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of a batch."""
        return functional.cross_entropy(self.layers(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, float]:
        """Return no metrics: nothing is evaluated."""
        return {}


class TimedRounds(TrainingProcessCallback):
    """Waits for a command before every round, and replies after it."""

    def __init__(self, name: str, w0: Tensor) -> None:
        self.name, self.w0 = name, w0
        self.first = int(os.environ.get("RANK", 0)) == 0
        self.distributed = "TORCHELASTIC_RUN_ID" in os.environ
        if self.first:
            self.channel = Channel()

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        """Wait for the first command."""
        if self.first:
            self.channel.ready([self.name])
        self.over = self.wait()
        return Metrics()

    def after_central_iteration(
        self, metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Reply, and wait for the next command."""
        if self.first:
            seconds = perf_counter() - self.start
            step = float((to_row(model.pytorch_model) - self.w0).norm())
            self.channel.reply(seconds, step)
        return self.wait(), Metrics()

    def wait(self) -> bool:
        """Wait for a command in all processes; return whether the benchmark is over."""
        go = torch.ones(1)
        if self.first and self.channel.next() is None:
            go.zero_()
        if self.distributed:
            torch.distributed.broadcast(go, src=0)
        self.start = perf_counter()
        return not bool(go)


def main(setting: Setting) -> None:
    """Serve rounds of one training."""
    logging.disable(logging.CRITICAL)
    num_processes = int(os.environ.get("WORLD_SIZE", 1))
    net = Net(setting)
    model = PyTorchModel(
        net,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
    )
    x, y = round_samples(setting)
    if num_processes == 1:
        batch = (x[0, 0], y[0, 0])
        torch.set_num_threads(best_threads(lambda: net.loss(*batch).backward()))
        net.zero_grad(set_to_none=True)
    users = {
        str(user): PyTorchTensorDataset((inputs.flatten(0, 1), targets.flatten(0, 1)))
        for user, (inputs, targets) in enumerate(zip(x, y, strict=True))
    }
    dataset = FederatedDataset(users.__getitem__, MinimizeReuseUserSampler(list(users)))
    label = "one process" if num_processes == 1 else f"{num_processes} processes"
    FederatedAveraging().run(
        backend=SimulatedBackend(training_data=dataset, val_data=dataset),
        model=model,
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=10**6, evaluation_frequency=10**7,
            train_cohort_size=setting.num_clients, val_cohort_size=0,
        ),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=ROUND_LR, local_batch_size=setting.batch_size,
        ),
        callbacks=[TimedRounds(f"pfl-research, {label}", to_row(net))],
        send_metrics_to_platform=False,
    )  # fmt: skip
    if num_processes > 1:  # the threads of torch.distributed abort an ordinary exit
        torch.distributed.barrier()
        os._exit(0)


if __name__ == "__main__":
    main(parse_setting())
