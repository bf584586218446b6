"""The client of ``round_flower.py``, in a module that Flower's actors can import."""

from __future__ import annotations

from functools import cache

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from plain import train
from setting import FULL, QUICK, ROUND_LR, mlp, round_samples
from torch import Tensor

client = ClientApp()


@cache
def load_batches(quick: bool) -> tuple[Tensor, Tensor]:
    """Return the batches of all clients, made once in each process, which has one core."""
    torch.set_num_threads(1)
    return round_samples(QUICK if quick else FULL)


@client.train()
def train_client(message: Message, context: Context) -> Message:
    """Take the local steps of one client."""
    quick = bool(message.content["config"]["quick"])
    x, y = (part[int(context.node_config["partition-id"])] for part in load_batches(quick))
    module = mlp((QUICK if quick else FULL).hidden)
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    train(module, torch.optim.SGD(module.parameters(), lr=ROUND_LR), zip(x, y, strict=True))
    content = RecordDict(
        {
            "arrays": ArrayRecord(module.state_dict()),
            "metrics": MetricRecord({"num-examples": y.numel()}),
        }
    )
    return Message(content=content, reply_to=message)
