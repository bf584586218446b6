"""One federated round of Flower's simulation engine: FedAvg, 100 nodes x 5 steps of SGD."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from time import perf_counter
from typing import Any

import ray
from flower_client import client
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from harness import Orders
from setting import Setting, mlp, row, setting
from torch import Tensor
from torch.nn.utils import parameters_to_vector

NAME = "Flower simulation"


class OverError(Exception):
    """The race is over."""


class Turns(FedAvg):
    """FedAvg that waits for an order before every round, and answers after it."""

    def __init__(self, orders: Orders, w0: Tensor, **options: Any) -> None:
        super().__init__(**options)
        self.orders, self.w0 = orders, w0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Wait, then go on as FedAvg does."""
        if self.orders.next() is None:
            raise OverError
        self.start_of_round = perf_counter()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate as FedAvg does, then answer."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        taken = perf_counter() - self.start_of_round
        assert arrays is not None
        after = parameters_to_vector(arrays.to_torch_state_dict().values())
        self.orders.answer(taken, float((after - self.w0).norm()))
        return arrays, metrics


def main(sizes: Setting) -> None:
    """Serve rounds of one training: an actor for every core."""
    orders = Orders()
    server = ServerApp()
    w0 = mlp(sizes.hidden)

    @server.main()
    def rounds(grid: Grid, context: Context) -> None:
        strategy = Turns(
            orders, row(w0), fraction_train=1.0, fraction_evaluate=0.0,
            min_train_nodes=sizes.clients, min_available_nodes=sizes.clients,
        )  # fmt: skip
        orders.ready([NAME])
        try:
            strategy.start(
                grid, ArrayRecord(w0.state_dict()), num_rounds=10**6,
                train_config=ConfigRecord({"quick": sizes.quick}),
            )  # fmt: skip
        except OverError:
            return

    logging.getLogger("flwr").setLevel(logging.ERROR)
    run_simulation(
        server, client, sizes.clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": len(os.sched_getaffinity(0)), "logging_level": "error"},
        },
    )  # fmt: skip
    ray.shutdown()


if __name__ == "__main__":
    main(setting())
