"""Messages and bytes of SR-FCA and IFCA on Flower, by stage, beside what a simulation counts.

    python -m benchmarks.messages            # 100 clients, a few minutes on one core

The clients are in this process, and all of their records are those that a network would carry:
bytes are of models, figures and texts, without what Flower and HTTP add. Clients have the small
images of ``benchmarks/scale.py``, in four groups; the model is an MLP 64-200-10 of 60 KB.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from logging import WARNING, getLogger

import torch
from benchmarks.scale import images
from flwr.app import Context, Message
from tests.flower_grid import LocalGrid

from srfca import SRFCA, ClientData, Result, Work, models
from srfca.federation.base import Wire
from srfca.flower import FlowerFederation, client_app
from srfca.methods import IFCA, Method

WORK = Work(steps=50, local_steps=5, batch_size=10, lr=0.2)
LAMBDA = 1.5
METHODS: dict[str, Method] = {
    "SR-FCA, all pairs": SRFCA(work=WORK, refine_steps=1),
    "SR-FCA, all pairs, one-sided": SRFCA(work=WORK, refine_steps=1, distance="one_sided_loss"),
    "SR-FCA, lazy": SRFCA(
        work=WORK, refine_steps=1, all_pairs=0, threshold=LAMBDA, merge_threshold="auto"
    ),
    "SR-FCA, lazy, one-sided": SRFCA(
        work=WORK, refine_steps=1, all_pairs=0, threshold=LAMBDA, merge_threshold="auto",
        distance="one_sided_loss",
    ),
    "SR-FCA, all pairs, l2": SRFCA(work=WORK, refine_steps=1, distance="l2"),
    "IFCA, K = 4": IFCA(k=4, work=WORK),
}  # fmt: skip


class Rounds(LocalGrid):
    """Counts how often the server waits for answers: at a pull after a push."""

    rounds = 0
    pushed = False

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Send messages."""
        self.pushed = True
        return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Take answers."""
        self.rounds += self.pushed
        self.pushed = False
        return super().pull_messages(message_ids)


def run(method: Method, data: ClientData) -> tuple[Result, Wire, Wire, int]:
    """A run on clients in this process: its result, what joining cost, what all cost, rounds."""
    model = models.mlp(64, 200, 10)

    def own(context: Context) -> ClientData:
        return data.select(int(context.node_config["partition-id"]))

    grid = Rounds(client_app(model=model, data=own, device="cpu"), range(len(data)))
    federation = FlowerFederation(grid, model, clients=len(data))
    joined = federation.wire
    return method.fit(federation, seed=0), joined, federation.wire, grid.rounds


def row(*cells: object) -> str:
    """A line of a table."""
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def megabytes(size: int) -> str:
    """Bytes, to read."""
    return f"{size / 1e6:.1f}"


def main() -> None:
    """Print two tables: runs, and the stages of each run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=100)
    data = images(parser.parse_args().clients, seed=0)
    torch.set_num_threads(1)
    getLogger("flwr").setLevel(WARNING)
    print(row("run", "misclustered", "rounds", "messages", "MB down", "MB up",
              "counted MB down", "counted MB up"))  # fmt: skip
    print("|---" + "|---:" * 7 + "|")
    stages = []
    for name, method in METHODS.items():
        result, joined, wire, rounds = run(method, data)
        assert data.truth is not None
        wrong = f"{result.partition.misclustering(data.truth):.0%}"
        counted = (megabytes(size) for size in (result.budget.bytes_down, result.budget.bytes_up))
        sent = (megabytes(size) for size in (wire.bytes_down, wire.bytes_up))
        print(row(name, wrong, rounds, wire.messages, *sent, *counted), flush=True)
        stages.append(row(name, "hello", joined.messages, "0.0", "0.0", 0, 0))
        for stage in result.history:
            cost = stage.notes.get("wire", {"messages": 0, "bytes_down": 0, "bytes_up": 0})
            stages.append(
                row(
                    name, stage.name, cost["messages"], megabytes(cost["bytes_down"]),
                    megabytes(cost["bytes_up"]), stage.budget.models_down, stage.budget.models_up,
                )
            )  # fmt: skip
    print()
    print(row("run", "stage", "messages", "MB down", "MB up",
              "counted models down", "counted models up"))  # fmt: skip
    print("|---|---" + "|---:" * 5 + "|")
    print("\n".join(stages))


if __name__ == "__main__":
    main()
