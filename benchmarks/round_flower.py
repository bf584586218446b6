"""One federated round of Flower's simulation engine: FedAvg, 5 steps of SGD on each node."""

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
from harness import Channel
from setting import Setting, parse_setting, round_network, to_row
from torch import Tensor
from torch.nn.utils import parameters_to_vector

NAME = "Flower simulation"


class BenchmarkOverError(Exception):
    """Ends the training when the benchmark is over."""


class TimedFedAvg(FedAvg):
    """FedAvg that waits for a command before every round, and replies after it."""

    def __init__(self, channel: Channel, w0: Tensor, **options: Any) -> None:
        super().__init__(**options)
        self.channel, self.w0 = channel, w0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Wait for a command, start the clock and configure the round as FedAvg does."""
        if self.channel.next() is None:
            raise BenchmarkOverError
        self.start_of_round = perf_counter()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate as FedAvg does, stop the clock and reply."""
        arrays, metrics = super().aggregate_train(server_round, replies)
        seconds = perf_counter() - self.start_of_round
        assert arrays is not None
        model = parameters_to_vector(arrays.to_torch_state_dict().values())
        self.channel.reply(seconds, float((model - self.w0).norm()))
        return arrays, metrics


def main(setting: Setting) -> None:
    """Serve rounds of one training, with one actor per core."""
    channel = Channel()
    server = ServerApp()
    w0 = round_network(setting)

    @server.main()
    def train(grid: Grid, context: Context) -> None:
        strategy = TimedFedAvg(
            channel, to_row(w0), fraction_train=1.0, fraction_evaluate=0.0,
            min_train_nodes=setting.num_clients, min_available_nodes=setting.num_clients,
        )  # fmt: skip
        channel.ready([NAME])
        try:
            strategy.start(
                grid, ArrayRecord(w0.state_dict()), num_rounds=10**6,
                train_config=ConfigRecord({"quick": setting.quick, "network": setting.network}),
            )  # fmt: skip
        except BenchmarkOverError:
            return

    logging.getLogger("flwr").setLevel(logging.ERROR)
    run_simulation(
        server, client, setting.num_clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": len(os.sched_getaffinity(0)), "logging_level": "error"},
        },
    )  # fmt: skip
    ray.shutdown()


if __name__ == "__main__":
    main(parse_setting())
