"""Messages and bytes of SR-FCA and IFCA on Flower, by stage, beside what a simulation counts.

    python -m benchmarks.messages            # 100 clients, a few minutes on one core

The clients run in this process, with the records that a network would carry. Bytes are those of
models, numbers and texts, without what Flower and HTTP add. Clients have the small images of
``benchmarks/scale.py``, in four groups; the model is an MLP 64-200-10 of 60 KB.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from logging import WARNING, getLogger

import torch
from benchmarks.scale import images
from flwr.app import Context, Message
from tests.flower.grid import LocalGrid

from srfca import SRFCA, ClientData, LocalTraining, Method, Result, models
from srfca.federation import Traffic
from srfca.flower import FlowerFederation, client_app
from srfca.methods import IFCA

LOCAL = LocalTraining(steps=50, local_steps=5, batch_size=10, lr=0.2)
THRESHOLD = 1.5
METHODS: dict[str, Method] = {
    "SR-FCA, all pairs": SRFCA(local=LOCAL, refine_steps=1),
    "SR-FCA, all pairs, one-sided": SRFCA(local=LOCAL, refine_steps=1, distance="one_sided_loss"),
    "SR-FCA, lazy": SRFCA(
        local=LOCAL, refine_steps=1, all_pairs=0, threshold=THRESHOLD, merge_threshold="auto"
    ),
    "SR-FCA, lazy, one-sided": SRFCA(
        local=LOCAL, refine_steps=1, all_pairs=0, threshold=THRESHOLD, merge_threshold="auto",
        distance="one_sided_loss",
    ),
    "SR-FCA, all pairs, l2": SRFCA(local=LOCAL, refine_steps=1, distance="l2"),
    "IFCA, K = 4": IFCA(k=4, local=LOCAL),
}  # fmt: skip


class CountingGrid(LocalGrid):
    """Counts how often the server waits for replies: at each pull that follows a push."""

    waits = 0
    pushed = False

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send messages."""
        self.pushed = True
        return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Receive replies."""
        self.waits += self.pushed
        self.pushed = False
        return super().pull_messages(message_ids)


@dataclass(frozen=True)
class NetworkRun:
    """A run on clients in this process.

    Args:
        result: Result of the method.
        joining: Traffic until all clients had joined.
        traffic: Traffic of everything.
        waits: How often the server waited for replies.
    """

    result: Result
    joining: Traffic
    traffic: Traffic
    waits: int


def run(method: Method, data: ClientData) -> NetworkRun:
    """Run a method on clients in this process."""
    model = models.mlp(64, 200, 10)

    def load_client(context: Context) -> ClientData:
        return data.select(int(context.node_config["partition-id"]))

    grid = CountingGrid(client_app(model=model, data=load_client, device="cpu"), range(len(data)))
    federation = FlowerFederation(grid, model, num_clients=len(data))
    joining = federation.traffic
    result = method.fit(federation, seed=0)
    return NetworkRun(result, joining, federation.traffic, grid.waits)


def table_line(*cells: object) -> str:
    """Return a line of a Markdown table."""
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def megabytes(size: int) -> str:
    """Format a number of bytes."""
    return f"{size / 1e6:.1f}"


def main() -> None:
    """Print two tables: the runs, and the stages of each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100, help="number of clients")
    data = images(parser.parse_args().clients, seed=0)
    torch.set_num_threads(1)
    getLogger("flwr").setLevel(WARNING)
    print(table_line("run", "misclustered", "rounds", "messages", "MB down", "MB up",
                     "counted MB down", "counted MB up"))  # fmt: skip
    print("|---" + "|---:" * 7 + "|")
    stages = []
    for name, method in METHODS.items():
        network_run = run(method, data)
        result, traffic = network_run.result, network_run.traffic
        assert data.truth is not None
        misclustered = f"{result.partition.misclustering(data.truth):.0%}"
        sent = (megabytes(size) for size in (traffic.bytes_down, traffic.bytes_up))
        counted = (megabytes(size) for size in (result.budget.bytes_down, result.budget.bytes_up))
        cells = (name, misclustered, network_run.waits, traffic.messages, *sent, *counted)
        print(table_line(*cells), flush=True)
        stages.append(table_line(name, "hello", network_run.joining.messages, "0.0", "0.0", 0, 0))
        for stage in result.history:
            cost = stage.notes.get("traffic", asdict(Traffic()))
            stages.append(
                table_line(
                    name, stage.name, cost["messages"], megabytes(cost["bytes_down"]),
                    megabytes(cost["bytes_up"]), stage.budget.models_down, stage.budget.models_up,
                )
            )  # fmt: skip
    print()
    print(table_line("run", "stage", "messages", "MB down", "MB up",
                     "counted models down", "counted models up"))  # fmt: skip
    print("|---|---" + "|---:" * 5 + "|")
    print("\n".join(stages))


if __name__ == "__main__":
    main()
